"""What callers and operators do to a run. The journal records what operators do."""

from __future__ import annotations

import json

from holdfast.errors import UnknownRun, WrongState
from holdfast.model import CANCEL, UNDO, NewSignal, RunRow, RunState, StepState
from holdfast.store.answers import Answer
from holdfast.store.children import CANCEL_KEY, ChildOutcome, cancelled_error
from holdfast.store.database import Part, Session, look, statement, transaction
from holdfast.store.forks import Forked, ForkRequest, fork
from holdfast.store.retries import demand_alone, demand_retryable, newest, retried_as, retry
from holdfast.store.rows import run_of
from holdfast.store.verbs import Verb

NOTE_MAX_CHARS = 1000
"""How much a row of the journal says about a fork, which may have many edits."""


class Operators(Part):
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
        run = await _known(session, run_id)
        if await session.run(Verb.cancel_pending, run_id, note):
            await _journal(session, actor, "cancel", run_id, note)
            if run.parent_id is not None and run.parent_n is not None:
                outcome = ChildOutcome(
                    run.parent_id, run.parent_n, StepState.FAILED, None, cancelled_error(run_id)
                )
                await session.each(Verb.end_child_steps, [outcome])
            return RunState.CANCELLED
        if run.state is RunState.HELD:
            await self._release(session, run, actor, "cancelled while held")
        payload = json.dumps({"actor": actor, "note": note}).encode()
        key = cancel_key(await session.value(Verb.heard_cancels, run_id), again=again)
        if await session.run(Verb.send_signal, run_id, CANCEL, key, payload):
            await _journal(session, actor, "cancel", run_id, note)
        await session.run(Verb.unstick_quarantined, [run_id])
        return (await _known(session, run_id)).state

    @transaction
    async def hold(self, session: Session, run_id: str, actor: str, note: str) -> RunState:
        run = await _known(session, run_id)
        if await session.run(Verb.hold, run_id, note):
            await _journal(session, actor, "hold", run_id, note)
        elif run.state is not RunState.HELD:
            raise WrongState(f"run {run_id!r} is {run.state}: only a run that has not ended can be held")
        return RunState.HELD

    @transaction
    async def release(self, session: Session, run_id: str, actor: str, note: str) -> RunState:
        return await self._release(session, await _known(session, run_id), actor, note)

    async def _release(self, session: Session, run: RunRow, actor: str, note: str) -> RunState:
        state = await session.value(Verb.release, run.id)
        if state is None:
            raise WrongState(f"run {run.id!r} is {run.state}: only a held run can be released")
        await _journal(session, actor, "release", run.id, note)
        if state == RunState.UNDOING:  # in the same commit, because nothing else would wake the run
            await self._steer(session, run.id, "resume", None, actor, note)
        return RunState(state)

    @transaction
    async def steer_undo(
        self, session: Session, run_id: str, act: str, n: int | None, actor: str, note: str
    ) -> RunState:
        """Ask a run that undoes itself, or is stuck while it does, to retry, skip or abandon an undo. A stuck run goes
        on."""
        demand_undoing(await _known(session, run_id), act)
        await session.run(Verb.unstick, run_id)
        await session.run(Verb.clear_stuck, run_id)
        await self._steer(session, run_id, act, n, actor, note)
        return (await _known(session, run_id)).state

    async def _steer(
        self, session: Session, run_id: str, act: str, n: int | None, actor: str, note: str
    ) -> None:
        payload = json.dumps({"act": act, "n": n, "actor": actor, "note": note}).encode()
        await session.run(Verb.send_signal, run_id, UNDO, self._database.environment.new_id(), payload)
        await _journal(session, actor, act, run_id, note, n)

    @transaction
    async def retry_now(self, session: Session, run_id: str, actor: str) -> int:
        """Make the steps of a run that back off ready at once. Return how many."""
        await _known(session, run_id)
        count = await session.run(Verb.retry_now, run_id)
        if count:
            await _journal(session, actor, "retry", run_id, f"{count} steps ready at once")
        return count

    @transaction
    async def retry_run(self, session: Session, run_id: str, actor: str) -> str:
        """Start a run that goes on from where this one ended, and keeps what `retries.plan` says. Return its id. A
        second call returns the same id.

        Raise WrongState if the run has not ended, succeeded, was retried and its retry was retried too, is the child of
        a run that must be retried instead, or has a run below it that has not ended.
        """
        run = await _known(session, run_id)
        later = await retried_as(session, run)
        demand_retryable(run, later, await newest(session, run_id))
        if later is not None:
            return later.id
        parent = await newest(session, run.parent_id)
        demand_alone(run, parent, await session.value(Verb.live_below, run_id))
        new_id = await retry(session, run)
        await _journal(session, actor, "retry", run_id, f"as {new_id}")
        return new_id

    @transaction
    async def fork_run(self, session: Session, run_id: str, request: ForkRequest, actor: str) -> Forked:
        """Start a run with the history of this one, up to the point that the request names, and with what it edits. Raise
        UnknownRun, WrongState or Conflict, and change nothing, if there can be none."""
        made = await fork(session, await _known(session, run_id), request)
        edits = ["another input"] if request.input is not None else []
        edits += [f"another result of {key}" for key in request.results]
        start = f" from {request.start}" if request.start is not None else ""
        words = start + (f" with {', '.join(edits)}" if edits else "")
        await _journal(session, actor, "fork", run_id, f"as {made.id}{words}"[:NOTE_MAX_CHARS])
        await _journal(session, actor, "fork", made.id, f"of {run_id}{words}"[:NOTE_MAX_CHARS])
        return made


def demand_undoing(run: RunRow, act: str) -> None:
    """Raise unless the run undoes itself, or is held or stuck while it does."""
    if run.state is RunState.STUCK and run.resume is RunState.RUNNING:
        raise WrongState(
            f"run {run.id!r} waits for a step in quarantine: there is no undo to {act}; "
            f"`holdfast why {run.id}` names the fingerprint to release, skip or fail"
        )
    if RunState.UNDOING not in {run.state, run.resume} and run.state is not RunState.STUCK:
        raise WrongState(f"run {run.id!r} is {run.state}: there is no undo to {act}")


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


async def _journal(
    session: Session, actor: str, verb: str, run_id: str, note: str, n: int | None = None
) -> None:
    await session.each(Verb.journal_add, [(actor, verb, run_id, n, note)])
