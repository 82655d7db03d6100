"""Callbacks: which ones wait, for those who look; and for those who end them: other systems by the address that a step handed on,
operators by the run's id.

Python (`hf.callbacks`), the command line and the server all ask a `CallbackDesk`. Whoever answers, the answer is checked by
the form that was recorded with the callback. An address that nobody has signed, and one whose run is gone, are unknown alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, Raw

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.access.callbacks import issue_time, request_of
from holdfast.actor import Actor, Via
from holdfast.codec.schema import check, filled
from holdfast.codec.secret import demand_sealed
from holdfast.desk.known_runs import KnownRuns
from holdfast.desk.opened import Opened, ring
from holdfast.errors import InvalidInput, StepFailed, StoreSealed, UnknownCallback, UnknownRun
from holdfast.keyring import KEYS, sealed_by
from holdfast.model import StepKind, StepRow, StepState, call_key, callback_number, request_key
from holdfast.namespaces import shown, stored
from holdfast.store.bell import Bell
from holdfast.store.callbacks import CallbackFilter, GivenResult, WaitingCallback
from holdfast.store.store import Store
from holdfast.wire import answers
from holdfast.wire.cursors import cursor_text, filter_digest, read_cursor
from holdfast.wire.paths import path_of
from holdfast.wire.requests import NOTE_MAX, CallbackError, CallbackResult

ANYBODY = "callback"
"""Who stands in the journal for another system, which has only the address."""
LIST_MAX = 200
"""How many callbacks a page of a list has at most."""
N_MAX = 2**31 - 1


class CallbacksAsked(msgspec.Struct, kw_only=True):
    """Which callbacks are asked for. A callback must fit everything that is given."""

    run: str | None = None
    workflow: str | None = None
    step: str | None = None
    """The names of the workflow and of the step, or the last parts of them."""
    cursor: str | None = None
    """`next` of the page before."""
    limit: int = LIST_MAX


class CallbackDesk(Protocol):
    """What may be asked and done about callbacks. `run` is an id as the identity sees it, and `step` a key, a name or a number.
    Without it, the only callback that the run waits for is meant."""

    async def list(self, who: Identity, where: CallbacksAsked) -> answers.Callbacks: ...
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

    # --- reading ------------------------------------------------------------------------------------------------------

    async def list(self, who: Identity, where: CallbacksAsked) -> answers.Callbacks:
        """Return a page of the callbacks that wait, oldest first. Those of one run come in the order of its steps."""
        who.demand(Act.READ)
        digest = filter_digest([where.run, where.workflow, where.step, who.namespace])
        limit = min(where.limit, LIST_MAX)
        meant = CallbackFilter(
            namespace=who.namespace,
            workflow=_maybe_text(where.workflow, "workflow"),
            step=_maybe_text(where.step, "step"),
            limit=limit + 1,
        )
        if where.cursor is not None:
            meant.after = _place(who, where.cursor, digest)
        found = await self._waiting(who, where.run, meant)
        page = found[:limit]
        more = len(found) > limit
        return answers.Callbacks(
            [_shown(who, one) for one in page], _cursor(who, page[-1], digest) if more else None
        )

    async def _waiting(
        self, who: Identity, run: str | None, meant: CallbackFilter
    ) -> Sequence[WaitingCallback]:
        if run is None:
            return await self._store.callbacks.waiting_callbacks(meant)
        try:
            run_id = await self._known.id(who, run)
        except UnknownRun:
            return []
        return await self._store.callbacks.waiting_callbacks_of(run_id, meant)

    # --- answering ----------------------------------------------------------------------------------------------------

    async def answer(
        self, who: Identity, run: str, step: str | None, result: CallbackResult, note: str = ""
    ) -> answers.CalledBack:
        """End a callback of a run, in place of the other system. Giving the same answer again changes nothing."""
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
            raise InvalidInput('give exactly one of the two: {"output": …}, or {"error": {"message": …}}')
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
        demand_sealed(bytes(result.output), "output")
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


# --- what is shown ----------------------------------------------------------------------------------------------------


def _shown(who: Identity, row: WaitingCallback) -> answers.Callback:
    run = shown(who.namespace, row.run_id)
    return answers.Callback(
        namespace=row.namespace,
        run=run,
        run_ref=path_of(run),
        workflow=shown(who.namespace, row.workflow),
        n=row.n,
        key=row.key,
        step=shown(who.namespace, row.name),
        issued_at=datetime.fromtimestamp(row.issued_at, UTC),
        since=_moment(row.requested_at),
        expires_at=_moment(row.complete_by),
        expires_s=row.timeout_s,
        number=callback_number(row.key),
        of=row.attempts_max,
    )


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _maybe_text(text: str | None, what: str) -> str | None:
    return None if text is None else codec.stored_text(text, what)


def _cursor(who: Identity, row: WaitingCallback, digest: str) -> str:
    """Return where the next page begins. An id may have spaces, and the number after the last one is that of the step."""
    return cursor_text(row.issued_at, f"{shown(who.namespace, row.run_id)} {row.n}", digest)


def _place(who: Identity, cursor: str, digest: str) -> tuple[float, str, int]:
    found = read_cursor(cursor, digest)
    run, _, n = ("", "", "") if found is None else found[1].rpartition(" ")
    if found is None or not (n.isascii() and n.isdigit()) or len(n) > len(str(N_MAX)) or int(n) > N_MAX:
        raise InvalidInput("cursor: this is no cursor of this list")
    return found[0], stored(who.namespace, run), int(n)


# --- Python -----------------------------------------------------------------------------------------------------------


class Callbacks:
    """`hf.callbacks`: which callbacks wait, and how to end them in place of the other system."""

    def __init__(self, desk: Callable[[], CallbackDesk], who: Identity) -> None:
        self._opened, self._who = desk, who

    async def list(
        self,
        *,
        run: str | None = None,
        workflow: str | None = None,
        step: str | None = None,
        limit: int = LIST_MAX,
    ) -> Sequence[answers.Callback]:
        """Return callbacks that wait, oldest first: all of them, or those of a run, a workflow or a step. A name may be the last
        part of it. The addresses stand in no answer."""
        where = CallbacksAsked(run=run, workflow=workflow, step=step)
        found: list[answers.Callback] = []
        while len(found) < limit:
            where.limit = min(LIST_MAX, limit - len(found))
            page = await self._opened().list(self._who, where)
            found += page.items
            if page.next is None:
                break
            where.cursor = page.next
        return found

    async def answer(
        self, run_id: str, value: Any, *, step: str | None = None, note: str = ""
    ) -> answers.CalledBack:
        """End a callback of a run with this result. `step` is the key, name or number of the step, if the run waits for
        several. Giving the same answer again changes nothing. Raise InvalidInput if it does not fit the step's result,
        and Gone if another answer came first, or nobody waits for it any more."""
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
