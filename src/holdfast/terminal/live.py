"""The live picture of a run that people watch: one line for each step, never taller than the terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

import rich.live
from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.progress_bar import ProgressBar
from rich.table import Table

from holdfast.errors import StoreUnreachable
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import DEADLINE, Attempt, StepKind, StepRow
from holdfast.run import RunRows
from holdfast.terminal import wording
from holdfast.terminal.screen import Screen, Text, styled_state

MARGIN_ROWS = 6
"""Lines that are not steps: heading, gap, progress, and room for the prompt."""
BAR_CELLS = 30
ECHO_CELLS = 3
"""Cells left free at the right. The terminal writes ^C there, and must not begin a new line for it."""


class Live:
    """Redraws the run in place, on standard error."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._live = rich.live.Live(
            console=screen,
            auto_refresh=False,
            redirect_stdout=sys.stdout.isatty(),
            vertical_overflow="visible",
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def show(self, view: RunRows, now: float) -> None:
        rows = max(3, self._screen.height - MARGIN_ROWS)
        picture = Constrain(drawn(view, now, rows), self._screen.width - ECHO_CELLS)
        self._live.update(picture, refresh=True)

    def trouble(self, error: StoreUnreachable) -> None:
        self._live.update(Text(f"waiting: {error}", style="yellow"), refresh=True)


def drawn(view: RunRows, now: float, rows: int) -> RenderableType:
    """Return the whole picture, with at most `rows` steps."""
    run = view.run
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    name = Text.assemble((run.workflow.rsplit(".", 1)[-1], "bold"), "  ", (run.id, "bright_black"))
    status = Text.assemble(styled_state(run.state), "  ", wording.run_took(run, now))
    if left := wording.left(view.outlook.eta):
        status.append(f" · {left}", style="bright_black")
    head.add_row(name, status)
    parts: list[RenderableType] = [head]
    if view.steps:
        parts.append(_steps(view, now, rows))
    fraction, note = wording.progress(run.progress)
    if fraction is not None and run.state not in RUN_ENDED:
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            "",
            ProgressBar(
                total=1, completed=fraction, width=BAR_CELLS, complete_style="cyan", finished_style="green"
            ),
            f"{fraction:4.0%}",
            Text(note, style="bright_black"),
        )
        parts.append(bar)
    return Group(*parts)


def _steps(view: RunRows, now: float, rows: int) -> Table:
    steps = [step for step in view.steps if step.key != DEADLINE]
    chosen, left_out = wording.chosen_steps(steps, rows)
    attempts = wording.attempts_of(view.attempts)
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=2, justify="right")
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=48)
    grid.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    grid.add_column(justify="right", no_wrap=True)
    if left_out:
        grid.add_row("", Text(f"… {wording.counted(left_out, 'more step')}", style="bright_black"), "", "")
    for step in chosen:
        late = wording.taking_long(step, view.outlook, now)
        grid.add_row(*_row(step, attempts.get(step.n, []), now, late))
    return grid


def _row(step: StepRow, attempts: list[Attempt], now: float, late: str) -> tuple[RenderableType, ...]:
    state = wording.step_state(step, now)
    detail = " · ".join(part for part in (wording.detail(step, attempts, now), late) if part)
    trouble = late or state in {"failed", "backing off"} or (attempts and state == "running")
    begun = step.started_at if step.kind is StepKind.CALL else step.issued_at
    if step.state == "ready":
        begun = None
    return (
        styled_state(state, word=False),
        Text(step.key),
        Text(detail, style=("red" if state == "failed" else "yellow") if trouble else "bright_black"),
        Text(wording.took(begun, step.finished_at, now), style="bright_black"),
    )
