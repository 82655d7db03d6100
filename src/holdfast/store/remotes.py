"""Nodes that reach the store through a server. They have no lock that shows whether their process lives, so only their
lease counts. Their claims are numbered: a claim whose turn is overtaken takes nothing, however late it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.model import TwinState
from holdfast.store.answers import ClaimedStep
from holdfast.store.claims import StepClaim
from holdfast.store.database import Noun, Session, StoreCall, look, statement, transaction
from holdfast.store.nodes import give_up
from holdfast.store.origins import Offers
from holdfast.store.twins import take_twins
from holdfast.store.verbs import Verb
from holdfast.store.workflows import declare


class RemoteNodeRow(NamedTuple):
    """A node that reaches the store through a server."""

    token: str
    """The id of the token by which it came. Empty if no token was asked for."""
    secret: bytes
    """What the secrets of its claims are made from."""
    offers: str
    turn: int
    """The newest claim that took something."""


class NewTurn(NamedTuple):
    """A turn that a node begins. Its lease is renewed. After a lost reply, the node says what it has."""

    node: str
    turn: int
    """0 for a beat, which only renews the lease."""
    lease_s: float
    steps: Sequence[tuple[str, int, int]] | None
    twins: Sequence[tuple[str, int, int]] = ()
    """With `steps`: the twins that the node has. Its others end."""
    pulse: str | None = None
    """A JSON object in which the node describes its state."""


class TurnBegun(NamedTuple):
    now: float | None
    """The store's time. None if the node has left or was reclaimed."""
    is_overtaken: bool = False
    handed_back: int = 0
    """How many steps were handed back, which the node did not know of."""

    @property
    def is_member(self) -> bool:
        return self.now is not None


class TakenStep(NamedTuple):
    step: ClaimedStep
    probe: tuple[str, int] | None
    """(breaker, round) if the attempt is a probe."""
    is_twin: bool = False


class TwinClaim(NamedTuple):
    """Asks for twins of steps in these lanes, at most `limit` of them."""

    lanes: list[int]
    limit: int


class Remotes(Noun):
    @transaction
    async def register(
        self,
        session: Session,
        node: str,
        columns: tuple[str, int, str, str, int, float],
        token: str,
        secret: bytes,
    ) -> bytes | None:
        """Write the row of a node: host, pid, roles, offers, capacity, and for how many seconds its lease is. Return what
        the secrets of its claims are made from: `secret`, or the earlier one if the node registers again. Return None, and
        write nothing, if the node has left, came by another token, or is one at the store.

        Raise NameTaken, and write nothing, if a live node publishes one of the names from another application."""
        offers = Offers.read(columns[3])
        if offers.code:  # agents in other languages publish no code that another application could have
            await session.in_turn()
        is_new = await session.run(Verb.add_node, node, *columns, offers.code)
        verb = Verb.make_remote if is_new else Verb.remote_secret
        row = await session.row(verb, node, token, *([secret] if is_new else []))
        if row is None:
            return None
        if offers.code:
            await declare(session, self._database.processes, node, offers, ())
        if not is_new:
            await session.run(Verb.register, node, *columns, offers.code)
        return bytes(row[0])

    @look
    async def remote(self, session: Session, node: str) -> RemoteNodeRow | None:
        """Return a node that reaches the store through a server. None if it has left or was reclaimed."""
        row = await session.row(Verb.remote_node, node)
        return None if row is None else RemoteNodeRow(row[0], bytes(row[1]), row[2], row[3])

    @transaction
    async def begin_turns(self, session: Session, turns: Sequence[NewTurn]) -> list[TurnBegun]:
        """Begin turns of several nodes: renew their leases, and hand back what they have according to the store and do
        not know of. An overtaken turn changes nothing but the lease."""
        begun: dict[int, TurnBegun] = {}
        # All servers lock the rows of nodes in one order, so that two of them cannot wait for each other.
        for number, one in sorted(enumerate(turns), key=lambda entry: entry[1].node):
            begun[number] = await _begin(session, one)
        return [begun[number] for number in range(len(turns))]

    async def claim(
        self, node: str, turn: int, claims: Sequence[StepClaim], twins: Sequence[TwinClaim] = ()
    ) -> list[TakenStep] | None:
        """Claim steps in a turn of a node, all in one transaction. A turn takes something once; one that is overtaken,
        or that has taken something before, takes nothing: then this returns None, if there is anything to take.

        Twins come first, because they belong to steps that are late already, and a turn that takes twins takes nothing
        else: the places are counted once."""

        async def is_any(session: Session) -> bool:
            for wanted in twins:
                if await session.row(Verb.ready_twins, node, *wanted) is not None:
                    return True
            for claim in claims:
                if await session.any_steps(claim):
                    return True
            return False

        async def take(session: Session) -> list[list[TakenStep] | None]:
            if await session.row(Verb.lock_turn, node, turn) is None:
                return [None]
            taken = [
                TakenStep(step, None, True)
                for wanted in twins
                for step in await take_twins(session, node, *wanted)
            ]
            for claim in () if taken else claims:
                taken += await _take(session, claim)
            if taken:
                await session.run(Verb.take_turn, node, turn)
            return [taken]

        call = StoreCall("claim_remote", ("node", "turn", "claims", "twins"), (node, turn, claims, twins), {})
        found = await self._database.claim(call, is_any, take)
        return found[0] if found else []

    @statement
    async def shorten(self, session: Session, node: str, left_s: float) -> int:
        """Let the lease of a node end in `left_s` seconds, if it would end later. Return 0 if there is no such node."""
        return await session.run(Verb.shorten, node, left_s)


async def _begin(session: Session, one: NewTurn) -> TurnBegun:
    now: float | None = await session.value(Verb.renew, one.node, one.lease_s, one.pulse, 0.0)
    if now is None or one.steps is None:
        return TurnBegun(now)
    if await session.row(Verb.lock_turn, one.node, one.turn) is None:
        return TurnBegun(now, is_overtaken=True)
    # Claims of earlier turns take nothing from now on.
    await session.run(Verb.take_turn, one.node, one.turn - 1)
    _, handed_back = await give_up(session, one.node, set(), set(one.steps))
    known = set(one.twins)
    for twin in await session.rows(Verb.held_twins, one.node):
        if tuple(twin) not in known:
            await session.row(Verb.end_twin, *twin, one.node, TwinState.FAILED)
    return TurnBegun(now, handed_back=handed_back)


async def _take(session: Session, claim: StepClaim) -> list[TakenStep]:
    if claim.probes_of is None:
        return [TakenStep(ClaimedStep(*row), None) for row in await session.claim_steps(claim)]
    row = await session.row(Verb.probing, claim.probes_of)
    if row is None:
        return []
    round_, allowance = row
    taken = await session.claim_steps(claim._replace(limit=min(allowance, claim.limit)))
    if taken:
        await session.run(Verb.take_allowance, claim.probes_of, len(taken))
    return [TakenStep(ClaimedStep(*one), (claim.probes_of, round_)) for one in taken]
