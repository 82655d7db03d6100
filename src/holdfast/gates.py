"""Gates, for operators: breakers of dependencies, and holds on workflows, steps, dependencies, namespaces or everything.

await hf.gates.hold(workflow="order", note="the warehouse counts its stock")
await hf.gates.open("stripe", note="they announced a maintenance")

A run is held by `run.hold()`; everything here acts on steps, at one place: whether one may begin.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from holdfast.caller import Caller
from holdfast.codec import stored_text
from holdfast.errors import HoldfastError, WrongState
from holdfast.model import Breaker, BreakerState, Hold, HoldScope
from holdfast.store.bell import Bell
from holdfast.store.store import Store


class Placed(NamedTuple):
    """A hold, as it stands after it was asked for."""

    hold: Hold
    new: bool
    """False: somebody had placed it before."""
    known: bool
    """Whether anything by that name has been seen in this store."""


class Gates:
    def __init__(self, opened: Callable[[], Caller], actor: str) -> None:
        """`opened` is this process's way to the store, if it is open."""
        self._opened, self._actor = opened, actor

    @property
    def _caller(self) -> Caller:
        return self._opened()

    @property
    def _store(self) -> Store:
        return self._opened().store

    # --- breakers -----------------------------------------------------------------------------------------------------

    async def breakers(self) -> list[Breaker]:
        """Of every dependency that ever had trouble, by name."""
        return await self._store.gates.breakers()

    async def open(self, dependency: str, note: str = "") -> Breaker:
        """Let no step begin that depends on this, until `close` or `reset`."""
        name, _ = await self._named(HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.force_breaker(
            name, BreakerState.OPEN, self._actor, stored_text(note, "note")
        )
        await self._ring()
        return row

    async def close(self, dependency: str, note: str = "") -> Breaker:
        """Let all of them begin, whatever comes of it, until `open` or `reset`."""
        name, _ = await self._named(HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.force_breaker(
            name, BreakerState.CLOSED, self._actor, stored_text(note, "note")
        )
        await self._ring()
        return row

    async def reset(self, dependency: str, note: str = "") -> Breaker:
        """Let the breaker decide by itself again. One that is not closed is tried at once, and released in waves."""
        name, _ = await self._named(HoldScope.DEPENDENCY, dependency)
        row = await self._store.gates.reset_breaker(name, self._actor, stored_text(note, "note"))
        if row is None:
            raise WrongState(
                f"{name!r} has no breaker: `holdfast breakers` lists those that ever had trouble"
            )
        await self._ring()
        return row

    # --- holds --------------------------------------------------------------------------------------------------------

    async def holds(self) -> list[Hold]:
        """All there are, oldest first. Runs that are held are not among them: `holdfast ps --state held`."""
        return await self._store.gates.holds()

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
        """Let none of these steps begin until `release`. What runs goes on; runs still decide what comes next."""
        scope, given = _one_of(workflow, step, dependency, namespace, everything)
        value, known = await self._named(scope, given)
        new = await self._store.gates.add_hold(scope, value, self._actor, stored_text(note, "note"))
        found = [row for row in await self._store.gates.holds() if (row.scope, row.value) == (scope, value)]
        await self._ring()
        if not found:  # released in the same moment
            found = [Hold(scope, value, self._actor, note, await self._store.now())]
        return Placed(found[0], new, known)

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
        """Take a hold away; its steps begin at once, as far as nothing else keeps them."""
        scope, given = _one_of(workflow, step, dependency, namespace, everything)
        held = {row.value: row for row in await self._store.gates.holds() if row.scope is scope}
        value = _match(given, set(held), f"hold on {'an' if scope is HoldScope.ALL else 'a'} {scope}")
        if value not in held or not await self._store.gates.remove_hold(
            scope, value, self._actor, stored_text(note, "note")
        ):
            what = "everything" if scope is HoldScope.ALL else f"the {scope} {given!r}"
            raise WrongState(f"there is no hold on {what}: `holdfast holds` lists them")
        await self._ring()
        return held[value]

    # --- inside -------------------------------------------------------------------------------------------------------

    async def _named(self, scope: HoldScope, given: str) -> tuple[str, bool]:
        """The whole name for a short one, and whether there is such a thing at all."""
        stored_text(given, str(scope))
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
        value = _match(given, names, str(scope))
        return value, value in names

    async def _ring(self) -> None:
        bells = (
            Bell.GATES,
            Bell.STEPS,
        )  # in this order, in every process: a set of texts has another order each time
        for bell in bells:
            self._caller.bells.ring_here(bell)
        await self._store.nodes.ring(set(bells))


def _one_of(
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
        raise HoldfastError("say what is held: one of workflow, step, dependency, namespace or everything")
    return given[0]


def _match(given: str, names: set[str], what: str) -> str:
    """`order` is `shop.order` if there is only one such name."""
    if given in names:
        return given
    found = sorted(name for name in names if name.endswith(f".{given}"))
    if len(found) > 1:
        raise HoldfastError(f"{given!r} is more than one {what}: {', '.join(found)}: name one of them")
    return found[0] if found else given
