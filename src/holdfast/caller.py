"""What the code of one process uses to start runs and to wait for their end.

It owns nothing, so it needs no lease. A process without roles has just this; a `Node` adds the roles.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.bells import Bells
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import LeaseLost, StoreError, StoreGone, StoreUnreachable
from holdfast.loops import Loops, ended, wait_for
from holdfast.model import NewRun, RunState
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.operations import Close, Start
from holdfast.store.store import Store
from holdfast.store.writer import Writer

log = logging.getLogger("holdfast.node")

WRITE_OUT_S = 10.0
"""How long a process that stops waits until what it submitted is written."""


class Caller:
    def __init__(self, store: Store, *, environment: Environment, config: Config) -> None:
        self.store, self.config, self.environment = store, config, environment
        self.id = environment.new_id()
        self.bells = Bells(store.nodes, environment)
        self.loops = Loops(
            self.bells, environment, config, has_lease=self.has_lease, lose_store=self.lose_store
        )
        self.writer = Writer(store.batches, self.id, environment, config, self)
        self.gone: StoreGone | None = None
        """There is no store any more, and this has stopped for good."""
        self.started = False
        self._writing: asyncio.Task[None] | None = None
        self._watchers: dict[str, list[asyncio.Future[Close | None]]] = {}
        self._look = asyncio.Event()
        """Some run that is watched may have ended."""
        self._starting: dict[asyncio.Future[Any], tuple[str, float]] = {}
        """Whoever waits for a start: of which run, and since when on the monotonic clock."""
        self._is_impatient = False
        """Somebody looks whether the store answers them."""

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self, first: str | None = None) -> None:
        self._begin_writing()
        await self.bells.listen(self._heard)
        self._begin_watching()
        self.started = True

    def _begin_writing(self) -> None:
        self._writing = asyncio.create_task(self.writer.run(), name="holdfast-writer")

    def _begin_watching(self) -> None:
        self.loops.spawn(self.bells.pass_on(), self._watch())

    async def stop(self, drain_s: float | None = None) -> None:
        # All that may be left are starts, and nobody waits for them any more.
        await self._write_out(WRITE_OUT_S if self.writer.trouble is None else 0)
        await self.loops.stop()
        with contextlib.suppress(StoreError):
            await self.bells.unlisten()
        self._dismiss()

    async def _write_out(self, limit_s: float) -> None:
        """Let the writer finish what was submitted, for at most so long."""
        self.writer.close()
        if self._writing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._writing), limit_s)
            await ended([self._writing])
        self.writer.leave()

    def _dismiss(self) -> None:
        """Nobody here is answered any more."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.cancel()

    def take_over(self, other: Caller) -> None:
        """Answer those who wait at another one that has stopped, for a start or for the end of a run."""
        self._watchers, other._watchers = other._watchers, {}
        self._starting = other._starting
        if self._starting:
            self._is_impatient = True
            self._give_up_starts()
        other.writer.hand_over(self.writer)
        self._look.set()

    # --- what a node has beside this ----------------------------------------------------------------------------------

    def has_lease(self) -> bool:
        """Whether this process may write what belongs to it. Nothing does."""
        return True

    async def reconcile(self) -> None:
        """An answer was lost: compare what the store says belongs to this process with what it knows. Nothing does."""

    async def declare(self) -> None:
        """Tell the store what code was declared here since. Only nodes do."""

    def _begin_here(self, run: NewRun, then: Callable[[Any], None]) -> bool:
        """Start the run in this process, if it has a scheduler that can."""
        return False

    def _is_here(self, run_id: str) -> bool:
        """Whether the run is in this process's memory, which then hears of its end at once."""
        return False

    def _heard(self, bell: Bell) -> None:
        """Another process rang."""
        if bell is Bell.ENDED:
            self._look.set()

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start_run(self, run: NewRun) -> Answer:
        """Start a run: here, with its first steps in the same commit, if that can be; else by whoever claims it."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def then(answer: Any) -> None:
            if not answered.done():
                answered.set_result(answer)

        if self._begin_here(run, then):
            answer = await self._answered(run.id, answered)
            if answer is Answer.ACCEPTED:
                return Answer.ACCEPTED
            if isinstance(answer, BaseException) and not isinstance(answer, LeaseLost):
                raise answer
        # Also tells a duplicate from a conflict.
        answer = await self._answered(run.id, self.writer.write(Start(run)))
        if answer is Answer.ACCEPTED:
            self.ring(Bell.RUNS)
        return Answer(answer)

    async def _answered(self, run_id: str, answered: asyncio.Future[Any]) -> Any:
        """The answer to a start; or that there is none, which somebody who waits should know."""
        self._starting[answered] = run_id, self.environment.monotonic()
        if not self._is_impatient:
            self._is_impatient = True
            asyncio.get_running_loop().call_later(self.config.start_s, self._give_up_starts)
        try:
            return await answered
        finally:
            del self._starting[answered]

    def _give_up_starts(self) -> None:
        """Answer those whose start the store does not take. Everything else waits until it does: nobody waits for that."""
        self._is_impatient = bool(self._starting)
        if not self._starting:
            return
        limit_s = self.config.start_s
        asyncio.get_running_loop().call_later(limit_s / 10, self._give_up_starts)
        before = self.environment.monotonic() - limit_s
        late = {answered: run_id for answered, (run_id, at) in self._starting.items() if at <= before}
        trouble = self.writer.withdraw_starts(limit_s, set(late.values()))
        if trouble is None:
            return
        for answered, run_id in late.items():
            if not answered.done():
                answered.set_exception(
                    StoreUnreachable(
                        f"it is not known whether run {run_id!r} was started: {trouble}; start it again with this id, and it "
                        "is there once"
                    )
                )

    # --- waiting for the end ------------------------------------------------------------------------------------------

    def watch_end(self, run_id: str) -> asyncio.Future[Close | None]:
        """Resolves when the run ends, here or elsewhere; with None when there is no such run, or no longer."""
        watcher: asyncio.Future[Close | None] = asyncio.get_running_loop().create_future()
        if not self._is_here(run_id):
            self._look.set()
        self._watchers.setdefault(run_id, []).append(watcher)
        watcher.add_done_callback(partial(self._unwatch, run_id))
        return watcher

    def look_for_ends(self) -> None:
        """A run that is watched may have ended elsewhere: look now."""
        self._look.set()

    def _unwatch(self, run_id: str, watcher: asyncio.Future[Close | None]) -> None:
        """Nobody waits here any more. Those who were answered are gone from the list already."""
        watchers = self._watchers.get(run_id)
        if watchers is not None and watcher in watchers:
            watchers.remove(watcher)
            if not watchers:
                del self._watchers[run_id]

    def _answer(self, run_id: str, close: Close | None) -> None:
        for watcher in self._watchers.pop(run_id, ()):
            if not watcher.done():
                watcher.set_result(close)

    async def _watch(self) -> None:
        """Answer those who wait for runs that end in other processes, or are removed before anybody has told them."""
        guarded, reads = self.loops.guarded, self.store.reads
        unknown_at = 0.0
        while True:
            await wait_for(self._look, self.config.poll_s)
            away = [run_id for run_id in self._watchers if not self._is_here(run_id)]
            ask_unknown = self.environment.monotonic() >= unknown_at
            if ask_unknown:
                unknown_at = self.environment.monotonic() + self.config.poll_s
            for start in range(0, len(away), self.config.claim_max):
                part = away[start : start + self.config.claim_max]
                for run in await guarded("watching", partial(reads.ended_runs, part)) or ():
                    error = run.note if run.state is RunState.STUCK else run.error
                    self._answer(run.id, Close(run.state, run.output, error, run.finished_at or 0.0))
                left = [run_id for run_id in part if run_id in self._watchers]
                if ask_unknown and left:
                    for run_id in await guarded("watching", partial(reads.unknown_runs, left)) or ():
                        self._answer(run_id, None)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def ring(self, bell: Bell) -> None:
        """Wake this process's loops at once, and other processes soon."""
        self.bells.ring(bell)

    def lose_store(self, gone: StoreGone) -> None:
        """There is no store to come back to. Whoever waits here is told."""
        if self.gone is not None:
            return
        log.error("node %s stops: %s", self.id, gone)
        self.gone = gone
        self._abandon()
        watchers = [watcher for waiting in self._watchers.values() for watcher in waiting]
        for answer in (*watchers, *self._starting):
            if not answer.done():
                answer.set_exception(gone)

    def _abandon(self) -> None:
        """Write nothing more."""
        self.loops.is_over = True
        self.writer.abandon()
