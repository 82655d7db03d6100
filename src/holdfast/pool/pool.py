"""The pool: one pass looks at its agents and at what waits for them, and does what the plan says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import StoreError
from holdfast.model import NodeRow
from holdfast.pool import badge
from holdfast.pool.badge import Badge
from holdfast.pool.fleet import Fleet, How, Seen
from holdfast.pool.plan import Load, Member, StartAgent, StopAgent, Strength, next_start_at, plan, weigh
from holdfast.store.roles import PoolStore

NODES_MAX = 10_000
"""Live nodes that are looked through for the pool's own."""


class PoolEvent(NamedTuple):
    """Something the pool did or saw."""

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
        tell: Callable[[PoolEvent], None],
    ) -> None:
        self._store, self._fleet = store, fleet
        self.name, self._by = name, environment.new_id()
        self._environment, self._config, self._tell = environment, config, tell
        self._count = 0
        self._offers: tuple[frozenset[str], frozenset[str]] | None = None
        """(steps, labels) of the agent that came up last: what the pool can serve."""
        self.strength = Strength(least, most, wanted=least)
        self.load: Load | None = None
        self.hopeless: str | None = None
        """The first agent of all said that none can work here."""

    # --- what it is told --------------------------------------------------------------------------------------------

    def renew(self, why: str) -> None:
        """Replace all agents, one after another, by new ones."""
        strength = self.strength
        self.strength = strength._replace(generation=strength.generation + 1, proven=False, crashes=())
        self._tell(PoolEvent("renew", f"{why}: agents are replaced one after another", {"why": why}))

    def leave(self) -> None:
        """Let all agents drain, and end."""
        self.strength = self.strength._replace(leaving=True)

    async def hurry(self, how: How) -> None:
        """They have been told to drain: now they end."""
        for member in self.strength.members:
            await self._fleet.stop(member.name, how)

    @property
    def is_over(self) -> bool:
        return self.strength.leaving and not self.strength.members

    @property
    def trouble(self) -> str | None:
        """What a person should know."""
        if self.strength.troubled_since is None:
            return None
        at_work = len(self.strength.at_work)
        return (
            f"agents of pool {self.name} end soon after they are started; {at_work} of {self.strength.wanted} are at work, "
            f"and one is tried every {self._config.pool_slow_s:g} s"
        )

    def pulse(self) -> dict[str, Any]:
        """What the store is told of the pool while it lives."""
        strength = self.strength
        told: dict[str, Any] = {
            "least": strength.least,
            "most": strength.most,
            "wanted": strength.wanted,
            "at_work": len(strength.at_work),
        }
        return {"pool": told} if self.trouble is None else {"pool": told, "trouble": self.trouble}

    # --- one pass ---------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Look, weigh, plan, act."""
        for seen in await self._fleet.living():
            if seen.ended is not None:
                self._gone(seen)
        try:
            await self._look()
        except Exception as error:  # noqa: BLE001  whatever it is, agents that work are not given up for it
            self.load = None
            told = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
            self._tell(PoolEvent("store", f"the pool keeps what it has: {told}", wrong=True))
        now, before = self._environment.monotonic(), self.strength
        self.strength = weigh(before, self.load, now, self._config)
        self._say_what_changed(before)
        for act in plan(self.strength, now, self._config):
            await (self._start(act) if isinstance(act, StartAgent) else self._stop(act))

    def _gone(self, seen: Seen) -> None:
        now, strength = self._environment.monotonic(), self.strength
        (one,) = [member for member in strength.members if member.name == seen.member]
        members = tuple(member for member in strength.members if member is not one)
        asked = one.leaving_since is not None
        lived_s = now - one.started_at
        crashes = strength.crashes
        if not asked and not seen.orderly and (not one.came_up or lived_s < self._config.pool_steady_s):
            crashes = (*crashes, now)
            if seen.hopeless and self._count == 1:
                self.hopeless = seen.ended
        self.strength = strength._replace(members=members, crashes=crashes)
        what = {"agent": seen.member, "how": seen.ended, "asked": asked, "lived_s": round(lived_s, 3)}
        wait_s = next_start_at(self.strength, self._config) - now
        again = f"; the next one is started in {wait_s:.1f} s" if crashes and wait_s > 0 and not asked else ""
        self._tell(PoolEvent("ended", f"agent {seen.member} ended {seen.ended}{again}", what))

    async def _look(self) -> None:
        """What the store knows of the members, and what waits for them."""
        store = self._store()
        now = await store.now()
        shown: dict[str, tuple[NodeRow, dict[str, Any]]] = {}
        for node in await store.nodes.living(NODES_MAX):
            offers = json.loads(node.offers)
            worn = badge.of_offers(offers)
            if worn is not None and worn.by == self._by and node.lease_until > now:
                shown[worn.member] = node, offers
        at = self._environment.monotonic()
        members = tuple(self._seen(member, shown.get(member.name), at) for member in self.strength.members)
        self.strength = self.strength._replace(members=members)
        if self._offers is not None:
            steps, labels = self._offers
            lanes = [
                lane.id
                for lane in await store.agents.lanes()
                if lane.name in steps and labels.issuperset(lane.needs)
            ]
            backlog = await store.agents.backlog(lanes, self._config.pool_backlog_max)
            waited_s = 0.0 if backlog.since is None else max(0.0, now - backlog.since)
            self.load = Load(backlog.ready, waited_s)

    def _seen(self, member: Member, shown: tuple[NodeRow, dict[str, Any]] | None, at: float) -> Member:
        if shown is None:
            lost_since = member.lost_since
            if member.came_up and lost_since is None:
                lost_since = at
            return member._replace(live=False, lost_since=lost_since)
        node, offers = shown
        if not member.came_up:
            self._offers = frozenset(offers.get("steps", ())), frozenset(offers.get("labels", ()))
            took_s = at - member.started_at
            more = {"agent": member.name, "node": node.id, "pid": node.pid, "seconds": round(took_s, 3)}
            self._tell(
                PoolEvent(
                    "live", f"agent {member.name} (pid {node.pid}) is at work after {took_s:.1f} s", more
                )
            )
        pulse = offers.get("pulse", {})
        return member._replace(
            live=True, came_up=True, lost_since=None, held=pulse.get("held", 0), full=pulse.get("full", 0.0)
        )

    def _say_what_changed(self, before: Strength) -> None:
        after = self.strength
        if after.wanted != before.wanted and self.load is not None:
            why = (
                f"{self.load.ready:,} steps wait, the oldest for {self.load.waited_s:.1f} s"
                if after.wanted > before.wanted
                else "fewer will do"
            )
            more = {
                "wanted": after.wanted,
                "before": before.wanted,
                "ready": self.load.ready,
                "waited_s": round(self.load.waited_s, 3),
            }
            self._tell(PoolEvent("scale", f"{before.wanted} → {after.wanted} agents: {why}", more))
        if self.trouble is not None and before.troubled_since is None:
            self._tell(PoolEvent("trouble", self.trouble, wrong=True))
        elif before.troubled_since is not None and after.troubled_since is None:
            self._tell(PoolEvent("steady", "agents stay again"))

    # --- acts -------------------------------------------------------------------------------------------------------

    async def _start(self, act: StartAgent) -> None:
        self._count += 1
        name = str(self._count)
        now = self._environment.monotonic()
        try:
            await self._fleet.start(name, Badge(self.name, name, self._by).text())
        except OSError as error:
            self.strength = self.strength._replace(crashes=(*self.strength.crashes, now))
            self._tell(
                PoolEvent("trouble", f"agent {name} cannot be started: {error}", {"agent": name}, wrong=True)
            )
            return
        member = Member(name, self.strength.generation, now)
        self.strength = self.strength._replace(members=(*self.strength.members, member))
        self._tell(PoolEvent("start", f"agent {name} is started: {act.why}", {"agent": name, "why": act.why}))

    async def _stop(self, act: StopAgent) -> None:
        now = self._environment.monotonic()
        await self._fleet.stop(act.member, act.how)
        killed = act.how is How.KILL

        def marked(one: Member) -> Member:
            since = one.leaving_since if killed else now
            return one._replace(leaving_since=since, killed=killed)

        self.strength = self.strength._replace(
            members=tuple(marked(one) if one.name == act.member else one for one in self.strength.members)
        )
        what = "killed" if killed else "told to drain"
        more = {"agent": act.member, "how": str(act.how), "why": act.why}
        self._tell(PoolEvent("stop", f"agent {act.member} is {what}: {act.why}", more, wrong=killed))
