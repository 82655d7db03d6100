"""How many agents there should be, and what to do so that there are. Pure: what was seen goes in, acts come out.

`weigh` moves the wanted number with the load and judges whether starting works at all; `plan` says what to start and what
to stop for that number. New code is started beside the old: an old agent is told to leave when a new one is at work, so
that code that does not come up takes nothing away.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.config import Config
from holdfast.pool.fleet import How

STARTING_MAX = 4
"""Agents that come up at the same time: each costs an interpreter and the loading of the code."""
ROOM = 0.5
"""One agent may leave when the others would be full by no more than this: far from what makes the pool grow."""
LEAVE_GRACE_S = 10.0
"""Beyond the time an agent has to drain, before it is killed."""


class Load(NamedTuple):
    """What waits for the pool's agents."""

    ready: int
    waited_s: float
    """The oldest of it."""


class Member(NamedTuple):
    name: str
    generation: int
    started_at: float
    live: bool = False
    """It is at work: the store has its lease."""
    came_up: bool = False
    """It was, at least once."""
    lost_since: float | None = None
    """It was at work, and the store knows it no more, though it has not ended."""
    leaving_since: float | None = None
    killed: bool = False
    held: int = 0
    """Steps it holds."""
    full: float = 0.0
    """How much of its capacity is used, from 0 to 1."""


class Strength(NamedTuple):
    least: int
    most: int
    wanted: int
    members: tuple[Member, ...] = ()
    generation: int = 1
    """Of the code. Members with an older one are replaced."""
    proven: bool = False
    """An agent of this generation has come up."""
    crashes: tuple[float, ...] = ()
    """When agents ended by themselves soon after they were started."""
    troubled_since: float | None = None
    """There were too many of those: agents are started rarely until one stays."""
    quiet_since: float | None = None
    """Fewer agents would do since then."""
    leaving: bool = False

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
    how: How
    why: str


Act = StartAgent | StopAgent


# --- how many ---------------------------------------------------------------------------------------------------------


def weigh(strength: Strength, load: Load | None, now: float, config: Config) -> Strength:
    """Take in the load, and whether agents that are started stay."""
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
    """By as many as would hold what waits, if each holds what one holds now; twice as many at most. Those that are still
    coming up are waited for: they may be enough."""
    at_work = strength.at_work
    if len(at_work) < strength.wanted:
        return strength
    each = max(1.0, sum(member.held for member in at_work) / len(at_work))
    more = min(math.ceil(load.ready / each), strength.wanted)
    return strength._replace(wanted=min(strength.wanted + more, strength.most))


def _judged(strength: Strength, now: float, config: Config) -> Strength:
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
    return any(
        member.started_at > since and now - member.started_at > config.pool_steady_s for member in members
    )


# --- what to do -------------------------------------------------------------------------------------------------------


def plan(strength: Strength, now: float, config: Config) -> list[Act]:
    """What to do now, given that whatever was done before is seen in the members."""
    hung = _hung(strength, now, config)
    if strength.leaving:
        return [*hung, *(StopAgent(member.name, How.DRAIN, "the pool leaves") for member in strength.staying)]
    return [*hung, *_surplus(strength), *_starts(strength, now, config)]


def _surplus(strength: Strength) -> list[Act]:
    """Of those at work, the outdated first, then those that hold least."""
    at_work = strength.at_work
    leavers = sorted(
        at_work,
        key=lambda one: (one.generation == strength.generation, one.held, -one.started_at),
    )[: max(0, len(at_work) - strength.wanted)]
    return [
        StopAgent(
            one.name, How.DRAIN, "replaced" if one.generation != strength.generation else "not needed now"
        )
        for one in leavers
    ]


def _starts(strength: Strength, now: float, config: Config) -> list[Act]:
    if now < next_start_at(strength, config):
        return []
    staying, outdated = strength.staying, strength.outdated
    coming = [member for member in staying if not member.came_up]
    # Nobody knows yet whether this code comes up at all: one tries it.
    room = (STARTING_MAX if strength.proven and strength.troubled_since is None else 1) - len(coming)
    missing = strength.wanted - len(staying)
    acts: list[Act] = [StartAgent("below strength") for _ in range(min(missing, room))]
    if missing <= 0:
        beside = max(1, strength.wanted // 4) if strength.proven else 1
        renewing = min(beside + missing, len(outdated) - len([one for one in coming if one not in outdated]))
        acts += [StartAgent("replaces one with older code") for _ in range(min(renewing, room))]
    return acts


def next_start_at(strength: Strength, config: Config) -> float:
    """Not before, because of what ended soon after its start."""
    if not strength.crashes:
        return -math.inf
    if strength.troubled_since is not None:
        return strength.crashes[-1] + config.pool_slow_s
    back_off_s: float = config.pool_back_off_s * 2 ** (len(strength.crashes) - 1)
    return strength.crashes[-1] + min(back_off_s, config.pool_slow_s)


def _hung(strength: Strength, now: float, config: Config) -> list[Act]:
    """Those that do not come up, do not leave, or live on without their lease."""
    acts: list[Act] = []
    for one in strength.members:
        if one.killed:
            continue
        if one.leaving_since is not None:
            if now - one.leaving_since > config.drain_s + LEAVE_GRACE_S:
                acts.append(StopAgent(one.name, How.KILL, "it did not leave in time"))
        elif not one.came_up:
            if now - one.started_at > config.pool_live_s:
                acts.append(StopAgent(one.name, How.KILL, "it did not come up in time"))
        elif one.lost_since is not None and now - one.lost_since > 2 * config.lease_s:
            acts.append(StopAgent(one.name, How.KILL, "it lost its lease and did not end"))
    return acts
