"""Callbacks, for those who end them: other systems by the address that a step handed on, operators by the run's id.

Python (`hf.callbacks`), the command line and the server all ask a `CallbackDesk`. Whoever answers, the answer is checked by
the form that was recorded with the callback. An address that nobody has signed, and one whose run is gone, are unknown alike.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.access.callbacks import issue_time, request_of
from holdfast.actor import Actor, Via
from holdfast.codec.schema import check, filled
from holdfast.desk.known_runs import KnownRuns
from holdfast.desk.opened import Opened, ring
from holdfast.errors import InvalidInput, StepFailed, StoreSealed, UnknownCallback
from holdfast.keyring import KEYS, sealed_by
from holdfast.model import StepKind, StepRow, StepState, call_key, request_key
from holdfast.namespaces import shown
from holdfast.store.bell import Bell
from holdfast.store.callbacks import GivenResult
from holdfast.store.store import Store
from holdfast.wire import answers
from holdfast.wire.requests import NOTE_MAX, CallbackError, CallbackResult

ANYBODY = "callback"
"""Who stands in the journal for another system, which has only the address."""


class CallbackDesk(Protocol):
    """What operators may do about callbacks. `run` is an id as the identity sees it, and `step` a key, a name or a number.
    Without it, the only callback that the run waits for is meant."""

    async def answer(
        self, who: Identity, run: str, step: str | None, result: CallbackResult, note: str = ""
    ) -> answers.CalledBack: ...


class LocalCallbackDesk:
    """A callback desk that works on the store."""

    def __init__(self, hf: Opened, known: KnownRuns) -> None:
        self._hf, self._known = hf, known
        self._keys: dict[str, bytes] = {}

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def answer(
        self, who: Identity, run: str, step: str | None, result: CallbackResult, note: str = ""
    ) -> answers.CalledBack:
        """End a callback of a run, in place of the other system. The same answer again is the same answer."""
        who.demand(Act.STEER)
        stored = await self._known.id(who, run)
        row = _chosen(shown(who.namespace, stored), await self._known.steps(stored), step)
        note = codec.stored_text(note, "note", NOTE_MAX)
        return await self._answer(row, result, who.actor, note)

    async def _answer(
        self, row: StepRow, result: CallbackResult, actor: str, note: str = ""
    ) -> answers.CalledBack:
        output, error = self._checked(row, result)
        given = GivenResult(output, error, actor, note)
        is_new = await self._store.callbacks.answer(row.run_id, row.n, given)
        if is_new:
            ring(self._hf, Bell.OUTCOMES, Bell.RUNS)
        return answers.CalledBack(is_new)

    def _checked(self, row: StepRow, result: CallbackResult) -> tuple[bytes | None, str | None]:
        """Return the result as it is recorded. Raise InvalidInput, with the place, if it does not fit."""
        if (result.output is UNSET) is (result.error is UNSET):
            raise InvalidInput('give one of both: {"output": …}, or {"error": {"message": …}}')
        if isinstance(result.error, CallbackError):
            said = codec.stored_text(result.error.message, "error: message", NOTE_MAX)
            kind = codec.stored_text(result.error.type, "error: type")
            failed = StepFailed(f"{kind}: {said}", error_type=kind, step=row.name)
            return None, codec.encode_error(failed, step=row.name)
        assert isinstance(result.output, Raw)
        raw = row.input or b"{}"
        if sealed_by(raw) is not None:
            raise StoreSealed(
                f"the payloads of this store are sealed, and this process has no keys: set {KEYS}, or ask a process that has them"
            )
        form, value = msgspec.json.decode(raw), codec.read_json(bytes(result.output), "output")
        check(value, form, "output")
        made, most = msgspec.json.encode(filled(value, form)), self._hf.config.payload_max_bytes
        if len(made) > most:
            raise InvalidInput(
                f"output: {len(made):,} bytes are more than the {most:,} that a result may have"
            )
        return made, None

    # --- addresses ------------------------------------------------------------------------------------------------------

    async def demand(self, token: str) -> StepRow:
        """Return the callback that an address is for. Raise UnknownCallback if it is no address."""
        if not self._keys:
            self._keys = await self._store.signing_keys.signing_keys()
        named = request_of(self._keys, token)
        if named is not None:
            rows = await self._store.reads.steps(named.run_id, after=named.n - 1, limit=2)
            if len(rows) == 2 and rows[0].n == named.n and issue_time(rows[0].issued_at) == named.issued_at:
                request, row = rows
                if row.kind is StepKind.CALLBACK and request.key == request_key(row.key):
                    return row
        raise UnknownCallback("this address is not good any more, or never was")

    async def answer_at(self, row: StepRow, result: CallbackResult, request: str = "") -> answers.CalledBack:
        """End the callback that an address is for, in a request of this id."""
        return await self._answer(row, result, Actor(ANYBODY, Via.LINK, request))

    async def extend(self, row: StepRow) -> answers.Extended:
        """Let the time of a callback begin anew, because the other system still works on it."""
        until = await self._store.callbacks.extend(row.run_id, row.n)
        return answers.Extended(None if until is None else datetime.fromtimestamp(until, UTC))


def _chosen(run: str, steps: list[StepRow], step: str | None) -> StepRow:
    """Return the callback that somebody means: one that waits, or else the newest of those that have ended."""
    found = [row for row in steps if row.kind is StepKind.CALLBACK and (step is None or _is_named(row, step))]
    waiting = [row for row in found if row.state is StepState.WAITING]
    if len(waiting) > 1:
        keys = ", ".join(row.key for row in waiting[:10])
        raise InvalidInput(
            f"step: run {run!r} waits for {len(waiting)} callbacks: name one of them by its key: {keys}"
        )
    if not found:
        of = "" if step is None else f" of {step!r}"
        raise UnknownCallback(f"run {run!r} has no callback{of}: `holdfast show {run}` lists its steps")
    return (waiting or found)[-1]


def _is_named(row: StepRow, step: str) -> bool:
    return step in {row.key, call_key(row.key), row.name, str(row.n)}


class Callbacks:
    """`hf.callbacks`: end callbacks in place of the other system."""

    def __init__(self, desk: Callable[[], CallbackDesk], who: Identity) -> None:
        self._opened, self._who = desk, who

    async def answer(
        self, run_id: str, value: Any, *, step: str | None = None, note: str = ""
    ) -> answers.CalledBack:
        """End a callback of a run with this result. `step` is the key, name or number of the step, if the run waits for
        several. The same answer again is the same answer. Raise InvalidInput if it does not fit the step's result, and Gone
        if another answer came first, or nobody waits for it any more."""
        result = CallbackResult(output=Raw(codec.encode_open(value, "output")))
        return await self._opened().answer(self._who, run_id, step, result, note)

    async def fail(
        self,
        run_id: str,
        message: str,
        *,
        error_type: str = "Error",
        step: str | None = None,
        note: str = "",
    ) -> answers.CalledBack:
        """End a callback of a run with an error. Its code gets a StepFailed that has this `error_type`."""
        result = CallbackResult(error=CallbackError(message=message, type=error_type))
        return await self._opened().answer(self._who, run_id, step, result, note)
