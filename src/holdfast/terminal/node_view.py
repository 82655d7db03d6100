"""What a node that runs until it is stopped shows about itself: to people, to a log, or to a script."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TextIO

from holdfast.terminal import output, wording
from holdfast.terminal.lines import json_document, print_words
from holdfast.terminal.logs import JsonLines, LineFormatter, log_to, log_to_errors

log = logging.getLogger("holdfast.node")

Node = Callable[[], str | None]
"""Returns the id of a node. None while it is not open."""


class Status(Protocol):
    """The status of a node, which is shown again and again."""

    def words(self) -> list[tuple[str, str]]:
        """Return the status for people: the parts of one line, each with its style."""

    def fields(self) -> dict[str, Any]:
        """Return the status for scripts."""

    def mark(self) -> object:
        """Return a value that is different when scripts should get the status again."""


class NodeStatus(NamedTuple):
    up_s: float
    runs: dict[str, int]
    writes_per_s: float
    leader: str

    def words(self) -> list[tuple[str, str]]:
        parts = [("●", "green"), (f" up {wording.span(self.up_s)}", "")]
        for state, count in self.runs.items():
            parts += [(" · ", "bright_black"), (f"{count:,} {state}", wording.COLOURS.get(state, ""))]
        if not self.runs:
            parts.append((" · no runs yet", "bright_black"))
        return [*parts, (f" · {self.writes_per_s:,.0f} writes/s · {self.leader}", "bright_black")]

    def fields(self) -> dict[str, Any]:
        return {"runs": self.runs, "writes_per_s": round(self.writes_per_s, 1), "leader": self.leader}

    def mark(self) -> object:
        return self.runs, self.leader


class NodeView(Protocol):
    """What a node reports to."""

    wants_status: bool

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def say(
        self, event: str, message: str, *, wrong: bool = False, more: Mapping[str, Any] | None = None
    ) -> None: ...
    def pass_on(self, who: str, line: str, *, errors: bool) -> None:
        """Show a line that an agent of this pool has printed."""

    def status(self, status: Status) -> None: ...
    def trouble(self, message: str) -> None: ...


class LogView:
    """Writes log lines to standard error: as text, or as JSON if `is_json`. With --json it writes events and log records
    to `stdout`, as one JSON object a line."""

    def __init__(self, stdout: TextIO | None, node: Node, *, is_json: bool) -> None:
        self.wants_status = stdout is not None
        self._stdout, self._node, self._is_json = stdout, node, is_json
        self._last_mark: Any = None

    def __enter__(self) -> Self:
        if self._stdout is not None:
            log_to(self._stdout, logging.INFO, JsonLines(self._node))
        else:
            formatter = JsonLines(self._node) if self._is_json else LineFormatter()
            log_to_errors(logging.INFO, formatter)
        return self

    def __exit__(self, *exception: object) -> None: ...

    def say(
        self, event: str, message: str, *, wrong: bool = False, more: Mapping[str, Any] | None = None
    ) -> None:
        level = logging.ERROR if wrong else logging.INFO
        log.log(level, message, extra={"event": event, "fields": dict(more or {})})

    def pass_on(self, who: str, line: str, *, errors: bool) -> None:
        if errors and self._is_json:
            print(json_document(_line_of(who, line)), file=sys.stderr, flush=True)
        elif self._stdout is None or errors:
            print_words(f"{who} | {line}", err=errors)
        else:
            print(json_document(_line_of(who, line)), file=self._stdout, flush=True)

    def status(self, status: Status) -> None:
        if status.mark() != self._last_mark:
            self._last_mark = status.mark()
            log.info("status", extra={"event": "status", "fields": status.fields()})

    def trouble(self, message: str) -> None:
        log.warning(message)


def _line_of(who: str, line: str) -> dict[str, Any]:
    """Return a line of a process as a JSON object that names the process. A line that is no JSON object becomes an
    `output` event."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    known = value if isinstance(value, dict) else {"event": "output", "line": line}
    return {"from": who} | known | {"from": who}


def view_for(stdout: TextIO | None, node: Node, *, log_format: str | None = None) -> NodeView:
    """Return the view for those who look: a script that reads `stdout`, a log, or people at a terminal. `node` returns
    the id of the node that is viewed."""
    if stdout is not None or log_format is not None or not sys.stderr.isatty():
        return LogView(stdout, node, is_json=log_format == "json")
    from holdfast.terminal.status_line import StatusLine  # noqa: PLC0415  loads rich

    return StatusLine(output.screen(to_errors=True))
