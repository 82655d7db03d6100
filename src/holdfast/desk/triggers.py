"""Composed triggers and their occasions, for callers and operators: what waits for what, and since when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

import msgspec

from holdfast.access import Act, Identity
from holdfast.codec import stored_text
from holdfast.codec.schema import resolved
from holdfast.desk.opened import Opened, ring
from holdfast.errors import InvalidInput, UnknownOccasion
from holdfast.model import DEFAULT_NAMESPACE, ComposedRow, OccasionState
from holdfast.namespaces import shown, stored
from holdfast.occasions import counted, missing, read_composition, words
from holdfast.store.bell import Bell
from holdfast.store.occasions import SeenComposed, SeenOccasion
from holdfast.store.store import Store
from holdfast.wire.paths import path_of
from holdfast.wire.triggers import Arrived, Occasion, Trigger

LIST_MAX = 500


class TriggerDesk(Protocol):
    """What callers and operators may ask about composed triggers."""

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[Trigger]: ...
    async def occasions(
        self,
        who: Identity,
        trigger: str | None = None,
        state: str | None = None,
        before: float = 1e11,
        limit: int = 50,
    ) -> Sequence[Occasion]: ...
    async def occasion(self, who: Identity, occasion: str) -> Occasion: ...
    async def start(self, who: Identity, occasion: str, note: str = "") -> Occasion: ...
    async def drop(self, who: Identity, occasion: str, note: str = "") -> Occasion: ...


class LocalTriggerDesk:
    """A trigger desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[Trigger]:
        """Return composed triggers of the identity's namespace, by name."""
        who.demand(Act.READ)
        first = stored(who.namespace, stored_text(after, "after")) if after else ""
        found = await self._store.occasions.composed(_namespace(who), first, min(limit, LIST_MAX))
        return [_trigger(who, one) for one in found]

    async def occasions(
        self,
        who: Identity,
        trigger: str | None = None,
        state: str | None = None,
        before: float = 1e11,
        limit: int = 50,
    ) -> Sequence[Occasion]:
        """Return occasions of the identity's namespace, newest first."""
        who.demand(Act.READ)
        if state is not None and state not in set(OccasionState):
            raise InvalidInput(f"state: expected one of {', '.join(OccasionState)}, not {state!r}")
        if trigger is not None:
            trigger = stored(who.namespace, stored_text(trigger, "trigger"))
        found = await self._store.occasions.occasions(
            _namespace(who), trigger, state, before, min(limit, LIST_MAX)
        )
        return [_occasion(who, one) for one in found]

    async def occasion(self, who: Identity, occasion: str) -> Occasion:
        """Return an occasion. Raise UnknownOccasion if there is none with this id."""
        who.demand(Act.READ)
        return _occasion(who, await self._seen(who, occasion))

    async def start(self, who: Identity, occasion: str, note: str = "") -> Occasion:
        """Start the run of an open occasion now, without what is missing. Raise InvalidInput if its workflow needs that."""
        who.demand(Act.STEER)
        seen = await self._seen(who, occasion)
        if seen.row.state is OccasionState.OPEN and seen.composed is not None:
            await self._demand_spare(seen, seen.composed)
        await self._store.occasions.start_occasion(seen.row.id, who.actor, stored_text(note, "note"))
        ring(self._hf, Bell.RUNS)
        return _occasion(who, await self._seen(who, occasion))

    async def drop(self, who: Identity, occasion: str, note: str = "") -> Occasion:
        """End an open occasion, so that it starts nothing."""
        who.demand(Act.STEER)
        seen = await self._seen(who, occasion)
        await self._store.occasions.drop_occasion(seen.row.id, who.actor, stored_text(note, "note"))
        return _occasion(who, await self._seen(who, occasion))

    async def _seen(self, who: Identity, occasion: str) -> SeenOccasion:
        try:
            found = await self._store.occasions.occasion(stored(who.namespace, stored_text(occasion, "id")))
        except InvalidInput:
            raise UnknownOccasion.of(occasion) from None
        if found is None or found.row.namespace != _namespace(who):
            raise UnknownOccasion.of(occasion)
        return found

    async def _demand_spare(self, seen: SeenOccasion, composed: ComposedRow) -> None:
        """Raise InvalidInput if something is missing that the workflow's argument must have."""
        declared = await self._store.workflows.declaration(composed.workflow, composed.version)
        if declared is None:
            return
        whole, composition = msgspec.json.decode(declared.input), read_composition(composed.body)
        defs = whole.get("$defs", {})
        taken = resolved(whole, defs).get("properties", {}).get(composition.parameter, {})
        required, have = resolved(taken, defs).get("required", []), counted(seen.collected)
        for part in composition.parts:
            if part.name in required and not have.get(part.key):
                raise InvalidInput(
                    f"{part.name}: the workflow cannot begin without it, because its type gives it no default: "
                    "send the event by `holdfast emit`, or drop the occasion"
                )


def _namespace(who: Identity) -> str:
    return who.namespace or DEFAULT_NAMESPACE


# --- what is shown ----------------------------------------------------------------------------------------------------


def _trigger(who: Identity, seen: SeenComposed) -> Trigger:
    row, composition = seen.row, read_composition(seen.row.body)
    return Trigger(
        name=shown(who.namespace, row.name),
        namespace=row.namespace,
        workflow=shown(who.namespace, row.workflow),
        version=row.version,
        origin=shown(who.namespace, row.origin),
        needs=words(composition.needs),
        parts=[part.name for part in composition.parts],
        by=composition.by,
        within_s=composition.within_s,
        otherwise=composition.otherwise,
        next_at=None if seen.next_at is None else _moment(seen.next_at),
    )


def _occasion(who: Identity, seen: SeenOccasion) -> Occasion:
    row, lacking = seen.row, list[str]()
    names: dict[str, str] = {}
    if seen.composed is not None:
        composition = read_composition(seen.composed.body)
        names = {part.key: part.name for part in composition.parts}
        if row.state is not OccasionState.STARTED:
            lacking = missing(composition.needs, counted(seen.collected))
    name = shown(who.namespace, row.id)
    return Occasion(
        id=name,
        ref=path_of(name),
        trigger=shown(who.namespace, row.trigger_name),
        value=row.value,
        state=row.state,
        opened_at=_moment(row.opened_at),
        ends_at=_moment(row.ends_at),
        ended_at=None if row.ended_at is None else _moment(row.ended_at),
        arrived=[
            Arrived(
                part=names.get(one.part, one.part),
                at=_moment(one.at),
                source=one.source or None,
                event=one.id if one.source else None,
            )
            for one in sorted(seen.collected, key=lambda one: (one.at, one.part, one.id))
        ],
        missing=lacking,
        late=row.late,
        note=row.note,
    )


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- what programs use ------------------------------------------------------------------------------------------------


class Triggers:
    """Composed triggers, as a program uses them: `hf.triggers`."""

    def __init__(self, desk: Callable[[], TriggerDesk], who: Identity) -> None:
        self._asked, self._who = desk, who

    async def list(self) -> list[Trigger]:
        """Return all composed triggers, by name."""
        found: list[Trigger] = []
        while page := await self._asked().list(self._who, found[-1].name if found else ""):
            found += page
        return found

    async def occasions(
        self, trigger: str | None = None, state: str | None = "open", limit: int = 50
    ) -> Sequence[Occasion]:
        """Return occasions, newest first: those that are open, or with `state=None` all that are kept."""
        return await self._asked().occasions(self._who, trigger, state, limit=limit)

    async def occasion(self, id: str) -> Occasion:
        """Return an occasion: `await hf.triggers.occasion("report@when:2026-11-16")`. Raise UnknownOccasion if there is none."""
        return await self._asked().occasion(self._who, id)

    async def start(self, id: str, note: str = "") -> Occasion:
        """Start the run of an open occasion now, without what is missing. The fields that are missing need a default."""
        return await self._asked().start(self._who, id, note)

    async def drop(self, id: str, note: str = "") -> Occasion:
        """End an open occasion, so that it starts nothing. What still comes for it is late."""
        return await self._asked().drop(self._who, id, note)
