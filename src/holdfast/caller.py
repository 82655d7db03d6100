"""What a process uses to start runs and to wait for their end.

A caller owns nothing, so it needs no lease. A process without roles is only a caller. A `Node` is a caller that also
hosts roles.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.bells import Bells
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import LeaseLost, StoreError, StoreGone, StoreUnreachable
from holdfast.loops import Loops, Watchers, cancel_all, wait_for
from holdfast.model import NewRun, RunState
from holdfast.queues import NO_QUEUE, under
from holdfast.store.answers import Answer, UpdateEnd
from holdfast.store.bell import Bell
from holdfast.store.gathers import TakenStart
from holdfast.store.operations import Close, Start
from holdfast.store.queues import QueueNumbers
from holdfast.store.store import Store
from holdfast.store.writer import Writer
from holdfast.traces import spans_for

if TYPE_CHECKING:
    from holdfast.spans import Spans

log = logging.getLogger("holdfast.node")

WRITE_OUT_S = 10.0
"""How long a process that stops waits for its writer to finish."""


class Caller:
    def __init__(self, store: Store, *, environment: Environment, config: Config) -> None:
        self.store, self.config, self.environment = store, config, environment
        self.id = environment.new_id()
        self.bells = Bells(store.nodes, environment)
        self.loops = Loops(
            self.bells, environment, config, has_lease=self.has_lease, lose_store=self.lose_store
        )
        self.queues = QueueNumbers(store)
        self.spans = spans_for(config)
        """What makes spans. None if traces are off."""
        self.writer = Writer(store.batches, self.id, environment, config, self)
        self.gone: StoreGone | None = None
        """Set when the store no longer exists. Then this caller has stopped for good."""
        self.started = False
        self.only: set[str] | None = None
        """If this process works only on some runs, these. It adds those that it starts."""
        self._writing: asyncio.Task[None] | None = None
        self._watchers: Watchers[str, Close | None] = Watchers()
        """Who waits for the end of a run, by its id."""
        self.update_watchers: Watchers[int, UpdateEnd] = Watchers()
        """Who waits for the answer to an update, by the id of its row."""
        self._look = asyncio.Event()
        """Set when a watched run may have ended, or an update may have been answered."""
        self._starting: dict[asyncio.Future[Any], tuple[str, float]] = {}
        """For each start that somebody waits for: the id of the run, and since when, on the monotonic clock."""
        self._is_checking_starts = False
        """A timer is set for `_give_up_starts`."""

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
        # Only starts can be left to write, and nobody waits for them any more. So do not wait for a store in trouble.
        await self._write_out(WRITE_OUT_S if self.writer.trouble is None else 0)
        await self.loops.stop()
        with contextlib.suppress(StoreError):
            await self.bells.unlisten()
        self._cancel_watchers()

    async def _write_out(self, limit_s: float) -> None:
        """Let the writer finish what was submitted, for at most `limit_s`."""
        self.writer.close()
        if self._writing is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._writing), limit_s)
            await cancel_all([self._writing])
        self.writer.leave()

    def _cancel_watchers(self) -> None:
        """End all waits for the end of a run or the answer to an update, because this process stops."""
        self._watchers.cancel()
        self.update_watchers.cancel()

    def take_over(self, other: Caller) -> None:
        """Take over everybody who waits at a caller that has stopped, for a start or for the end of a run."""
        self._watchers, other._watchers = other._watchers, Watchers()
        self.update_watchers, other.update_watchers = other.update_watchers, Watchers()
        self._starting = other._starting
        if self._starting:
            self._is_checking_starts = True
            self._give_up_starts()
        other.writer.hand_over(self.writer)
        self._look.set()

    # --- what a node overrides ----------------------------------------------------------------------------------------

    def has_lease(self) -> bool:
        """True if this process may write about what it owns. A caller owns nothing, so it always may."""
        return True

    async def reconcile(self) -> None:
        """Give up what this process owns according to the store and does not know of. A caller owns nothing."""

    async def declare(self) -> None:
        """Write into the store what code was declared here since the last time. Only nodes do that."""

    def _begin_here(self, run: NewRun, then: Callable[[Any], None]) -> bool:
        """Start the run in this process. Return False if it has no scheduler that can."""
        return False

    def _is_here(self, run_id: str) -> bool:
        """True if the run is in the memory of this process. Then `run_ended` is called as soon as it ends."""
        return False

    def _heard(self, bell: Bell) -> None:
        """Handle a bell that another process rang."""
        if bell is Bell.ENDED:
            self._look.set()

    # --- starting -----------------------------------------------------------------------------------------------------

    async def start_run(self, run: NewRun) -> Answer:
        """Start a run: here, with its first steps in the same commit, if that is possible. Otherwise a scheduler claims
        it."""
        if self.only is not None:
            self.only.add(run.id)
        if run.fair is not None or run.limits:
            run = await self.queued(run)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def then(answer: Any) -> None:
            if not answered.done():
                answered.set_result(answer)

        if self._begin_here(run, then):
            answer = await self._answer_to_start(run.id, answered)
            if answer is Answer.ACCEPTED:
                return Answer.ACCEPTED
            if isinstance(answer, BaseException) and not isinstance(answer, LeaseLost):
                raise answer
        # This also distinguishes the same start again from a conflict.
        answer = await self._answer_to_start(run.id, self.writer.write(Start(run)))
        if answer is Answer.ACCEPTED:
            self.ring(Bell.RUNS)
        return Answer(answer)

    async def queued(self, run: NewRun) -> NewRun:
        """Return the run with the number of its queue."""
        if (run.fair is None and not run.limits) or run.queue is not NO_QUEUE:
            return run
        (queue,) = await self.queues.number([run.queue_key])
        return msgspec.structs.replace(
            run, queue=msgspec.structs.replace(queue, under=under(run.limits) if run.limits else ())
        )

    def start_or_find(self, run: NewRun) -> Coroutine[Any, Any, tuple[Answer, str]]:
        """Start a run, and return its id. If another run takes this start, or is open where a limit has no room and says
        that the start is skipped, return that run's id."""
        return self._start_or_find(run) if self.spans is None else self._start_traced(self.spans, run)

    async def _start_traced(self, spans: Spans, run: NewRun) -> tuple[Answer, str]:
        with spans.starting(run) as traced:
            return await self._start_or_find(traced)

    async def _start_or_find(self, run: NewRun) -> tuple[Answer, str]:
        if run.gather is None and run.full == "wait":
            return await self.start_run(run), run.id
        answer, run_id = await (self._gather(run) if run.gather is not None else self._start_limited(run))
        if self.only is not None:
            self.only.add(run_id)
        return answer, run_id

    async def _start_limited(self, run: NewRun) -> tuple[Answer, str]:
        started = await self.store.limits.start_limited(await self.queued(run))
        if started.answer is Answer.ACCEPTED:
            self.ring(Bell.RUNS)
        if started.cancelled:
            self.ring(Bell.OUTCOMES)
        return started.answer, started.run_id

    async def _gather(self, run: NewRun) -> TakenStart:
        """Start a run of a workflow that gathers its starts. This has a transaction of its own, because it may have to
        wait for another start of the same key, and what the writer writes must not."""
        try:
            taken = await self.store.gathers.take(await self.queued(run))
        except StoreUnreachable as away:
            if not away.maybe_done:
                raise type(away)(f"run {run.id!r} was not started: {away}") from away
            raise StoreUnreachable(
                f"it is not known whether run {run.id!r} was started: {away}; start it again with the same id: this never "
                "makes a second run"
            ) from away
        if taken.answer is Answer.ACCEPTED:
            self.ring(Bell.RUNS)
        return taken

    async def _answer_to_start(self, run_id: str, answered: asyncio.Future[Any]) -> Any:
        """Return the answer to a start. Raise if the store gives none in time, because somebody waits for it."""
        self._starting[answered] = run_id, self.environment.monotonic()
        if not self._is_checking_starts:
            self._is_checking_starts = True
            asyncio.get_running_loop().call_later(self.config.start_s, self._give_up_starts)
        try:
            return await answered
        finally:
            del self._starting[answered]

    def _give_up_starts(self) -> None:
        """Answer those who have waited `start_s` for a start, if the store has accepted no write for that long. All
        other writes stay with the writer until the store accepts them, because nobody waits for their answers."""
        self._is_checking_starts = bool(self._starting)
        if not self._starting:
            return
        limit_s = self.config.start_s
        asyncio.get_running_loop().call_later(limit_s / 10, self._give_up_starts)
        before = self.environment.monotonic() - limit_s
        late = {answered: (run_id, at) for answered, (run_id, at) in self._starting.items() if at <= before}
        trouble = self.writer.withdraw_starts(limit_s, {run_id for run_id, _ in late.values()})
        if trouble is None:
            return
        for answered, (run_id, at) in late.items():
            # A try that is just under way may fail for certain in a moment. Only then is it known that nothing is written.
            if not answered.done() and at <= before - limit_s / 5:
                answered.set_exception(
                    StoreUnreachable(
                        f"it is not known whether run {run_id!r} was started: {trouble}; start it again with the same "
                        "id: this never makes a second run"
                    )
                )

    # --- waiting for the end ------------------------------------------------------------------------------------------

    def watch_end(self, run_id: str) -> asyncio.Future[Close | None]:
        """Return a future that gets how the run ended, here or elsewhere. It gets None if there is no such run, or no
        longer."""
        if not self._is_here(run_id):
            self._look.set()
        return self._watchers.add(run_id)

    def look_for_ends(self) -> None:
        """Look now whether a watched run has ended in another process."""
        self._look.set()

    def watch_update(self, id: int) -> asyncio.Future[UpdateEnd]:
        """Return a future that gets what became of the update with this row."""
        self._look.set()
        return self.update_watchers.add(id)

    async def _look_for_answers(self) -> None:
        ids = list(self.update_watchers)
        for start in range(0, len(ids), self.config.claim_max):
            part = ids[start : start + self.config.claim_max]
            for end in await self.loops.guarded("watching", partial(self.store.reads.answers, part)) or ():
                self.update_watchers.answer(end.id, end)

    async def _watch(self) -> None:
        """Answer the watchers of runs that end in other processes, or are removed before their watchers got an
        answer."""
        guarded, reads = self.loops.guarded, self.store.reads
        unknown_at = 0.0
        while True:
            await wait_for(self._look, self.config.poll_s)
            if self.update_watchers:
                await self._look_for_answers()
            away = [run_id for run_id in self._watchers if not self._is_here(run_id)]
            ask_unknown = self.environment.monotonic() >= unknown_at
            if ask_unknown:
                unknown_at = self.environment.monotonic() + self.config.poll_s
            for start in range(0, len(away), self.config.claim_max):
                part = away[start : start + self.config.claim_max]
                for run in await guarded("watching", partial(reads.ended_runs, part)) or ():
                    error = run.note if run.state is RunState.STUCK else run.error
                    self._watchers.answer(run.id, Close(run.state, run.output, error, run.finished_at or 0.0))
                left = [run_id for run_id in part if run_id in self._watchers]
                if ask_unknown and left:
                    for run_id in await guarded("watching", partial(reads.unknown_runs, left)) or ():
                        self._watchers.answer(run_id, None)

    # --- the rest -----------------------------------------------------------------------------------------------------

    def ring(self, bell: Bell) -> None:
        """Wake this process's loops at once, and other processes soon."""
        self.bells.ring(bell)

    def lose_store(self, gone: StoreGone) -> None:
        """Stop for good, because the store no longer exists. Everybody who waits here gets this error."""
        if self.gone is not None:
            return
        log.error("node %s stops: %s", self.id, gone)
        self.gone = gone
        self._abandon()
        for run_id in list(self._watchers):
            self._watchers.fail(run_id, gone)
        for row_id in list(self.update_watchers):
            self.update_watchers.fail(row_id, gone)
        for started in list(self._starting):
            if not started.done():
                started.set_exception(gone)

    def _abandon(self) -> None:
        """Stop the loops, and write nothing more."""
        self.loops.is_over = True
        self.writer.abandon()
