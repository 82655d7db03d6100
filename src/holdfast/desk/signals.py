"""Signals and updates, for callers: send them to a run, and see what was sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Protocol

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.codec.secret import demand_sealed
from holdfast.desk.known_runs import KnownRuns
from holdfast.desk.opened import Opened, ring
from holdfast.errors import (
    Conflict,
    DefinitionError,
    HoldfastError,
    InvalidInput,
    Refused,
    UnknownRun,
    UpdateFailed,
    UpdateTimeout,
    WrongState,
)
from holdfast.model import UPDATE_PREFIX, NewSignal, RunState, SignalRow, UpdateAnswer
from holdfast.store.answers import Answer, UpdateEnd
from holdfast.store.bell import Bell
from holdfast.store.store import Store
from holdfast.workflow import options
from holdfast.workflow.declaration import check_signal, check_update


class SignalDesk(Protocol):
    """What callers may send to a run. `run` is an id as the identity sees it, and `payload` is already encoded."""

    async def send(self, who: Identity, run: str, name: str, payload: bytes, key: str | None) -> bool: ...
    async def update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None, wait_s: float | None
    ) -> bytes: ...
    async def send_update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None
    ) -> SignalRow: ...
    async def list(self, who: Identity, run: str) -> list[SignalRow]: ...


class LocalSignalDesk:
    """A signal desk that works on the store."""

    def __init__(self, hf: Opened, known: KnownRuns, leaving: asyncio.Event) -> None:
        """`leaving` is set when the process is about to leave. Everybody who waits here gets an answer then."""
        self._hf, self._known, self._leaving = hf, known, leaving

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def send(self, who: Identity, run: str, name: str, payload: bytes, key: str | None) -> bool:
        """Send a signal whose value is already encoded. Return False if it was sent before under this key. Raise
        UnknownSignal if the run's workflow takes no such signal, by what its code declares, or InvalidInput if the
        value does not fit."""
        who.demand(Act.START)
        stored = await self._known.named(who, run)
        _demand_name(name, "the name of a signal")
        await self._hf.caller.declare()
        declared = await self._store.workflows.declared(stored)
        if declared is not None:
            check_signal(declared, stored, name, payload)
        demand_sealed(payload, f"signal {name}")
        key = codec.stored_text(key, "the key of a signal") if key else self._hf.environment.new_id()
        answer = await self._sent("signal", name, NewSignal(stored, name, key, payload))
        if answer is Answer.FENCED:
            raise WrongState(f"run {stored!r} has ended and takes no signals")
        ring(self._hf, Bell.OUTCOMES)
        return answer is Answer.ACCEPTED

    async def update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None, wait_s: float | None
    ) -> bytes:
        """Call an update whose value is already encoded, and return its answer. Raise UnknownUpdate if the run's
        workflow has no such update, by what its code declares, or InvalidInput if the value does not fit."""
        row = await self.send_update(who, run, name, payload, key)
        end = None if row.answer is None else UpdateEnd(row.id, row.answer, row.reply, None)
        if end is None:
            try:
                async with asyncio.timeout(wait_s):
                    end = await self._answered(row.id)
            except TimeoutError:
                raise UpdateTimeout(await self._no_answer(row, name)) from None
        return answer_of(end, row.run_id, name)

    async def send_update(
        self, who: Identity, run: str, name: str, payload: bytes, key: str | None
    ) -> SignalRow:
        """Record a call of an update, and return its row."""
        who.demand(Act.START)
        stored = await self._known.named(who, run)
        _demand_name(name, "the name of an update")
        await self._hf.caller.declare()
        declared = await self._store.workflows.declared(stored)
        if declared is not None:
            check_update(declared, stored, name, payload)
        demand_sealed(payload, f"update {name}")
        key = codec.stored_text(key, "the key of an update") if key else self._hf.environment.new_id()
        named = UPDATE_PREFIX + name
        answer = await self._sent("update", name, NewSignal(stored, named, key, payload))
        row = await self._store.reads.sent_update(stored, named, key)
        if row is None:
            ended = f"run {stored!r} has ended and serves no updates"
            raise WrongState(ended) if answer is Answer.FENCED else UnknownRun.of(stored)
        if answer is not Answer.ACCEPTED and not codec.is_same_json(row.payload, payload):
            raise Conflict(
                f"the update {name!r} of run {stored!r} was called with another value under the key {key!r}: "
                "a new call needs a new key"
            )
        ring(self._hf, Bell.OUTCOMES)
        return row

    async def _sent(self, what: str, name: str, signal: NewSignal) -> Answer:
        spans = self._hf.caller.spans
        if spans is None:
            return await self._store.operators.send_signal(signal)
        traces = await self._store.agents.run_traces([signal.run_id])
        with spans.sending(f"{what} {name}", {"holdfast.run": signal.run_id}, list(traces.values())):
            return await self._store.operators.send_signal(signal)

    async def _answered(self, id: int) -> UpdateEnd:
        """Wait for the answer to an update. Raise TimeoutError if this process leaves meanwhile."""
        watcher = self._hf.caller.watch_update(id)
        leave: asyncio.Future[Any] = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait([watcher, leave], return_when=asyncio.FIRST_COMPLETED)
            if not watcher.done():
                raise TimeoutError
            if watcher.cancelled():
                raise HoldfastError(
                    "this Holdfast was closed while this call waited for the answer to an update"
                )
            return watcher.result()
        finally:
            leave.cancel()
            watcher.cancel()

    async def _no_answer(self, row: SignalRow, name: str) -> str:
        """Say why an update has no answer yet, and what to do."""
        run = await self._store.reads.run(row.run_id)
        state = "gone" if run is None else run.state
        what = f"the update {name!r} of run {row.run_id!r} is recorded under the key {row.key!r} and has no answer yet"
        if state == RunState.HELD:
            return f"{what}: the run is held; the update is answered once `holdfast release {row.run_id}` lets it go on"
        return f"{what}: the run is {state}, and `holdfast why {row.run_id}` says what it waits for; call again with this key"

    async def list(self, who: Identity, run: str) -> list[SignalRow]:
        """Return what was sent to the run: signals, updates, requests to cancel."""
        who.demand(Act.READ)
        return await self._store.reads.signals(await self._known.id(who, run))


def _demand_name(name: str, what: str) -> None:
    try:
        options.text(name, what)
    except DefinitionError as wrong:
        raise InvalidInput(str(wrong)) from None


def answer_of(end: UpdateEnd, run_id: str, name: str) -> bytes:
    """Return what an update returned, or raise what it raised."""
    if end.answer is None:
        if end.state == RunState.STUCK:
            raise UpdateFailed(
                f"run {run_id!r} is stuck while it undoes itself, and serves no updates any more",
                run_id=run_id,
            )
        state = "is gone" if end.state is None else f"has ended ({end.state})"
        raise UpdateFailed(f"run {run_id!r} {state} and did not answer the update {name!r}", run_id=run_id)
    raw = end.reply or b"null"
    if end.answer == UpdateAnswer.RETURNED:
        return raw
    error = raw.decode()
    original, known = codec.original_error(error), json.loads(error)
    if end.answer == UpdateAnswer.REFUSED:
        refusal = known.get("message") or f"run {run_id!r} refuses the update {name!r}"
        raise Refused(refusal) from None if original is None else original.__cause__
    if isinstance(original, UpdateFailed):  # it was not served to its end
        raise UpdateFailed(str(original), run_id=run_id)
    message = f"the update {name!r} of run {run_id!r} failed: {codec.describe_error(error)}"
    raise UpdateFailed(message, run_id=run_id, error_type=known.get("type", "")) from original
