"""What a node asks for itself: its row, its lease, its doorbell; and what anybody may know of nodes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from holdfast.model import Declaration, NodeRow
from holdfast.store.bell import Bell
from holdfast.store.database import Part, Session, look, transaction
from holdfast.store.origins import Offers
from holdfast.store.verbs import Verb
from holdfast.store.workflows import declare


class Nodes(Part):
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
    ) -> None:
        """Enter the node's row, with a lease from now, and with it what its code declares. NameTaken, and nothing is entered, if
        a live node publishes one of its names from elsewhere (see `claims`). A node may register again, when its code has
        changed; its lease stays as it is."""
        self._database.processes.take(node)
        await self._register(node, (host, pid, roles, offers, capacity, lease_s), declared)

    @transaction
    async def _register(
        self,
        session: Session,
        node: str,
        about: tuple[str, int, str, str, int, float],
        declared: Sequence[Declaration],
    ) -> None:
        claims = Offers.read(about[3])
        await declare(session, self._database.processes, node, claims, declared)
        await session.run(Verb.register, node, *about, claims.code)

    @property
    def shared_url(self) -> str | None:
        """The address under which other processes of this host find this store; None when it is in this one's memory."""
        return self._database.shared_url

    async def renew(self, node: str, lease_s: float, pulse: str | None = None) -> float | None:
        """Renew the lease, and note what the node says of itself (a JSON object, kept in `offers.pulse` with its time);
        the store's time, or None when the node was reclaimed. Never waits for the writer."""
        return await self._database.renew(node, lease_s, pulse)

    async def retire(self, node: str) -> None:
        """Leave: nothing is kept."""
        await self._retire(node)
        self._database.processes.let_go(node)

    @transaction
    async def _retire(self, session: Session, node: str) -> None:
        await _give_up(session, node, set(), set())
        await session.run(Verb.resign, node)
        await session.run(Verb.retire, node)

    @transaction
    async def reconcile(
        self,
        session: Session,
        node: str,
        runs: Sequence[tuple[str, int]],
        steps: Sequence[tuple[str, int, int]],
    ) -> tuple[int, int]:
        """Give up whatever the store says this node has beyond these, named with their fences (a reply was lost): runs are
        parked, steps handed back. Returns how many of each."""
        return await _give_up(session, node, set(runs), set(steps))

    async def ring(self, bells: set[Bell]) -> None:
        await self._database.ring(bells)

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        """Call `heard(bell)` for bells rung by other nodes, until the returned `close()` coroutine function is called."""
        return await self._database.listen(heard)

    @look
    async def nodes(self, session: Session) -> list[NodeRow]:
        """Those that live first, then the newest."""
        return [NodeRow(*row) for row in await session.rows(Verb.nodes)]

    @look
    async def living(self, session: Session, limit: int) -> list[NodeRow]:
        """Nodes that have not left, those with the longest leases first."""
        return [NodeRow(*row) for row in await session.rows(Verb.living, limit)]

    @look
    async def loads(self, session: Session) -> dict[str, tuple[int, int]]:
        """(steps executed, runs owned) of every node that has any."""
        return {node: (steps, runs) for node, steps, runs in await session.rows(Verb.loads)}


async def _give_up(
    session: Session, node: str, runs: set[tuple[str, int]], steps: set[tuple[str, int, int]]
) -> tuple[int, int]:
    """Park the node's runs and hand its steps back, but for these."""
    owned = {(run_id, fence) for run_id, fence in await session.rows(Verb.owned_by, node)}
    held = {(run_id, n, fence) for run_id, n, fence in await session.rows(Verb.claimed_by, node)}
    parked = await session.each(Verb.park_runs, [(*one, node) for one in sorted(owned - runs)])
    return parked, await session.each(Verb.hand_back_steps, sorted(held - steps))
