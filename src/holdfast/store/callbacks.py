"""Callbacks: steps that another system ends, under their fence, by the transition `answer`.

A callback's row is issued in the commit that issues its request, as the next step of the run. Its time (`complete_by`) begins
when the run's code has got the end of the request. An answer may come before that. Whoever ends the row has locked it:
whoever answers, the leader when its time is over, or the hop of a run that gives it up. So only one of them ends it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast import codec
from holdfast.access.callbacks import callback_path
from holdfast.actor import entry
from holdfast.errors import Gone, StepTimeout, UnknownCallback
from holdfast.model import Ending, StepState
from holdfast.store.database import Noun, Row, Session, leading, long_look, look, statement, transaction
from holdfast.store.settings import PUBLIC_URL
from holdfast.store.signing_keys import FIRST
from holdfast.store.verbs import Verb


class GivenResult(NamedTuple):
    """A result as another system gives it: an output that fits the form, or an error as it is recorded."""

    output: bytes | None
    error: str | None
    actor: str
    note: str = ""

    @property
    def state(self) -> StepState:
        return StepState.SUCCEEDED if self.error is None else StepState.FAILED


class CallbackFilter(msgspec.Struct, kw_only=True):
    """Which callbacks are meant. A callback must fit everything that is given."""

    namespace: str | None = None
    """None: all namespaces."""
    workflow: str | None = None
    step: str | None = None
    """The names of the workflow and of the step, or the last parts of them."""
    after: tuple[float, str, int] = (0.0, "", 0)
    """A cursor: `place` of the last one that the caller has seen."""
    limit: int = 50


class WaitingCallback(NamedTuple):
    """A callback that waits."""

    run_id: str
    n: int
    key: str
    name: str
    namespace: str
    workflow: str
    issued_at: float
    request: StepState | None
    """The state of the step that asks for it. None if there is none: somebody wrote to the database by hand."""
    requested_at: float | None
    """When that step ended. None: nobody has made the request yet."""
    complete_by: float | None
    timeout_s: float | None
    attempts_max: int
    """How often it may be asked for."""

    @property
    def place(self) -> tuple[float, str, int]:
        return self.issued_at, self.run_id, self.n


class CallbackReads(Noun):
    @long_look
    async def waiting_callbacks(self, session: Session, where: CallbackFilter) -> list[WaitingCallback]:
        """Return callbacks that wait, oldest first. The whole store is read one namespace at a time, from one index range
        each."""
        spaces = [where.namespace]
        if where.namespace is None:
            spaces = [row[0] for row in await session.rows(Verb.namespaces)]
        found: list[WaitingCallback] = []
        for space in spaces:
            asked = (where.workflow, where.step, where.limit, space, *where.after)
            found += [_waiting(row) for row in await session.rows(Verb.waiting_callbacks, *asked)]
        return sorted(found, key=lambda one: one.place)[: where.limit]

    @look
    async def waiting_callbacks_of(
        self, session: Session, run_id: str, where: CallbackFilter
    ) -> list[WaitingCallback]:
        """Return callbacks that a run waits for, in the order of its steps. Of the cursor, only the number of the step counts."""
        asked = (where.workflow, where.step, where.limit, run_id, where.after[2])
        return [_waiting(row) for row in await session.rows(Verb.waiting_callbacks_of, *asked)]


class AgentCallbacks(Noun):
    async def address(self, run_id: str, n: int, issued_at: float, secret: bytes) -> str:
        """Return where another system posts the result for the request `n`. Empty if nobody has said where servers are
        reached. `secret` becomes the first signing key, if there is none."""
        public_url, keys = await self._signing()
        if public_url is None:
            return ""
        if not keys:
            await self._make_key(secret)
            keys = (await self._signing())[1]
        return public_url + callback_path(keys, run_id, n, issued_at)

    @look
    async def _signing(self, session: Session) -> tuple[str | None, dict[str, bytes]]:
        found: str | None = await session.value(Verb.setting, PUBLIC_URL)
        return found, {row[0]: bytes(row[1]) for row in await session.rows(Verb.signing_keys)}

    @statement
    async def _make_key(self, session: Session, secret: bytes) -> int:
        return await session.run(Verb.add_first_signing_key, FIRST, secret)


class LeaderCallbacks(Noun):
    @look
    async def next_callback(self, session: Session) -> float | None:
        """Return when the time of a callback is over next."""
        at: float | None = await session.value(Verb.next_callback)
        return at

    @leading(0)
    async def expire_callbacks(self, session: Session, limit: int) -> int:
        """End the callbacks that nobody has answered in time. Return how many."""
        found = sorted(await session.rows(Verb.overdue_callbacks, limit), key=lambda row: (row[0], row[1]))
        late = [
            (run_id, n, fence, StepState.FAILED, None, _late(name, timeout_s))
            for run_id, n, fence, name, timeout_s in found
        ]
        await session.each(Verb.answer_steps, late)
        entries = [entry("supervisor", "expire", row[0], row[1], "no callback came in time") for row in found]
        await session.each(Verb.journal_add, entries)
        return len(found)


class Callbacks(CallbackReads, AgentCallbacks, LeaderCallbacks):
    @transaction
    async def answer(self, session: Session, run_id: str, n: int, given: GivenResult) -> bool:
        """End the callback `n` of a run. False if it had the same answer before. Raise UnknownCallback if there is none, and
        Gone if another answer came first or nobody waits for it any more."""
        row = await session.row(Verb.lock_callback, run_id, n)
        if row is None:
            raise UnknownCallback(f"run {run_id!r} has no such callback")
        fence, state, complete_by, output, error, name = row
        if state == StepState.WAITING and not await _is_over(session, complete_by):
            await session.each(
                Verb.answer_steps, [(run_id, n, fence, given.state, given.output, given.error)]
            )
            said = "succeeded" if given.error is None else "failed"
            note = f"the callback of {name} said that it {said}{f': {given.note}' if given.note else ''}"
            await session.each(Verb.journal_add, [entry(given.actor, "answer", run_id, n, note)])
            return True
        if state == given.state:
            was_same = (
                error == given.error
                if given.output is None or output is None
                else self._database.is_same(bytes(output), given.output)
            )
            if was_same:
                return False
        raise _gone(state)

    @transaction
    async def extend(self, session: Session, run_id: str, n: int) -> float | None:
        """Let the time of a callback begin anew. Return when it is over; None if it has no end, or has not begun."""
        row = await session.row(Verb.lock_callback, run_id, n)
        if row is None:
            raise UnknownCallback(f"run {run_id!r} has no such callback")
        fence, state, complete_by = row[:3]
        if state != StepState.WAITING or await _is_over(session, complete_by):
            raise _gone(state)
        await session.run(Verb.extend_callback, run_id, n, fence)
        until: float | None = (await session.row(Verb.lock_callback, run_id, n) or row)[2]
        return until


def _waiting(row: Row) -> WaitingCallback:
    found = WaitingCallback(*row)
    return found._replace(request=None if found.request is None else StepState(found.request))


async def _is_over(session: Session, complete_by: float | None) -> bool:
    return complete_by is not None and complete_by <= await session.now()


def _gone(state: str) -> Gone:
    if state == StepState.CANCELLED:
        return Gone("nobody waits for this callback any more: the run went on without it, or has ended")
    if state == StepState.WAITING:
        return Gone("this callback has expired")
    return Gone("this callback has ended before, with another answer or because it expired")


def _late(name: str, timeout_s: float) -> str:
    late = StepTimeout(f"no callback came within {timeout_s:g} s", step=name)
    return codec.encode_error(late, step=name, ending=Ending.TIMED_OUT, unsure=True)
