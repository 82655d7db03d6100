"""What a node does about itself (its row, its lease, its bells), and what anybody may read about nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from holdfast.model import Declaration, NodeRow
from holdfast.store.bell import Bell
from holdfast.store.database import Noun, Session, look, transaction
from holdfast.store.events import declare_triggers
from holdfast.store.occasions import declare_composed
from holdfast.store.origins import Offers
from holdfast.store.schedules import DeclaredSet, declare_sets
from holdfast.store.verbs import Verb
from holdfast.store.workflows import declare

ALL = 2**31 - 1
"""More runs than any node owns."""


class Nodes(Noun):
    async def register(
        self,
        node: str,
        *,
        host: str,
        pid: int,
        roles: str,
        offers: str,
        capacity: int,
        lease_s: float,
        declared: Sequence[Declaration] = (),
        sets: Sequence[DeclaredSet] = (),
        triggers: Sequence[DeclaredSet] = (),
        composed: Sequence[DeclaredSet] = (),
    ) -> None:
        """Write the node's row, with a lease that begins now, and what its code declares. A node whose code has changed
        may register again. Its lease stays as it is then.

        Raise NameTaken, and write nothing, if a live node publishes one of the names from another application (see
        `origins`).
        """
        self._database.processes.take(node)
        columns = (host, pid, roles, offers, capacity, lease_s)
        await self._register(node, columns, declared, sets, triggers, composed=composed)

    @transaction
    async def _register(
        self,
        session: Session,
        node: str,
        columns: tuple[str, int, str, str, int, float],
        declared: Sequence[Declaration],
        sets: Sequence[DeclaredSet],
        triggers: Sequence[DeclaredSet],
        *,
        composed: Sequence[DeclaredSet],
    ) -> None:
        offers = Offers.read(columns[3])
        if offers.code or triggers or composed:
            await session.in_turn()
        await declare(session, self._database.processes, node, offers, declared)
        await declare_sets(session, sets)
        await declare_triggers(session, triggers)
        await declare_composed(session, composed)
        await session.run(Verb.register, node, *columns, offers.code)

    @property
    def shared_url(self) -> str | None:
        """The URL at which other processes of this host find this store. None if the store is in this process's
        memory."""
        return self._database.shared_url

    @property
    def heart_headers(self) -> dict[str, str]:
        """What a heart sends along with each renewal. Only a server asks for something."""
        return {}

    async def renew(self, node: str, lease_s: float, pulse: str | None = None) -> float | None:
        """Renew the node's lease. Return the store's time, or None if the node was reclaimed. This never waits for the
        writer.

        `pulse` is a JSON object in which the node describes its state. The store keeps it in `offers.pulse`, with its
        time.
        """
        return await self._database.renew(node, lease_s, pulse)

    async def retire(self, node: str) -> None:
        """Leave the store: free the node's runs, hand its steps back, resign its leases and retire the node."""
        await self._retire(node)
        self._database.processes.let_go(node)

    @transaction
    async def _retire(self, session: Session, node: str) -> None:
        # The leader locks in this order, too: its lease, the node, runs, steps. So the two cannot wait for each other.
        await session.run(Verb.resign, node)
        await session.row(Verb.lock_node, node)
        await give_up(session, node, set(), set())
        await session.run(Verb.retire, node)

    @transaction
    async def reconcile(
        self,
        session: Session,
        node: str,
        runs: Sequence[tuple[str, int]],
        steps: Sequence[tuple[str, int, int]],
    ) -> tuple[int, int]:
        """Give up what this node has according to the store and does not know of, because the answer of a claim got
        lost.

        The node names the runs and steps that it knows, with their fences. All its other runs are freed, and all its
        other steps are handed back. Return how many of each.
        """
        return await give_up(session, node, set(runs), set(steps))

    async def ring(self, bells: set[Bell]) -> None:
        await self._database.ring(bells)

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        """Call `heard(bell)` for each bell that another node rings, until the returned coroutine function is called."""
        return await self._database.listen(heard)

    @look
    async def nodes(self, session: Session) -> list[NodeRow]:
        """Return the newest nodes, those that have not left first."""
        return [NodeRow(*row) for row in await session.rows(Verb.nodes)]

    @look
    async def living(self, session: Session, limit: int) -> list[NodeRow]:
        """Return nodes that have not left, those whose leases end last first."""
        return [NodeRow(*row) for row in await session.rows(Verb.living, limit)]

    @look
    async def loads(self, session: Session) -> dict[str, tuple[int, int]]:
        """Return (steps it executes, runs it owns) of every node that has any."""
        return {node: (steps, runs) for node, steps, runs in await session.rows(Verb.loads)}


async def give_up(
    session: Session, node: str, runs: set[tuple[str, int]], steps: set[tuple[str, int, int]]
) -> tuple[int, int]:
    """Free the node's runs and hand its steps back, except for these."""
    owned = {(run_id, fence) for run_id, fence in await session.rows(Verb.owned_by, node, ALL)}
    claimed = {(run_id, n, fence) for run_id, n, fence in await session.rows(Verb.claimed_by, node)}
    freed = await session.each(Verb.park_runs, [(*one, node) for one in sorted(owned - runs)])
    return freed, await session.each(Verb.hand_back_steps, sorted(claimed - steps))
