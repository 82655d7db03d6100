"""The status line of a node, which shows people at its terminal that all is well."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import rich.live

from holdfast.terminal.logs import Brief, log_to_errors
from holdfast.terminal.node_view import Status
from holdfast.terminal.screen import Screen, Text


class StatusLine:
    """A line that is redrawn in place. Log lines and what steps print scroll by above it."""

    wants_status = True

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live = rich.live.Live(console=screen, auto_refresh=False, redirect_stdout=sys.stdout.isatty())

    def __enter__(self) -> Self:
        log_to_errors(logging.WARNING, Brief())
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(
        self, event: str, message: str, *, wrong: bool = False, more: Mapping[str, Any] | None = None
    ) -> None:
        self._screen.print(Text(message, style="red" if wrong else "bright_black"))
        if event in {"draining", "down", "fenced"}:
            self._live.update(Text(""), refresh=True)

    def pass_on(self, who: str, line: str, *, errors: bool) -> None:
        self._screen.print(Text.assemble((f"{who} | ", "cyan"), line))

    def status(self, status: Status) -> None:
        text = Text.assemble(*status.words(), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)

    def trouble(self, message: str) -> None:
        self._live.update(
            Text(f"● {message}", style="yellow", no_wrap=True, overflow="ellipsis"), refresh=True
        )
