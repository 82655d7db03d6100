"""The pool: each pass looks at its agents and at the steps that wait for them, and does what the plan says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.model import NodeRow
from holdfast.namespaces import ALL, bare
from holdfast.pool import badge
from holdfast.pool.badge import Badge
from holdfast.pool.fleet import Fleet, FleetAgent, StopMode
from holdfast.pool.plan import Load, Member, StartAgent, StopAgent, Strength, next_start_at, plan, weigh
from holdfast.store.roles import PoolStore

NODES_MAX = 10_000
"""At most this many live nodes are looked through for the pool's own."""


class PoolEvent(NamedTuple):
    """Something that the pool did or noticed."""

    event: str
    message: str
    more: Mapping[str, Any] = MappingProxyType({})
    wrong: bool = False


class Pool:
    def __init__(
        self,
        store: Callable[[], PoolStore],
        fleet: Fleet,
        *,
        name: str,
        least: int,
        most: int,
        environment: Environment,
        config: Config,
        on_event: Callable[[PoolEvent], None],
    ) -> None:
        self._store, self._fleet = store, fleet
        self.name, self._by = name, environment.new_id()
        self._environment, self._config, self._on_event = environment, config, on_event
        self._count = 0
        """How many times an agent was started, or should have been. Its number is an agent's name."""
        self._offers: tuple[frozenset[str], frozenset[str], bool] | None = None
        """(steps, labels) of the agent that came up last. This is what the pool can serve."""
        self.strength = Strength(least, most, wanted=least)
        self.load: Load | None = None
        self.hopeless: str | None = None
        """How the very first agent ended, if it ended because no agent can work here."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def renew(self, why: str) -> None:
        """Replace all agents by new ones, one after another."""
        strength = self.strength
        self.strength = strength._replace(generation=strength.generation + 1, proven=False, crashes=())
        self._on_event(PoolEvent("renew", f"{why}: agents are replaced one after another", {"why": why}))

    def leave(self) -> None:
        """Let all agents drain, and end."""
        self.strength = self.strength._replace(leaving=True)

    async def hurry(self, mode: StopMode) -> None:
        """End all agents now. They are draining already."""
        for member in self.strength.members:
            await self._fleet.stop(member.name, mode)

    @property
    def is_over(self) -> bool:
        return self.strength.leaving and not self.strength.members

    @property
    def trouble(self) -> str | None:
        """A sentence for people if agents do not stay up; None if they do."""
        if self.strength.troubled_since is None:
            return None
        at_work = len(self.strength.at_work)
        return (
            f"agents of pool {self.name} end soon after they are started; {at_work} of {self.strength.wanted} are at work, "
            f"and the pool tries one every {self._config.pool_slow_s:g} s until one stays"
        )

    def pulse(self) -> dict[str, Any]:
        """Return what the pool records about itself in the store when it renews its lease."""
        strength = self.strength
        counts: dict[str, Any] = {
            "least": strength.least,
            "most": strength.most,
            "wanted": strength.wanted,
            "at_work": len(strength.at_work),
        }
        return {"pool": counts} if self.trouble is None else {"pool": counts, "trouble": self.trouble}

    # --- one pass ---------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Do one pass: look, weigh, plan, act."""
        for agent in await self._fleet.living():
            if agent.ended is not None:
                self._gone(agent)
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001  whatever it is, the pool keeps its agents
            self.load = None
            reason = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            message = f"the pool cannot read the store, and keeps the agents it has: {reason}"
            self._on_event(PoolEvent("store", message, wrong=True))
        now, before = self._environment.monotonic(), self.strength
        self.strength = weigh(before, self.load, now, self._config)
        self._report_changes(before)
        for act in plan(self.strength, now, self._config):
            await (self._start(act) if isinstance(act, StartAgent) else self._stop(act))

    def _gone(self, agent: FleetAgent) -> None:
        """Remove an agent that has ended. If it ended unasked soon after its start, that is a crash."""
        now, strength = self._environment.monotonic(), self.strength
        (one,) = [member for member in strength.members if member.name == agent.member]
        members = tuple(member for member in strength.members if member is not one)
        asked = one.leaving_since is not None
        lived_s = now - one.started_at
        crashes = strength.crashes
        if not asked and not agent.orderly and (not one.came_up or lived_s < self._config.pool_steady_s):
            crashes = (*crashes, now)
            if agent.hopeless and self._count == 1:
                self.hopeless = agent.ended
        self.strength = strength._replace(members=members, crashes=crashes)
        more = {"agent": agent.member, "how": agent.ended, "asked": asked, "lived_s": round(lived_s, 3)}
        wait_s = next_start_at(self.strength, self._config) - now
        again = f"; the next one is started in {wait_s:.1f} s" if crashes and wait_s > 0 and not asked else ""
        self._on_event(PoolEvent("ended", f"agent {agent.member} ended {agent.ended}{again}", more))

    async def _look(self) -> None:
        """Read from the store which members are at work, and how many steps wait for them."""
        store = self._store()
        now = await store.now()
        nodes: dict[str, tuple[NodeRow, dict[str, Any]]] = {}
        for node in await store.nodes.living(NODES_MAX):
            offers = json.loads(node.offers)
            shown = badge.of_offers(offers)
            if shown is not None and shown.by == self._by and node.lease_until > now:
                nodes[shown.member] = node, offers
        at = self._environment.monotonic()
        members = tuple(self._updated(member, nodes.get(member.name), at) for member in self.strength.members)
        self.strength = self.strength._replace(members=members)
        if self._offers is not None:
            steps, labels, is_for_all = self._offers
            lanes = [
                lane.id
                for lane in await store.agents.lanes()
                if (bare(lane.name) if is_for_all else lane.name) in steps and labels.issuperset(lane.needs)
            ]
            backlog = await store.agents.backlog(lanes, self._config.pool_backlog_max)
            waited_s = 0.0 if backlog.since is None else max(0.0, now - backlog.since)
            self.load = Load(backlog.ready, waited_s)

    def _updated(self, member: Member, found: tuple[NodeRow, dict[str, Any]] | None, at: float) -> Member:
        """Return a member with what the store knows of it: its node and that node's offers, or None if it has no
        lease."""
        if found is None:
            lost_since = member.lost_since
            if member.came_up and lost_since is None:
                lost_since = at
            return member._replace(live=False, lost_since=lost_since)
        node, offers = found
        if not member.came_up:
            self._offers = (
                frozenset(offers.get("steps", ())),
                frozenset(offers.get("labels", ())),
                ALL in offers.get("namespaces", ()),
            )
            took_s = at - member.started_at
            more = {"agent": member.name, "node": node.id, "pid": node.pid, "seconds": round(took_s, 3)}
            message = f"agent {member.name} (pid {node.pid}) is at work after {took_s:.1f} s"
            self._on_event(PoolEvent("live", message, more))
        pulse = offers.get("pulse", {})
        assignments, full = pulse.get("has", 0), pulse.get("full", 0.0)
        return member._replace(live=True, came_up=True, lost_since=None, assignments=assignments, full=full)

    def _report_changes(self, before: Strength) -> None:
        after = self.strength
        if after.wanted != before.wanted and self.load is not None:
            why = (
                f"{self.load.ready:,} steps wait, the oldest for {self.load.waited_s:.1f} s"
                if after.wanted > before.wanted
                else "fewer are enough"
            )
            more = {
                "wanted": after.wanted,
                "before": before.wanted,
                "ready": self.load.ready,
                "waited_s": round(self.load.waited_s, 3),
            }
            self._on_event(PoolEvent("scale", f"{before.wanted} → {after.wanted} agents: {why}", more))
        if self.trouble is not None and before.troubled_since is None:
            self._on_event(PoolEvent("trouble", self.trouble, wrong=True))
        elif before.troubled_since is not None and after.troubled_since is None:
            self._on_event(PoolEvent("steady", "agents stay up again"))

    # --- acts -------------------------------------------------------------------------------------------------------

    async def _start(self, act: StartAgent) -> None:
        self._count += 1
        name = str(self._count)
        now = self._environment.monotonic()
        try:
            await self._fleet.start(name, Badge(self.name, name, self._by).text())
        except OSError as error:
            self.strength = self.strength._replace(crashes=(*self.strength.crashes, now))
            message = f"agent {name} cannot be started: {error}"
            self._on_event(PoolEvent("trouble", message, {"agent": name}, wrong=True))
            return
        member = Member(name, self.strength.generation, now)
        self.strength = self.strength._replace(members=(*self.strength.members, member))
        more = {"agent": name, "why": act.why}
        self._on_event(PoolEvent("start", f"agent {name} is started: {act.why}", more))

    async def _stop(self, act: StopAgent) -> None:
        now = self._environment.monotonic()
        await self._fleet.stop(act.member, act.mode)
        killed = act.mode is StopMode.KILL

        def marked(one: Member) -> Member:
            since = one.leaving_since if killed else now
            return one._replace(leaving_since=since, killed=killed)

        self.strength = self.strength._replace(
            members=tuple(marked(one) if one.name == act.member else one for one in self.strength.members)
        )
        what = "killed" if killed else "asked to drain"
        more = {"agent": act.member, "how": str(act.mode), "why": act.why}
        self._on_event(PoolEvent("stop", f"agent {act.member} is {what}: {act.why}", more, wrong=killed))
