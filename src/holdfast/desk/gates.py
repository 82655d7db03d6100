"""Gates, for operators: breakers of dependencies; holds on workflows, steps, dependencies, namespaces or everything.

await hf.gates.hold(workflow="order", note="the warehouse counts its stock")
await hf.gates.open("stripe", note="they announced a maintenance")

All of these act on steps, and only decide whether a step may begin. To hold a run, use `run.hold()`.

Python (`hf.gates`), the command line and the server all ask a `GateDesk`, with the identity of who asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple, Protocol

from holdfast.access import Act, Identity
from holdfast.codec import stored_text
from holdfast.desk.opened import Opened
from holdfast.errors import HoldfastError, InvalidInput, WrongState
from holdfast.model import Breaker, BreakerState, Hold, HoldScope
from holdfast.namespaces import BETWEEN, namespace_of, shown, shown_row, stored
from holdfast.store.bell import Bell
from holdfast.store.store import Store


class Placed(NamedTuple):
    """A hold that somebody asked for, and what was found about it."""

    hold: Hold
    new: bool
    """False if the hold was there before."""
    known: bool
    """True if this store has seen anything of that name."""


class GateDesk(Protocol):
    """What operators may ask about breakers and holds. Names are as the identity sees them."""

    async def breakers(self, who: Identity) -> list[Breaker]: ...
    async def open(self, who: Identity, dependency: str, note: str = "") -> Breaker: ...
    async def close(self, who: Identity, dependency: str, note: str = "") -> Breaker: ...
    async def reset(self, who: Identity, dependency: str, note: str = "") -> Breaker: ...
    async def holds(self, who: Identity) -> list[Hold]: ...
    async def hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Placed: ...
    async def release(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Hold: ...


class LocalGateDesk:
    """A gate desk that works on the store. Only gates of the identity's namespace are seen and changed. Without one, it is
    the whole store, and names are stored ones."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    # --- breakers -----------------------------------------------------------------------------------------------------

    async def breakers(self, who: Identity) -> list[Breaker]:
        """Return the breakers, by name. A dependency has one once it had trouble, or an operator opened or closed
        it."""
        who.demand(Act.READ)
        rows = await self._store.gates.breakers()
        return [shown_row(who.namespace, row) for row in rows if _is_own(who, row.name)]

    async def open(self, who: Identity, dependency: str, note: str = "") -> Breaker:
        """Let no step begin that depends on this, until `close` or `reset`. Return the breaker."""
        return await self._force(who, dependency, BreakerState.OPEN, note)

    async def close(self, who: Identity, dependency: str, note: str = "") -> Breaker:
        """Let all steps begin that depend on this, even if they fail, until `open` or `reset`. Return the breaker."""
        return await self._force(who, dependency, BreakerState.CLOSED, note)

    async def _force(self, who: Identity, dependency: str, state: BreakerState, note: str) -> Breaker:
        who.demand(Act.STEER)
        name, _ = await self._full_name(who, HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.force_breaker(name, state, who.actor, stored_text(note, "note"))
        await self._ring()
        return shown_row(who.namespace, row)

    async def reset(self, who: Identity, dependency: str, note: str = "") -> Breaker:
        """Let the leader decide about the breaker again. If it is not closed, probes begin at once, in growing
        waves."""
        who.demand(Act.STEER)
        name, _ = await self._full_name(who, HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.reset_breaker(name, who.actor, stored_text(note, "note"))
        if row is None:
            raise WrongState(
                f"{shown(who.namespace, name)!r} has no breaker: `holdfast breakers` lists the dependencies that have one"
            )
        await self._ring()
        return shown_row(who.namespace, row)

    # --- holds --------------------------------------------------------------------------------------------------------

    async def holds(self, who: Identity) -> list[Hold]:
        """Return all holds that cover the namespace, oldest first. A hold on the whole store is seen in each namespace."""
        who.demand(Act.READ)
        rows = await self._store.gates.holds()
        return [shown_row(who.namespace, row) for row in rows if _covers(who, row)]

    async def hold(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Placed:
        """Let none of these steps begin until `release`. Whoever has all namespaces may hold everything, and others what is
        in their own namespace."""
        _demand_scope(who, scope, value)
        scope, given = _meant(who, scope, value)
        value, known = await self._full_name(who, scope, given)
        new = await self._store.gates.add_hold(scope, value, who.actor, stored_text(note, "note"))
        found = [row for row in await self._store.gates.holds() if (row.scope, row.value) == (scope, value)]
        await self._ring()
        if not found:  # somebody released it in the same moment
            found = [Hold(scope, value, str(who.actor), note, await self._store.now())]
        return Placed(shown_row(who.namespace, found[0]), new, known)

    async def release(self, who: Identity, scope: HoldScope, value: str, note: str = "") -> Hold:
        """Remove a hold, and return it. Its steps can begin at once, unless another gate stops them."""
        _demand_scope(who, scope, value)
        scope, given = _meant(who, scope, value)
        holds = {
            row.value: row
            for row in await self._store.gates.holds()
            if row.scope is scope and (scope is HoldScope.ALL or _covers(who, row))
        }
        what = f"hold on {'an' if scope is HoldScope.ALL else 'a'} {scope}"
        value = _matched(who, scope, given, set(holds), what)
        if value not in holds or not await self._store.gates.remove_hold(
            scope, value, who.actor, stored_text(note, "note")
        ):
            what = "everything" if scope is HoldScope.ALL else f"the {scope} {given!r}"
            runs = (
                f"; `holdfast release --{scope} {given} --state held` releases its held runs"
                if scope in {HoldScope.WORKFLOW, HoldScope.NAMESPACE}
                else ""
            )
            raise WrongState(f"there is no hold on {what}: `holdfast holds` lists all holds{runs}")
        await self._ring()
        return shown_row(who.namespace, holds[value])

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _full_name(self, who: Identity, scope: HoldScope, given: str) -> tuple[str, bool]:
        """Return the full name for a short one, and whether the store knows the name at all."""
        stored_text(given, str(scope))
        if who.namespace is not None and BETWEEN in given:
            raise InvalidInput(
                f"{scope}: {given!r} has // in it, which stands between a namespace and a name"
            )
        names: set[str] = set()
        if not given and scope in {HoldScope.WORKFLOW, HoldScope.STEP, HoldScope.DEPENDENCY}:
            raise InvalidInput(f"{scope}: give the name of one")
        if scope is HoldScope.WORKFLOW:
            for node in await self._store.nodes.nodes():
                offered = json.loads(node.offers).get("workflows", ())
                names |= {str(offer).rpartition("@")[0] for offer in offered}
        elif scope is HoldScope.STEP:
            names = {lane.name for lane in await self._store.agents.lanes()}
        elif scope is HoldScope.DEPENDENCY:
            names = {lane.depends for lane in await self._store.agents.lanes()}
            names |= {row.name for row in await self._store.gates.breakers()}
        else:
            return given, True
        value = _matched(who, scope, given, {name for name in names if _is_own(who, name)}, str(scope))
        return value, value in names

    async def _ring(self) -> None:
        # A tuple, so that the order is always the same: a set of texts has another order in each process.
        bells = (Bell.GATES, Bell.STEPS)
        for bell in bells:
            self._hf.caller.bells.ring_here(bell)
        await self._store.nodes.ring(set(bells))


def _demand_scope(who: Identity, scope: HoldScope, value: str) -> None:
    """Raise unless the identity may hold this. In a namespace, everything is what is in it."""
    is_other = scope is HoldScope.NAMESPACE and who.namespace not in {None, value}
    who.demand(Act.STEER_STORE if is_other or who.namespace is None else Act.STEER)


def _meant(who: Identity, scope: HoldScope, value: str) -> tuple[HoldScope, str]:
    """Return what is meant. Everything in a namespace is that namespace, and nobody can name another one."""
    given = "" if scope is HoldScope.ALL else value
    stored_text(given, str(scope))
    if who.namespace is None:
        return scope, given
    if scope is HoldScope.ALL:
        return HoldScope.NAMESPACE, who.namespace
    if scope is HoldScope.NAMESPACE and given != who.namespace:
        raise InvalidInput(
            f"namespace: this is about the namespace {who.namespace!r}, and cannot change another one"
        )
    return scope, given


def _is_own(who: Identity, name: str) -> bool:
    return who.sees(namespace_of(name))


def _covers(who: Identity, row: Hold) -> bool:
    """True if this hold can be seen in the namespace."""
    if row.scope is HoldScope.NAMESPACE:
        return who.sees(row.value)
    return row.scope is HoldScope.ALL or _is_own(who, row.value)


def _matched(who: Identity, scope: HoldScope, given: str, names: set[str], what: str) -> str:
    """Return the stored name of what is meant by a name or by the last part of it."""
    if scope in {HoldScope.NAMESPACE, HoldScope.ALL}:
        return given
    bare_names = {shown(who.namespace, name) for name in names}
    return stored(who.namespace, _match(given, bare_names, what))


def _match(given: str, names: set[str], what: str) -> str:
    """Return the name that is meant. `order` means `shop.order` if only one name ends so."""
    if given in names:
        return given
    found = sorted(name for name in names if name.endswith(f".{given}"))
    if len(found) > 1:
        raise HoldfastError(f"{given!r} fits more than one {what}: use one of {', '.join(found)}")
    return found[0] if found else given


# --- Python -----------------------------------------------------------------------------------------------------------


class Gates:
    """`hf.gates`: breakers and holds, which keep steps from beginning."""

    def __init__(self, desk: Callable[[], GateDesk], who: Identity) -> None:
        self._desk, self._who = desk, who

    async def breakers(self) -> list[Breaker]:
        """Return the breakers, by name. A dependency has one once it had trouble, or an operator opened or closed
        it."""
        return await self._desk().breakers(self._who)

    async def open(self, dependency: str, note: str = "") -> Breaker:
        """Let no step begin that depends on this, until `close` or `reset`. Return the breaker."""
        return await self._desk().open(self._who, dependency, note)

    async def close(self, dependency: str, note: str = "") -> Breaker:
        """Let all steps begin that depend on this, even if they fail, until `open` or `reset`. Return the breaker."""
        return await self._desk().close(self._who, dependency, note)

    async def reset(self, dependency: str, note: str = "") -> Breaker:
        """Let the leader decide about the breaker again. If it is not closed, probes begin at once, in growing
        waves."""
        return await self._desk().reset(self._who, dependency, note)

    async def holds(self) -> list[Hold]:
        """Return all holds, oldest first. Held runs are not among them: `holdfast ps --state held` lists those. A hold
        on the whole store is seen in each namespace."""
        return await self._desk().holds(self._who)

    async def hold(
        self,
        *,
        workflow: str | None = None,
        step: str | None = None,
        dependency: str | None = None,
        namespace: str | None = None,
        everything: bool = False,
        note: str = "",
    ) -> Placed:
        """Let none of these steps begin until `release`. Steps that are running go on. Runs still decide what comes
        next."""
        scope, value = _only_scope(workflow, step, dependency, namespace, everything)
        return await self._desk().hold(self._who, scope, value, note)

    async def release(
        self,
        *,
        workflow: str | None = None,
        step: str | None = None,
        dependency: str | None = None,
        namespace: str | None = None,
        everything: bool = False,
        note: str = "",
    ) -> Hold:
        """Remove a hold, and return it. Its steps can begin at once, unless another gate stops them."""
        scope, value = _only_scope(workflow, step, dependency, namespace, everything)
        return await self._desk().release(self._who, scope, value, note)


def _only_scope(
    workflow: str | None, step: str | None, dependency: str | None, namespace: str | None, everything: bool
) -> tuple[HoldScope, str]:
    given = [
        (scope, value)
        for scope, value in (
            (HoldScope.WORKFLOW, workflow),
            (HoldScope.STEP, step),
            (HoldScope.DEPENDENCY, dependency),
            (HoldScope.NAMESPACE, namespace),
            (HoldScope.ALL, "" if everything else None),
        )
        if value is not None
    ]
    if len(given) != 1:
        raise HoldfastError("name exactly one of these: workflow, step, dependency, namespace or everything")
    return given[0]
