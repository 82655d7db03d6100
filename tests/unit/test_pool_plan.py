"""How many agents a pool wants, and what it does to get them. Pure functions decide it from facts."""

from typing import Any

import pytest

from holdfast.config import Config
from holdfast.pool.fleet import StopMode
from holdfast.pool.plan import Load, Member, StartAgent, StopAgent, Strength, next_start_at, plan, weigh

CONFIG = Config()
NOW = 1000.0


def member(name: str, *, old: bool = False, **more: Any) -> Member:
    """Return an agent that has been at work for long, unless `more` says otherwise."""
    values = {"live": True, "came_up": True, "assignments": 1, "full": 0.1}
    return Member(name, 1 if old else 2, NOW - 500, **(values | more))


def coming(name: str) -> Member:
    return member(name, live=False, came_up=False, assignments=0, full=0.0)._replace(started_at=NOW - 1)


def strength(*members: Member, least: int = 1, most: int = 8, **more: Any) -> Strength:
    values = {"wanted": max(least, len(members)), "generation": 2, "proven": True}
    return Strength(least, most, members=members, **(values | more))


def starts(found: list[Any]) -> int:
    return sum(isinstance(act, StartAgent) for act in found)


def drained(found: list[Any]) -> list[str]:
    return [act.member for act in found if isinstance(act, StopAgent) and act.mode is StopMode.DRAIN]


def test_a_new_pool_tries_one_agent_first() -> None:
    """Nobody knows yet whether the code comes up. When it has, the others follow, a few at a time."""
    first = Strength(6, 8, wanted=6)
    assert plan(first, NOW, CONFIG) == [StartAgent("there are fewer than wanted")]
    assert plan(strength(coming("1"), least=6, proven=False), NOW, CONFIG) == []
    assert starts(plan(strength(member("1"), least=6), NOW, CONFIG)) == 4
    up = weigh(strength(member("1"), least=6, proven=False), None, NOW, CONFIG)
    assert up.proven


@pytest.mark.parametrize(
    ("load", "assignments", "wanted"),
    [
        (Load(0, 0.0), 1, 2),
        (Load(50, 0.5), 1, 2),
        (Load(1, 1.5), 1, 3),
        (Load(500, 1.5), 1, 4),
        (Load(40, 1.5), 40, 3),
        (Load(80, 1.5), 40, 4),
    ],
    ids=[
        "nothing waits",
        "not for long",
        "one waits",
        "twice at most",
        "room at one more",
        "room at two more",
    ],
)
def test_it_grows_with_what_waits(load: Load, assignments: int, wanted: int) -> None:
    """When something waits too long, it grows by as many as have room for what waits, and never by more than there
    are."""
    two = strength(
        member("1", assignments=assignments, full=1.0), member("2", assignments=assignments, full=1.0)
    )
    assert weigh(two, load, NOW, CONFIG).wanted == wanted


def test_it_grows_no_further_than_it_may_nor_before_the_last_have_come_up() -> None:
    """Agents that are about to come up may be enough."""
    waiting = Load(1000, 60.0)
    assert weigh(strength(member("1"), member("2"), member("3"), most=4), waiting, NOW, CONFIG).wanted == 4
    assert weigh(strength(member("1"), coming("2")), waiting, NOW, CONFIG).wanted == 2
    assert weigh(strength(member("1")), None, NOW, CONFIG).wanted == 1


def test_it_shrinks_by_one_when_fewer_would_have_done_for_a_while() -> None:
    """The bound is half full, far from what makes it grow. Work in between starts the waiting anew."""
    idle = Load(0, 0.0)
    four = strength(*(member(str(n), full=0.3) for n in range(4)))
    quiet = weigh(four, idle, NOW, CONFIG)
    assert (quiet.wanted, quiet.quiet_since) == (4, NOW)
    later = NOW + CONFIG.pool_idle_s - 1
    assert weigh(quiet, idle, later, CONFIG).wanted == 4
    assert weigh(quiet, Load(3, 0.2), later, CONFIG).quiet_since is None
    fewer = weigh(quiet, idle, later + 2, CONFIG)
    assert (fewer.wanted, fewer.quiet_since) == (3, later + 2)
    assert (
        weigh(strength(*(member(str(n), full=0.6) for n in range(4))), idle, NOW, CONFIG).quiet_since is None
    )
    assert weigh(strength(member("1"), member("2"), least=2), idle, NOW, CONFIG).quiet_since is None


def test_the_one_that_has_the_fewest_steps_leaves() -> None:
    """Then the fewest steps are handed back."""
    three = strength(
        member("1", assignments=5), member("2", assignments=0), member("3", assignments=2), wanted=2
    )
    assert plan(three, NOW, CONFIG) == [StopAgent("2", StopMode.DRAIN, "not needed now")]


def test_new_code_is_started_beside_the_old() -> None:
    """One new agent starts, and when it is at work one old one leaves. There are never fewer at work than wanted."""
    old = (member("1", old=True), member("2", old=True))
    assert plan(strength(*old, wanted=2, proven=False), NOW, CONFIG) == [
        StartAgent("replaces one with older code")
    ]
    assert plan(strength(*old, coming("3"), wanted=2, proven=False), NOW, CONFIG) == []
    acts = plan(strength(*old, member("3"), wanted=2), NOW, CONFIG)
    assert acts == [StopAgent("1", StopMode.DRAIN, "replaced")]
    half = (member("1", old=True, leaving_since=NOW), *old[1:], member("3"))
    assert plan(strength(*half, wanted=2), NOW, CONFIG) == [StartAgent("replaces one with older code")]
    assert plan(strength(member("3"), member("4"), wanted=2), NOW, CONFIG) == []


def test_many_are_replaced_some_at_a_time_once_the_code_has_come_up() -> None:
    """A quarter of them start beside the old ones."""
    eight = [member(str(n), old=True) for n in range(8)]
    assert starts(plan(strength(*eight, proven=False), NOW, CONFIG)) == 1
    assert starts(plan(strength(*eight), NOW, CONFIG)) == 2
    assert starts(plan(strength(*eight, coming("9"), wanted=8), NOW, CONFIG)) == 1
    last = [member("1", old=True), *(member(str(n)) for n in range(2, 9))]
    assert starts(plan(strength(*last), NOW, CONFIG)) == 1
    assert starts(plan(strength(*last, coming("9"), wanted=8), NOW, CONFIG)) == 0


def test_new_code_that_does_not_come_up_takes_nothing_away() -> None:
    """The old agents stay as long as no new one is at work."""
    failing = strength(
        member("1", old=True), wanted=1, proven=False, crashes=(NOW - 1, NOW), troubled_since=NOW
    )
    for after_s in (0.0, 5.0, 31.0):
        assert drained(plan(failing, NOW + after_s, CONFIG)) == []


def test_crashes_back_off_and_then_starts_are_rare() -> None:
    """The wait doubles after each crash. After too many, starts are so rare that they cost nothing. When an agent stays
    up, all is as before."""
    none = strength(least=2, wanted=2)
    waits = []
    for crashes in range(1, 8):
        seen = weigh(
            none._replace(crashes=tuple(NOW - n / 10 for n in reversed(range(crashes)))), None, NOW, CONFIG
        )
        waits.append(next_start_at(seen, CONFIG) - NOW)
        assert (seen.troubled_since is not None) == (crashes > CONFIG.pool_crashes_max)
    assert [round(wait, 1) for wait in waits] == [0.2, 0.4, 0.8, 1.6, 3.2, 30.0, 30.0]
    troubled = none._replace(crashes=(NOW,), troubled_since=NOW)
    assert plan(troubled, NOW + 29, CONFIG) == []
    assert starts(plan(troubled, NOW + 31, CONFIG)) == 1
    young = member("9")._replace(started_at=NOW + 31)
    assert weigh(troubled._replace(members=(young,)), None, NOW + 60, CONFIG).troubled_since is not None
    steady = weigh(troubled._replace(members=(young,)), None, NOW + 62, CONFIG)
    assert (steady.troubled_since, steady.crashes) == (None, ())


def test_crashes_are_forgotten() -> None:
    """What happened long ago delays nothing."""
    assert weigh(strength(crashes=(NOW - 61, NOW - 2)), None, NOW, CONFIG).crashes == (NOW - 2,)


def test_a_pool_that_leaves_drains_all_and_starts_none() -> None:
    """Each agent gets one order to drain."""
    leaving = strength(member("1"), coming("2"), member("3", leaving_since=NOW - 1), least=5, leaving=True)
    assert plan(leaving, NOW, CONFIG) == [
        StopAgent("1", StopMode.DRAIN, "the pool leaves"),
        StopAgent("2", StopMode.DRAIN, "the pool leaves"),
    ]
    assert weigh(leaving, Load(100, 100.0), NOW, CONFIG).wanted == leaving.wanted


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (member("1", leaving_since=NOW - 41), "it did not leave in time"),
        (coming("1")._replace(started_at=NOW - 61), "it did not come up in time"),
        (member("1", live=False, lost_since=NOW - 21), "it lost its lease and did not end"),
    ],
)
def test_what_hangs_is_killed_once(one: Member, why: str) -> None:
    """Each case has its own time limit."""
    assert StopAgent("1", StopMode.KILL, why) in plan(strength(one), NOW, CONFIG)
    assert StopAgent("1", StopMode.KILL, why) not in plan(strength(one._replace(killed=True)), NOW, CONFIG)
    sooner = NOW - 20
    assert StopAgent("1", StopMode.KILL, why) not in plan(strength(one), sooner, CONFIG)
