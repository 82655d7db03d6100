"""What callers and operators do to a run. The journal records what operators do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from holdfast.actor import entry
from holdfast.errors import UnknownRun, WrongState
from holdfast.model import CANCEL, UNDO, NewSignal, RunRow, RunState, StepState, in_words
from holdfast.store.answers import Answer
from holdfast.store.children import CANCEL_KEY, ChildOutcome, cancelled_error
from holdfast.store.database import Noun, Session, look, statement, transaction
from holdfast.store.forks import Forked, ForkRequest, fork
from holdfast.store.retries import demand_alone, demand_retryable, demand_whole, newest, retried_as, retry
from holdfast.store.rows import run_of
from holdfast.store.verbs import Verb

NOTE_MAX_CHARS = 1000
"""How much a row of the journal says about a fork, which may have many edits."""


class Operators(Noun):
    async def send_signal(self, signal: NewSignal) -> Answer:
        """Send a signal. Return ACCEPTED, DUPLICATE if a signal with its key was sent before, or FENCED if the run has
        ended. Raise UnknownRun if there is no such run."""
        return Answer.ACCEPTED if await self._send_signal(signal) else await self._not_sent(signal)

    @statement
    async def _send_signal(self, session: Session, signal: NewSignal) -> int:
        return await session.run(Verb.send_signal, signal.run_id, signal.name, signal.key, signal.payload)

    @look
    async def _not_sent(self, session: Session, signal: NewSignal) -> Answer:
        """Return why the store did not accept the signal."""
        if await session.row(Verb.run, signal.run_id) is None:
            raise UnknownRun.of(signal.run_id)
        sent = await session.row(Verb.sent_before, signal.run_id, signal.name, signal.key)
        return Answer.FENCED if sent is None else Answer.DUPLICATE

    @transaction
    async def cancel_run(
        self, session: Session, run_id: str, actor: str, note: str, again: bool = False
    ) -> RunState:
        """Cancel a run that has done nothing yet at once. Send the signal `$cancel` to any other run. Return the run's
        state.

        A run gets the signal only once, unless the caller insists with `again`. Then it gets another one after its code
        has got the last one.
        """
        await cancel(session, await _known(session, run_id), self._cause(actor, note), again=again)
        return (await _known(session, run_id)).state

    @transaction
    async def hold(self, session: Session, run_id: str, actor: str, note: str) -> RunState:
        run = await _known(session, run_id)
        if run.state is not RunState.HELD:
            await hold(session, run, self._cause(actor, note))
        return RunState.HELD

    @transaction
    async def release(self, session: Session, run_id: str, actor: str, note: str) -> RunState:
        return await release(session, await _known(session, run_id), self._cause(actor, note))

    @transaction
    async def steer_undo(
        self, session: Session, run_id: str, act: str, n: int | None, actor: str, note: str
    ) -> RunState:
        """Ask a run that undoes itself, or is stuck while it does, to retry, skip or abandon an undo. A stuck run goes
        on."""
        await steer(session, await _known(session, run_id), act, n, self._cause(actor, note))
        return (await _known(session, run_id)).state

    @transaction
    async def retry_now(self, session: Session, run_id: str, actor: str) -> int:
        """Make the steps of a run that back off ready at once. Return how many."""
        return await retry_now(session, await _known(session, run_id), self._cause(actor))

    @transaction
    async def retry_run(self, session: Session, run_id: str, actor: str) -> str:
        """Start a run that goes on from where this one ended, and keeps what `retries.plan` says. Return its id. A
        second call returns the same id.

        Raise WrongState if the run has not ended, succeeded, was retried and its retry was retried too, is the child of
        a run that must be retried instead, or has a run below it that has not ended.
        """
        run = await _known(session, run_id)
        later = await retried_as(session, run)
        if later is not None:
            demand_retryable(run, later, await newest(session, run_id))
            return later.id
        return await retry_ended(session, run, self._cause(actor))

    @transaction
    async def fork_run(self, session: Session, run_id: str, request: ForkRequest, actor: str) -> Forked:
        """Start a run with the history of this one, up to the point that the request names, and with what it edits. Raise
        UnknownRun, WrongState or Conflict, and change nothing, if there can be none."""
        return await make_fork(session, await _known(session, run_id), request, self._cause(actor))

    def _cause(self, actor: str, note: str = "") -> Cause:
        return Cause(actor, note, self._database.environment.new_id)


class Cause(NamedTuple):
    """Who acts on a run, and why."""

    actor: str
    note: str
    new_id: Callable[[], str]
    act: str | None = None
    """The act on many runs that this is a part of."""

    def said(self, words: str) -> str:
        """Return what the journal says: these words, and the act."""
        words = words[:NOTE_MAX_CHARS]
        if self.act is None:
            return words
        return f"{words} (act {self.act})" if words else f"act {self.act}"

    @property
    def because(self) -> str:
        """The note, after other words."""
        return f": {self.note}" if self.note else ""

    async def journal(
        self, session: Session, verb: str, run_id: str, words: str, n: int | None = None
    ) -> None:
        await session.each(Verb.journal_add, [entry(self.actor, verb, run_id, n, self.said(words))])


# Each of these acts on one run, whose row is locked. If it raises, it has changed nothing.


async def cancel(session: Session, run: RunRow, cause: Cause, *, again: bool) -> None:
    """Cancel a run, or ask it to cancel itself. If it was asked before, it only goes on."""
    if await session.run(Verb.cancel_pending, run.id, cause.note):
        await cause.journal(session, "cancel", run.id, cause.note)
        if run.parent_id is not None and run.parent_n is not None:
            outcome = ChildOutcome(
                run.parent_id, run.parent_n, StepState.FAILED, None, cancelled_error(run.id)
            )
            await session.each(Verb.end_child_steps, [outcome])
        return
    if run.state is RunState.HELD:
        await release(session, run, cause._replace(note="cancelled while held"))
    payload = json.dumps({"actor": cause.actor, "note": cause.note}).encode()
    key = cancel_key(await session.value(Verb.heard_cancels, run.id), again=again)
    if await session.run(Verb.send_signal, run.id, CANCEL, key, payload):
        await cause.journal(session, "cancel", run.id, cause.note)
    await session.run(Verb.unstick_quarantined, [run.id])


async def hold(session: Session, run: RunRow, cause: Cause) -> None:
    if not await session.run(Verb.hold, run.id, cause.note):
        raise WrongState(f"run {run.id!r} {in_words(run.state)}: only a run that has not ended can be held")
    await cause.journal(session, "hold", run.id, cause.note)


async def release(session: Session, run: RunRow, cause: Cause) -> RunState:
    state = await session.value(Verb.release, run.id)
    if state is None:
        raise WrongState(f"run {run.id!r} {in_words(run.state)}: only a held run can be released")
    await cause.journal(session, "release", run.id, cause.note)
    if state == RunState.UNDOING:  # in the same commit, because nothing else would wake the run
        await _send_undo(session, run.id, "resume", None, cause)
    return RunState(state)


async def steer(session: Session, run: RunRow, act: str, n: int | None, cause: Cause) -> None:
    demand_undoing(run, act)
    await session.run(Verb.unstick, run.id)
    await session.run(Verb.clear_stuck, run.id)
    await _send_undo(session, run.id, act, n, cause)


async def _send_undo(session: Session, run_id: str, act: str, n: int | None, cause: Cause) -> None:
    payload = json.dumps({"act": act, "n": n, "actor": cause.actor, "note": cause.note}).encode()
    await session.run(Verb.send_signal, run_id, UNDO, cause.new_id(), payload)
    await cause.journal(session, act, run_id, cause.note, n)


async def retry_now(session: Session, run: RunRow, cause: Cause) -> int:
    count = await session.run(Verb.retry_now, run.id)
    if count:
        await cause.journal(session, "retry", run.id, f"{count} steps ready at once{cause.because}")
    return count


async def retry_ended(session: Session, run: RunRow, cause: Cause) -> str:
    """Start the retry of a run that has none, and return its id."""
    demand_retryable(run, None, None)
    await demand_whole(session, run)
    parent = await newest(session, run.parent_id)
    demand_alone(run, parent, await session.value(Verb.live_below, run.id))
    new_id = await retry(session, run)
    await cause.journal(session, "retry", run.id, f"as {new_id}{cause.because}")
    return new_id


async def make_fork(session: Session, run: RunRow, request: ForkRequest, cause: Cause) -> Forked:
    await demand_whole(session, run)
    made = await fork(session, run, request)
    edits = ["another input"] if request.input is not None else []
    edits += [f"another result of {key}" for key in request.results]
    start = f" from {request.start}" if request.start is not None else ""
    words = start + (f" with {', '.join(edits)}" if edits else "")
    await cause.journal(session, "fork", run.id, f"as {made.id}{words}{cause.because}")
    await cause.journal(session, "fork", made.id, f"of {run.id}{words}{cause.because}")
    return made


def demand_undoing(run: RunRow, act: str) -> None:
    """Raise unless the run undoes itself, or is held or stuck while it does."""
    if run.state is RunState.STUCK and run.resume is RunState.RUNNING:
        raise WrongState(
            f"run {run.id!r} waits for a step in quarantine: there is no undo to {act}; "
            f"`holdfast why {run.id}` names the fingerprint to release, skip or fail"
        )
    if RunState.UNDOING not in {run.state, run.resume} and run.state is not RunState.STUCK:
        raise WrongState(f"run {run.id!r} {in_words(run.state)}: there is no undo to {act}")


def cancel_key(heard: int, *, again: bool) -> str:
    """Return the key of a request to cancel a run whose code has got `heard` requests.

    All requests have the same key, so that a second one does not disturb code that is cleaning up. Only a caller who
    insists with `again` gets a new key, once the code has got the last request.
    """
    return f"{CANCEL_KEY}#{heard + 1}" if again and heard else CANCEL_KEY


async def _known(session: Session, run_id: str) -> RunRow:
    """Return the run, and lock its row for the rest of the transaction. Raise UnknownRun if there is none."""
    row = await session.row(Verb.lock_run, run_id)
    if row is None:
        raise UnknownRun.of(run_id)
    return run_of(row)
