"""How many agents a pool should have, and which ones to start and stop for that. Pure: what was seen goes in, acts come
out.

`weigh` moves the wanted number with the load, and judges whether agents that are started stay up. `plan` says which
agents to start and to stop for that number. Agents with new code are started beside the old ones. An old agent drains
only when a new one is at work, so that code that does not come up costs no agent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.config import Config
from holdfast.pool.fleet import StopMode

STARTING_MAX = 4
"""At most this many agents come up at the same time: each starts an interpreter and loads the code."""
ROOM = 0.5
"""One agent may leave if the others would then use at most this share of their capacity: far less than what makes the
pool grow."""
LEAVE_GRACE_S = 10.0
"""A draining agent is killed this long after the time it has to drain."""


class Load(NamedTuple):
    """The steps that wait for the pool's agents."""

    ready: int
    """How many they are, counted up to a limit."""
    waited_s: float
    """How long the oldest of them has been waiting."""


class Member(NamedTuple):
    name: str
    generation: int
    started_at: float
    live: bool = False
    """It is at work: it has a lease in the store."""
    came_up: bool = False
    """It has been at work at least once."""
    lost_since: float | None = None
    """Since when it has no lease in the store any more, though it was at work and its process has not ended."""
    leaving_since: float | None = None
    killed: bool = False
    assignments: int = 0
    """How many steps it has."""
    full: float = 0.0
    """How much of its capacity is used, from 0 to 1."""


class Strength(NamedTuple):
    """What a pool knows about its agents, and how many it wants."""

    least: int
    most: int
    wanted: int
    members: tuple[Member, ...] = ()
    generation: int = 1
    """The number of the code's generation. Members with an older one are replaced."""
    proven: bool = False
    """An agent of this generation has come up."""
    crashes: tuple[float, ...] = ()
    """When agents ended unasked soon after they were started."""
    troubled_since: float | None = None
    """Since when there are too many crashes. Until an agent stays up, the pool starts agents rarely."""
    quiet_since: float | None = None
    """Since when fewer agents would be enough."""
    leaving: bool = False
    """The pool lets all agents drain, and ends."""

    @property
    def staying(self) -> list[Member]:
        return [member for member in self.members if member.leaving_since is None]

    @property
    def at_work(self) -> list[Member]:
        return [member for member in self.staying if member.live]

    @property
    def outdated(self) -> list[Member]:
        return [member for member in self.staying if member.generation != self.generation]


class StartAgent(NamedTuple):
    why: str


class StopAgent(NamedTuple):
    member: str
    mode: StopMode
    why: str


Act = StartAgent | StopAgent


# --- how many ---------------------------------------------------------------------------------------------------------


def weigh(strength: Strength, load: Load | None, now: float, config: Config) -> Strength:
    """Return the strength with the wanted number moved by the load, and with crashes judged. `load` is None while it is
    unknown."""
    strength = _judged(strength, now, config)
    if load is None or strength.leaving:
        return strength
    if load.ready and load.waited_s > config.pool_wait_s:
        return _grown(strength._replace(quiet_since=None), load)
    used = sum(member.full for member in strength.at_work)
    if load.ready or strength.wanted <= strength.least or used > (strength.wanted - 1) * ROOM:
        return strength._replace(quiet_since=None)
    since = now if strength.quiet_since is None else strength.quiet_since
    if now - since < config.pool_idle_s:
        return strength._replace(quiet_since=since)
    return strength._replace(wanted=strength.wanted - 1, quiet_since=now)


def _grown(strength: Strength, load: Load) -> Strength:
    """Return the strength with more agents wanted: as many more as what waits needs, if each executes as many steps as
    one does now; at most twice as many as before. While agents are still coming up, nothing is added: they may be
    enough."""
    at_work = strength.at_work
    if len(at_work) < strength.wanted:
        return strength
    each = max(1.0, sum(member.assignments for member in at_work) / len(at_work))
    more = min(math.ceil(load.ready / each), strength.wanted)
    return strength._replace(wanted=min(strength.wanted + more, strength.most))


def _judged(strength: Strength, now: float, config: Config) -> Strength:
    """Return the strength with old crashes forgotten, and with trouble begun or ended by the recent ones."""
    recent = tuple(at for at in strength.crashes if at > now - config.pool_window_s)
    since = strength.troubled_since
    if since is None and len(recent) > config.pool_crashes_max:
        since = now
    elif since is not None and _has_stayed(strength.at_work, since, now, config):
        since, recent = None, ()
    proven = strength.proven or any(
        member.came_up and member.generation == strength.generation for member in strength.members
    )
    return strength._replace(crashes=recent, troubled_since=since, proven=proven)


def _has_stayed(members: Iterable[Member], since: float, now: float, config: Config) -> bool:
    """True if an agent that was started after `since` has lived longer than `pool_steady_s`."""
    return any(
        member.started_at > since and now - member.started_at > config.pool_steady_s for member in members
    )


# --- what to do -------------------------------------------------------------------------------------------------------


def plan(strength: Strength, now: float, config: Config) -> list[Act]:
    """Return what to do now. What was done before shows in the members."""
    hung = _hung(strength, now, config)
    if strength.leaving:
        return [
            *hung,
            *(StopAgent(member.name, StopMode.DRAIN, "the pool leaves") for member in strength.staying),
        ]
    return [*hung, *_surplus(strength), *_starts(strength, now, config)]


def _surplus(strength: Strength) -> list[Act]:
    """Stop agents at work that are too many: those with old code first, then those with the fewest steps."""
    at_work = strength.at_work
    leavers = sorted(
        at_work,
        key=lambda one: (one.generation == strength.generation, one.assignments, -one.started_at),
    )[: max(0, len(at_work) - strength.wanted)]
    return [
        StopAgent(
            one.name,
            StopMode.DRAIN,
            "replaced" if one.generation != strength.generation else "not needed now",
        )
        for one in leavers
    ]


def _starts(strength: Strength, now: float, config: Config) -> list[Act]:
    if now < next_start_at(strength, config):
        return []
    staying, outdated = strength.staying, strength.outdated
    coming = [member for member in staying if not member.came_up]
    # While it is not known whether agents come up with this code, one at a time tries it.
    room = (STARTING_MAX if strength.proven and strength.troubled_since is None else 1) - len(coming)
    missing = strength.wanted - len(staying)
    acts: list[Act] = [StartAgent("there are fewer than wanted") for _ in range(min(missing, room))]
    if missing <= 0:
        beside = max(1, strength.wanted // 4) if strength.proven else 1
        renewing = min(beside + missing, len(outdated) - len([one for one in coming if one not in outdated]))
        acts += [StartAgent("replaces one with older code") for _ in range(min(renewing, room))]
    return acts


def next_start_at(strength: Strength, config: Config) -> float:
    """Return the time before which no agent is started, because of recent crashes."""
    if not strength.crashes:
        return -math.inf
    if strength.troubled_since is not None:
        return strength.crashes[-1] + config.pool_slow_s
    back_off_s: float = config.pool_back_off_s * 2 ** (len(strength.crashes) - 1)
    return strength.crashes[-1] + min(back_off_s, config.pool_slow_s)


def _hung(strength: Strength, now: float, config: Config) -> list[Act]:
    """Kill agents that do not come up, do not leave, or live on without their lease."""
    acts: list[Act] = []
    for one in strength.members:
        if one.killed:
            continue
        if one.leaving_since is not None:
            if now - one.leaving_since > config.drain_s + LEAVE_GRACE_S:
                acts.append(StopAgent(one.name, StopMode.KILL, "it did not leave in time"))
        elif not one.came_up:
            if now - one.started_at > config.pool_live_s:
                acts.append(StopAgent(one.name, StopMode.KILL, "it did not come up in time"))
        elif one.lost_since is not None and now - one.lost_since > 2 * config.lease_s:
            acts.append(StopAgent(one.name, StopMode.KILL, "it lost its lease and did not end"))
    return acts
