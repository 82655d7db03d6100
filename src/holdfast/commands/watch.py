"""How a command follows a run: it reads the run again and again, and shows what changed, live or line by line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Container
from types import TracebackType
from typing import Any, Protocol, Self

from holdfast.client import Holdfast
from holdfast.commands.event_loop import Departure
from holdfast.environment import StoreClock
from holdfast.errors import StoreUnreachable
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.model import DEADLINE, RunRow, RunState, StepRow, StepState
from holdfast.run import RunRows
from holdfast.supervisor.outlook import Outlook
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

LOOK_EVERY_S = 0.12
"""How often to read the run: often enough to look live, seldom enough to cost next to nothing."""
OUTLOOK_EVERY_S = 1.0
"""How often to read how long such runs take. That changes slowly, and in between the time left is counted down."""
LOOK_SHARE = 5
"""After a look that takes long, at a run of many thousand steps, the pause is this many times as long as the look."""
PAGE = 1000


class Follower:
    """Reads a run again and again, and its steps from the first one on that may still change."""

    def __init__(self, hf: Holdfast, run_id: str) -> None:
        self._hf, self.run_id = hf, run_id
        self._steps: dict[int, StepRow] = {}
        self._attempts_mark = -1
        self._view: RunRows | None = None
        self._outlook, self._outlook_at = Outlook(), -OUTLOOK_EVERY_S
        self.clock = StoreClock(hf.environment)

    async def learn_time(self) -> None:
        """Read the store's clock. The durations of what still runs are measured by it."""
        now = await self._hf.now()
        self.clock.learn(self._hf.environment.monotonic(), now)

    async def look(self) -> RunRows:
        desk, who = self._hf.desk, self._hf.who
        run = await desk.runs.get(who, self.run_id)
        for n in [n for n in self._steps if n <= run.base_n]:
            del self._steps[n]  # the run continued as new, and its earlier history is gone
        after = min((n for n, step in self._steps.items() if step.state not in STEP_ENDED), default=None)
        after = max(self._steps, default=0) if after is None else after - 1
        while page := await desk.runs.steps(who, self.run_id, after, PAGE):
            self._steps.update((step.n, step) for step in page)
            after = page[-1].n
            if len(page) < PAGE:
                break
        steps = [self._steps[n] for n in sorted(self._steps)]
        mark = sum(step.attempt + step.losses for step in steps)
        attempts = self._view.attempts if self._view else []
        if mark != self._attempts_mark or any(step.state is StepState.READY for step in steps):
            attempts, self._attempts_mark = await desk.runs.attempts(who, self.run_id), mark
        self._view = RunRows(run, steps, attempts, await self._look_ahead(run, steps))
        return self._view.shown(self._hf.namespace)

    async def _look_ahead(self, run: RunRow, steps: list[StepRow]) -> Outlook:
        at = self._hf.environment.monotonic()
        if run.state in RUN_ENDED:
            return Outlook()
        if at - self._outlook_at >= OUTLOOK_EVERY_S:
            self._outlook = await self._hf.desk.runs.outlook(self._hf.who, run, steps)
            self._outlook_at = at
        return self._outlook.after(at - self._outlook_at)


class Display(Protocol):
    """Where a command shows the run that it follows."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, view: RunRows, now: float) -> None: ...
    def trouble(self, error: StoreUnreachable) -> None: ...


class Silent:
    """Shows nothing until the end, for scripts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def show(self, view: RunRows, now: float) -> None: ...

    def trouble(self, error: StoreUnreachable) -> None: ...


class EventLines(Silent):
    """Prints one line for each thing that happened on standard error, for logs."""

    def __init__(self) -> None:
        self._state: str | None = None
        self._progress: str | None = None
        self._steps: dict[int, tuple[str, int]] = {}
        self._attempts = 0
        self._late: dict[int, bool] = {}
        self._eta_shown = False
        self._trouble = ""

    def show(self, view: RunRows, now: float) -> None:
        run = view.run
        self._trouble = ""
        if run.state != self._state and run.state not in RUN_ENDED:
            self._line(f"{run.id} {run.state} {run.workflow}")
        keys = {step.n: step.key for step in view.steps}
        for attempt in view.attempts[self._attempts :]:
            self._line(f"  {keys.get(attempt.n, '?')} attempt {attempt.attempt}: {wording.ending(attempt)}")
        self._attempts = len(view.attempts)
        for step in view.steps:
            state = wording.step_state(step, now)
            if self._steps.get(step.n) != (state, step.attempt) and step.key != DEADLINE:
                self._steps[step.n] = (state, step.attempt)
                self._step(step, state, now)
            if view.outlook.straggles(step, now) and not self._late.get(step.n):
                self._late[step.n] = True
                self._line(f"  {step.key} runs {wording.taking_long(step, view.outlook, now)}")
        if view.outlook.eta is not None and not self._eta_shown:
            self._eta_shown = True
            self._line(f"  {wording.left(view.outlook.eta)}")
        if run.progress != self._progress and run.progress:
            self._line(f"  {wording.progress_words(run.progress)}")
        self._state, self._progress = run.state, run.progress

    def _step(self, step: StepRow, state: str, now: float) -> None:
        words = "" if step.quarantined else wording.detail(step, (), now)
        lasted = wording.took(step.started_at or step.issued_at, step.finished_at, now)
        if step.state in STEP_ENDED:
            words = f"after {lasted}: {words}" if words else f"after {lasted}"
        self._line(f"  {step.key} {state} {words}".rstrip())

    def trouble(self, error: StoreUnreachable) -> None:
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._line(f"waiting: {error}")

    @staticmethod
    def _line(text: str) -> None:
        print_words(text, err=True)


def display_for(as_json: bool) -> Display:
    """Return the display for a script, for a terminal or for a log."""
    if as_json:
        return Silent()
    if sys.stderr.isatty():
        from holdfast.terminal.live import Live  # noqa: PLC0415  loads rich

        return Live(output.screen(to_errors=True))
    return EventLines()


async def follow(
    hf: Holdfast,
    run_id: str,
    display: Display,
    *,
    leave: Departure,
    until: Container[RunState] = RUN_ENDED,
    nudge: Callable[[RunRows], Awaitable[None]] | None = None,
) -> RunRows:
    """Show the run until its state is one of `until`, or this process is asked to leave. `nudge` is called after every
    look.

    If the store goes away, this waits until it is back: this process may be the one that carries the run.
    """
    follower, monotonic = Follower(hf, run_id), hf.environment.monotonic
    await follower.learn_time()
    ended, left = hf.caller.watch_end(run_id), asyncio.ensure_future(leave.asked.wait())
    view = await follower.look()
    try:
        while True:
            begun = monotonic()
            try:
                view = await follower.look()
                display.show(view, follower.clock.now())
                if view.run.state in until:
                    return view
                if nudge is not None:
                    await nudge(view)
            except StoreUnreachable as error:
                display.trouble(error)
            if left.done():
                return view
            waited: list[asyncio.Future[Any]] = [left] if ended.done() else [left, ended]
            pause_s = max(LOOK_EVERY_S, (monotonic() - begun) * LOOK_SHARE)
            await asyncio.wait(waited, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        left.cancel()
        ended.cancel()
