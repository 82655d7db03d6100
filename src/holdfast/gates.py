"""Gates, for operators: breakers of dependencies; holds on workflows, steps, dependencies, namespaces or everything.

await hf.gates.hold(workflow="order", note="the warehouse counts its stock")
await hf.gates.open("stripe", note="they announced a maintenance")

All of these act on steps, and only decide whether a step may begin. To hold a run, use `run.hold()`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from holdfast.caller import Caller
from holdfast.codec import stored_text
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


class Gates:
    def __init__(self, opened: Callable[[], Caller], actor: str, namespace: str | None = None) -> None:
        """`opened` returns this process's caller, or raises if the Holdfast is not open. Only gates of the namespace are
        seen and changed. Without one, it is the whole store, and names are stored ones."""
        self._opened, self._actor, self._namespace = opened, actor, namespace

    @property
    def _caller(self) -> Caller:
        return self._opened()

    @property
    def _store(self) -> Store:
        return self._opened().store

    # --- breakers -----------------------------------------------------------------------------------------------------

    async def breakers(self) -> list[Breaker]:
        """Return the breakers, by name. A dependency has one once it had trouble, or an operator opened or closed
        it."""
        rows = await self._store.gates.breakers()
        return [shown_row(self._namespace, row) for row in rows if self._is_own(row.name)]

    async def open(self, dependency: str, note: str = "") -> Breaker:
        """Let no step begin that depends on this, until `close` or `reset`. Return the breaker."""
        name, _ = await self._full_name(HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.force_breaker(
            name, BreakerState.OPEN, self._actor, stored_text(note, "note")
        )
        await self._ring()
        return shown_row(self._namespace, row)

    async def close(self, dependency: str, note: str = "") -> Breaker:
        """Let all steps begin that depend on this, even if they fail, until `open` or `reset`. Return the breaker."""
        name, _ = await self._full_name(HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.force_breaker(
            name, BreakerState.CLOSED, self._actor, stored_text(note, "note")
        )
        await self._ring()
        return shown_row(self._namespace, row)

    async def reset(self, dependency: str, note: str = "") -> Breaker:
        """Let the leader decide about the breaker again. If it is not closed, probes begin at once, in growing
        waves."""
        name, _ = await self._full_name(HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.reset_breaker(name, self._actor, stored_text(note, "note"))
        if row is None:
            raise WrongState(
                f"{shown(self._namespace, name)!r} has no breaker: `holdfast breakers` lists the dependencies that have one"
            )
        await self._ring()
        return shown_row(self._namespace, row)

    # --- holds --------------------------------------------------------------------------------------------------------

    async def holds(self) -> list[Hold]:
        """Return all holds, oldest first. Held runs are not among them: `holdfast ps --state held` lists those. A hold
        on the whole store is seen in each namespace."""
        rows = await self._store.gates.holds()
        return [shown_row(self._namespace, row) for row in rows if self._covers(row)]

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
        scope, given = self._scope(workflow, step, dependency, namespace, everything)
        value, known = await self._full_name(scope, given)
        new = await self._store.gates.add_hold(scope, value, self._actor, stored_text(note, "note"))
        found = [row for row in await self._store.gates.holds() if (row.scope, row.value) == (scope, value)]
        await self._ring()
        if not found:  # somebody released it in the same moment
            found = [Hold(scope, value, self._actor, note, await self._store.now())]
        return Placed(shown_row(self._namespace, found[0]), new, known)

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
        scope, given = self._scope(workflow, step, dependency, namespace, everything)
        holds = {
            row.value: row
            for row in await self._store.gates.holds()
            if row.scope is scope and (scope is HoldScope.ALL or self._covers(row))
        }
        value = self._matched(
            scope, given, set(holds), f"hold on {'an' if scope is HoldScope.ALL else 'a'} {scope}"
        )
        if value not in holds or not await self._store.gates.remove_hold(
            scope, value, self._actor, stored_text(note, "note")
        ):
            what = "everything" if scope is HoldScope.ALL else f"the {scope} {given!r}"
            runs = (
                f"; `holdfast release --{scope} {given} --state held` releases its held runs"
                if scope in {HoldScope.WORKFLOW, HoldScope.NAMESPACE}
                else ""
            )
            raise WrongState(f"there is no hold on {what}: `holdfast holds` lists all holds{runs}")
        await self._ring()
        return shown_row(self._namespace, holds[value])

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _full_name(self, scope: HoldScope, given: str) -> tuple[str, bool]:
        """Return the full name for a short one, and whether the store knows the name at all."""
        stored_text(given, str(scope))
        if self._namespace is not None and BETWEEN in given:
            raise InvalidInput(
                f"{scope}: {given!r} has // in it, which stands between a namespace and a name"
            )
        names: set[str] = set()
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
        value = self._matched(scope, given, {name for name in names if self._is_own(name)}, str(scope))
        return value, value in names

    def _scope(
        self,
        workflow: str | None,
        step: str | None,
        dependency: str | None,
        namespace: str | None,
        everything: bool,
    ) -> tuple[HoldScope, str]:
        """Return what is meant. Everything in a namespace is that namespace, and nobody can name another one."""
        scope, given = only_scope(workflow, step, dependency, namespace, everything)
        stored_text(given, str(scope))
        if self._namespace is None:
            return scope, given
        if scope is HoldScope.ALL:
            return HoldScope.NAMESPACE, self._namespace
        if scope is HoldScope.NAMESPACE and given != self._namespace:
            raise InvalidInput(
                f"namespace: this is about the namespace {self._namespace!r}, and cannot change another one"
            )
        return scope, given

    def _is_own(self, name: str) -> bool:
        return self._namespace is None or namespace_of(name) == self._namespace

    def _covers(self, row: Hold) -> bool:
        """True if this hold can be seen in the namespace."""
        if row.scope is HoldScope.NAMESPACE:
            return self._namespace in {None, row.value}
        return row.scope is HoldScope.ALL or self._is_own(row.value)

    def _matched(self, scope: HoldScope, given: str, names: set[str], what: str) -> str:
        """Return the stored name of what is meant by a name or by the last part of it."""
        if scope in {HoldScope.NAMESPACE, HoldScope.ALL}:
            return given
        bare_names = {shown(self._namespace, name) for name in names}
        return stored(self._namespace, _match(given, bare_names, what))

    async def _ring(self) -> None:
        # A tuple, so that the order is always the same: a set of texts has another order in each process.
        bells = (Bell.GATES, Bell.STEPS)
        for bell in bells:
            self._caller.bells.ring_here(bell)
        await self._store.nodes.ring(set(bells))


def only_scope(
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


def _match(given: str, names: set[str], what: str) -> str:
    """Return the name that is meant. `order` means `shop.order` if only one name ends so."""
    if given in names:
        return given
    found = sorted(name for name in names if name.endswith(f".{given}"))
    if len(found) > 1:
        raise HoldfastError(f"{given!r} fits more than one {what}: use one of {', '.join(found)}")
    return found[0] if found else given
