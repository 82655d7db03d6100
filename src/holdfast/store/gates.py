"""Breakers and holds. Agents report outcomes and claim probes, the leader decides, and operators may overrule it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.actor import way
from holdfast.breaker import BreakerChange, BreakerLook
from holdfast.model import Breaker, BreakerState, Hold, HoldScope
from holdfast.namespaces import stored
from holdfast.store.answers import ClaimedStep, Observation, Probes, ShutGates
from holdfast.store.claims import StepClaim
from holdfast.store.database import Noun, Session, StoreCall, leading, look, transaction
from holdfast.store.rows import breaker_of, hold_of
from holdfast.store.verbs import Verb
from holdfast.store.walk import Turns

_WIDTH = len(Breaker.__struct_fields__)


class SeenGates(Noun):
    @look
    async def gates(self, session: Session, window_s: float) -> ShutGates:
        """Return what keeps steps from beginning, and breakers whose window began within the last `window_s`."""
        breakers = await session.rows(Verb.gate_breakers, window_s)
        holds = await session.rows(Verb.holds)
        return ShutGates([breaker_of(row) for row in breakers], [hold_of(row) for row in holds])


class AgentGates(SeenGates):
    @transaction
    async def observe(self, session: Session, tallies: Sequence[Observation], window_s: float) -> None:
        """Add outcomes to the counts of their breakers. This changes no breaker's state.

        Outcomes of steps count in the window of a closed breaker, which begins anew after `window_s`. Outcomes of
        probes count in their wave, unless the breaker is in a later round by now.
        """
        sums = _added_up(tallies)
        steps = [(one.name, one.ok, one.failed, one.error) for one in sums if one.round is None]
        probes = [
            (one.name, one.round, one.ok, one.failed, one.error) for one in sums if one.round is not None
        ]
        await session.each(Verb.observe, steps, window_s)
        await session.each(Verb.observe_probes, probes)

    async def claim_probes(
        self,
        node: str,
        name: str,
        lanes: Sequence[int],
        limit: int,
        runs: Sequence[str] | None = None,
        turns: Turns | None = None,
    ) -> Probes:
        """Claim steps of lanes that depend on `name`, while its breaker is probing. At most as many are claimed as are
        left of the breaker's allowance, which is lowered in the same transaction."""
        claim = StepClaim(node, lanes, limit, runs=runs, probes_of=name, turns=turns)

        async def take(session: Session) -> list[Probes]:
            row = await session.row(Verb.probing, name)
            if row is None:
                return []
            round_, allowance = row
            taken = await session.claim_steps(claim._replace(limit=min(allowance, limit)))
            if taken:
                await session.run(Verb.take_allowance, name, len(taken))
            return [Probes(round_, [ClaimedStep(*one) for one in taken])]

        call = StoreCall(
            "claim_probes", ("node", "name", "lanes", "limit", "runs"), (node, name, lanes, limit, runs), {}
        )
        found = await self._database.claim(call, lambda session: session.any_steps(claim), take)
        return found[0] if found else Probes(0, [])


class LeaderGates(SeenGates):
    @look
    async def breaker_looks(self, session: Session, window_s: float) -> list[BreakerLook]:
        """Return breakers that no operator has forced, and that are not closed or whose window began within the last
        `window_s`."""
        rows = await session.rows(Verb.breaker_looks, window_s)
        return [
            BreakerLook(breaker_of(row[:_WIDTH]), row[_WIDTH], bool(row[_WIDTH + 1]))
            for row in map(tuple, rows)
        ]

    @leading(False)
    async def change_breaker(self, session: Session, name: str, round: int, change: BreakerChange) -> bool:
        """Change the state of a breaker. Return False if it is no longer in this round, or if an operator has forced
        it."""
        values = (name, round, change.state, change.wave, change.open_s, change.note)
        if not await session.run(Verb.change_breaker, *values):
            return False
        if change.journalled:
            note = f"{name}: {change.note}"
            await _journal(session, "supervisor", f"breaker {change.state}", note, name)
        return True

    @leading(False)
    async def give_back_probes(self, session: Session, name: str, round: int, probes: int) -> bool:
        """Add the number of lost probes of a wave to its allowance again, so that others may begin."""
        return bool(await session.run(Verb.give_back_probes, name, round, probes))


class OperatorGates(AgentGates, LeaderGates):
    @look
    async def breakers(self, session: Session) -> list[Breaker]:
        """Return all breakers that there have ever been, by name."""
        return [breaker_of(row) for row in await session.rows(Verb.breakers)]

    @look
    async def holds(self, session: Session) -> list[Hold]:
        """Return all holds, oldest first."""
        return [hold_of(row) for row in await session.rows(Verb.holds)]

    @transaction
    async def add_hold(self, session: Session, scope: HoldScope, value: str, actor: str, note: str) -> bool:
        """Add a hold. Return False if there was one already."""
        if not await session.run(Verb.add_hold, scope, value, actor, note):
            return False
        await _journal(session, actor, "hold", f"{scope} {value}: {note}", _about(scope, value))
        return True

    @transaction
    async def remove_hold(
        self, session: Session, scope: HoldScope, value: str, actor: str, note: str
    ) -> bool:
        """Remove a hold. Return False if there was none."""
        if not await session.run(Verb.remove_hold, scope, value):
            return False
        await _journal(session, actor, "release", f"{scope} {value}: {note}", _about(scope, value))
        return True

    @transaction
    async def force_breaker(
        self, session: Session, name: str, state: BreakerState, actor: str, note: str
    ) -> Breaker:
        """Open or close a breaker by hand. It stays so until an operator resets it."""
        row = await session.row(Verb.force_breaker, name, state, actor, note)
        assert row is not None
        await _journal(session, actor, f"breaker {state}", f"{name}: by hand: {note}", name)
        return breaker_of(row)

    @transaction
    async def reset_breaker(self, session: Session, name: str, actor: str, note: str) -> Breaker | None:
        """Let the leader decide about a breaker again. One that is not closed begins to probe. Return None if there is
        no such breaker."""
        row = await session.row(Verb.reset_breaker, name, actor, note)
        if row is None:
            return None
        await _journal(session, actor, "breaker reset", f"{name}: {note}", name)
        return breaker_of(row)


def _added_up(tallies: Sequence[Observation]) -> list[Observation]:
    """Add up the observations of each breaker and round, because a statement can change a row only once. They are
    sorted, so that all transactions lock rows in the same order."""
    found: dict[tuple[str, int | None], Observation] = {}
    for one in tallies:
        before = found.get((one.name, one.round), Observation(one.name, 0, 0, None, one.round))
        found[one.name, one.round] = Observation(
            one.name, before.ok + one.ok, before.failed + one.failed, one.error or before.error, one.round
        )
    return sorted(found.values(), key=lambda one: (one.name, one.round or 0))


def _about(scope: HoldScope, value: str) -> str | None:
    """Return the stored name of what a hold is about. None if that is the whole store."""
    if scope is HoldScope.NAMESPACE:
        return stored(value, "") or value
    return None if scope is HoldScope.ALL else value


async def _journal(session: Session, actor: str, verb: str, note: str, about: str | None) -> None:
    await session.run(Verb.journal_about, actor, verb, about, note.strip(": "), *way(actor))
