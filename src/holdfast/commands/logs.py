"""`logs`: prints what a run and its steps have logged, and follows it until the run ends."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

import click

from holdfast.client import Holdfast
from holdfast.commands.event_loop import Departure, leaving, run_quickly
from holdfast.commands.options import command, opened, run_argument
from holdfast.commands.watch import LOOK_SHARE, Follower
from holdfast.errors import StoreUnreachable
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.log_buffer import level_number
from holdfast.logs import LogFilter, LogInfo, LogTake, PlacedLine, in_time
from holdfast.run import Run
from holdfast.terminal.lines import print_words
from holdfast.terminal.log_lines import log_object, print_log
from holdfast.terminal.output import print_line

FOLLOW_EVERY_S = 0.3
"""How often to look for new lines: sooner than a step's lines are written, which is every second."""


@command()
@run_argument
@click.argument("step", required=False, metavar="[STEP]")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@click.option(
    "--attempt", type=click.IntRange(min=1), metavar="N", help="Print only what this attempt has logged."
)
@click.option(
    "--level",
    type=click.Choice(["debug", "info", "warning", "error", "critical"], case_sensitive=False),
    help="Print only lines of this level and above.",
)
def logs(
    *,
    run_id: str,
    step: str | None,
    follow: bool,
    attempt: int | None,
    level: str | None,
    store: str,
    as_json: bool,
) -> int:
    """Print what a run and its steps have logged, in the order of time.

    \b
    holdfast logs order-42
    holdfast logs order-42 charge --attempt 2
    holdfast logs order-42 -f --level warning

    STEP is a step's key, as `holdfast show` lists it. Lines of isolated steps that were printed are marked with their
    stream. With --json, each line is one JSON object.
    """
    where = LogFilter(None, attempt, level_number(level) if level else 0)
    return run_quickly(_logs(run_id, step, where, store, follow=follow, as_json=as_json))


async def _logs(
    run_id: str, step: str | None, where: LogFilter, store: str, *, follow: bool, as_json: bool
) -> int:
    async with opened(store) as hf:
        run: Run[Any] = hf.run(run_id)
        if step is not None and not follow:
            where = where._replace(n=await run.number_of(step))
        printing = _Printing(hf, run_id, step, where, as_json=as_json)
        if not follow:
            await printing.all()
            if not printing.printed and not as_json and sys.stderr.isatty():
                print_words("nothing is kept that fits", dim=True, err=True)
            return 0
        with leaving() as leave:
            await printing.follow(leave)
        if step is not None and not leave.code:
            await run.number_of(step)  # raises if the run has ended without this step
        return leave.code


class _Printing:
    def __init__(
        self, hf: Holdfast, run_id: str, step: str | None, where: LogFilter, *, as_json: bool
    ) -> None:
        self._hf, self._run_id, self._step, self._where = hf, run_id, step, where
        self._as_json, self._stored = as_json, hf.stored(run_id)
        self._take = LogTake()
        self._keys: dict[int, str] = {}
        self.printed = 0
        self._seen: Counter[LogInfo] = Counter()

    async def all(self) -> None:
        """Print all there is."""
        if self._hf.is_remote:
            await self._fetched()
            return
        run, reads = self._hf.run(self._run_id), self._hf.store.reads
        self._keys = await run.step_keys()
        if self._where.n is not None:
            for logged in self._take.sorted(await reads.logs_of(self._stored, [self._where.n])):
                self._print(logged)
            return
        async for logged in in_time(reads, self._stored, self._take):
            self._print(logged)

    async def follow(self, leave: Departure) -> None:
        """Print all there is, and then what comes, until the run has ended."""
        follower, monotonic = Follower(self._hf, self._run_id), self._hf.environment.monotonic
        left = asyncio.ensure_future(leave.asked.wait())
        view = await follower.look()
        await self.all()
        live = {0, *(step.n for step in view.steps if step.state not in STEP_ENDED)}
        known = {step.n for step in view.steps}
        try:
            while not left.done():
                begun = monotonic()
                try:
                    view = await follower.look()
                    self._keys = {step.n: step.key for step in view.steps}
                    live |= self._keys.keys() - known
                    if self._hf.is_remote:
                        await self._fetched()
                    else:
                        rows = await self._hf.store.reads.logs_of(self._stored, sorted(live))
                        for logged in self._take.sorted(rows):
                            self._print(logged)
                    known |= self._keys.keys()
                    # What a step logged last is written with its outcome. So after a look that saw it ended, it is done.
                    live = {0, *(step.n for step in view.steps if step.state not in STEP_ENDED)}
                    if view.run.state in RUN_ENDED:
                        return
                except StoreUnreachable as error:
                    print_words(f"waiting: {error}", err=True)
                pause_s = max(FOLLOW_EVERY_S, (monotonic() - begun) * LOOK_SHARE)
                await asyncio.wait([left], timeout=pause_s)
        finally:
            left.cancel()

    async def _fetched(self) -> None:
        """Print what a server has and was not printed before."""
        found = Counter(await self._hf.desk.runs.logs(self._hf.who, self._run_id, self._where))
        for info, times in found.items():
            for _ in range(times - self._seen[info]):
                self._show(info)
        self._seen |= found

    def _print(self, logged: PlacedLine) -> None:
        if self._where.fits(logged):
            self._show(logged.info(self._keys))

    def _show(self, info: LogInfo) -> None:
        if self._step is not None and info.step != self._step:
            return
        self.printed += 1
        if self._as_json:
            print_line(log_object(self._run_id, info))
        else:
            print_log(info)
