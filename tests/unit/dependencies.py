"""Dependencies with a knee, in a closed loop: as many calls as the number allows, for ever. Nothing waits for real.

python -m tests.unit.dependencies          compares ways to move the number
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from holdfast.adaptation import LimitLook, LimitWatch, first_number, look_at

CEILING = 50
SERVICE_S = 0.02


class Answered(NamedTuple):
    seconds: float
    ok: bool


Dependency = Callable[[int, float, Random], Answered]
"""(calls at once, time, dice) to how one call is answered."""


def queueing(bears: float, service_s: float = SERVICE_S, spread: float = 0.1) -> Dependency:
    """Calls beyond what it bears wait their turn."""

    def answer(at_once: int, now: float, dice: Random) -> Answered:
        return Answered(_varied(service_s * max(1.0, at_once / bears), spread, dice), ok=True)

    return answer


def degrading(bears: float, service_s: float = SERVICE_S) -> Dependency:
    """Beyond what it bears, it does less than before: everything takes the square of the overload."""

    def answer(at_once: int, now: float, dice: Random) -> Answered:
        return Answered(_varied(service_s * max(1.0, at_once / bears) ** 2, 0.1, dice), ok=True)

    return answer


def refusing(bears: float, service_s: float = SERVICE_S) -> Dependency:
    """Calls beyond what it bears fail at once."""

    def answer(at_once: int, now: float, dice: Random) -> Answered:
        return Answered(_varied(service_s, 0.1, dice), ok=at_once <= bears)

    return answer


def changing(at_s: float, before: Dependency, after: Dependency) -> Dependency:
    return lambda at_once, now, dice: (before if now < at_s else after)(at_once, now, dice)


def _varied(seconds: float, spread: float, dice: Random) -> float:
    return seconds * dice.gammavariate(1 / spread**2, spread**2)


class Mover(Protocol):
    def first(self, ceiling: int) -> int: ...
    def move(self, row: LimitLook, now: float) -> int: ...


class Ours:
    """`holdfast.adaptation`."""

    def __init__(self) -> None:
        self.watch: LimitWatch | None = None
        self.usual_s: float | None = None
        self.whys: list[str] = []

    def first(self, ceiling: int) -> int:
        return first_number(ceiling, 1)

    def move(self, row: LimitLook, now: float) -> int:
        self.watch, move = look_at(row._replace(usual_s=self.usual_s), self.watch, now)
        if move is None:
            return row.most
        self.usual_s = move.usual_s
        if move.why is not None:
            self.whys.append(f"{now:.0f} s: {move.most} of {row.ceiling}: {move.why}")
        return move.most


class Aimd:
    """One more a second, and half after failures or if attempts take twice as long as the fastest window."""

    def __init__(self) -> None:
        self.before = (0, 0, 0.0)
        self.fastest_s = math.inf

    def first(self, ceiling: int) -> int:
        return first_number(ceiling, 1)

    def move(self, row: LimitLook, now: float) -> int:
        ok, failed, seconds = (
            row.ok - self.before[0],
            row.failed - self.before[1],
            row.seconds - self.before[2],
        )
        self.before = (row.ok, row.failed, row.seconds)
        took_s = seconds / ok if ok else math.inf
        self.fastest_s = min(self.fastest_s, took_s)
        if failed * 10 >= ok + failed > 0 or took_s > 2 * self.fastest_s:
            return max(1, row.most // 2)
        return min(row.ceiling, row.most + 1)


class Vegas(Aimd):
    """Few waiting inside the dependency, by the fastest window that there was."""

    def move(self, row: LimitLook, now: float) -> int:
        ok, failed, seconds = (
            row.ok - self.before[0],
            row.failed - self.before[1],
            row.seconds - self.before[2],
        )
        self.before = (row.ok, row.failed, row.seconds)
        if failed * 10 >= ok + failed > 0:
            return max(1, int(row.most * 0.7))
        if not ok:
            return row.most
        took_s = seconds / ok
        self.fastest_s = min(self.fastest_s, took_s)
        waiting = row.most * (1 - self.fastest_s / took_s)
        step = max(1, round(math.log10(row.most)))
        if waiting < 3 * math.log10(row.most) or row.most == 1:
            return min(row.ceiling, row.most + step)
        return max(1, row.most - step) if waiting > 6 * math.log10(row.most) else row.most


class Played(NamedTuple):
    numbers: list[int]
    """The number in force, each second."""
    ok: list[int]
    failed: list[int]


def play(
    mover: Mover,
    dependency: Dependency,
    seconds: int,
    *,
    seed: int = 1,
    ceiling: int = CEILING,
    wanted: Callable[[float], int] = lambda now: 10**9,
    overhead_s: float = 0.002,
) -> Played:
    """Let calls be made for so many seconds. `wanted` is how many would like to be at work at a time."""
    dice, number = Random(seed), mover.first(ceiling)
    ends: list[tuple[float, float, bool]] = []
    sums, played, now, look_at_s = [0, 0, 0.0], Played([], [], []), 0.0, 1
    idle_until: list[float] = []
    while look_at_s <= seconds:
        while idle_until and idle_until[0] <= now:
            heapq.heappop(idle_until)
        while len(ends) + len(idle_until) < min(number, wanted(now)):
            found = dependency(len(ends) + 1, now, dice)
            heapq.heappush(ends, (now + found.seconds, found.seconds, found.ok))
        upcoming = [look_at_s, *([ends[0][0]] if ends else []), *([idle_until[0]] if idle_until else [])]
        now = min(upcoming)
        if ends and ends[0][0] <= now:
            _, took_s, ok = heapq.heappop(ends)
            sums[0 if ok else 1] += 1
            sums[2] += took_s if ok else 0.0
            heapq.heappush(idle_until, now + overhead_s)
        elif now >= look_at_s:
            row = LimitLook(
                1, "dep", number, 1, ceiling, None, int(sums[0]), int(sums[1]), sums[2], len(ends)
            )
            played.numbers.append(number)
            played.ok.append(int(sums[0]) - sum(played.ok))
            played.failed.append(int(sums[1]) - sum(played.failed))
            number = mover.move(row, now)
            look_at_s += 1
    return played


def _compare() -> None:
    kinds: dict[str, Dependency] = {
        "waits beyond 10": queueing(10),
        "waits beyond 10, times vary as exponential": queueing(10, spread=1.0),
        "degrades beyond 10": degrading(10),
        "fails beyond 10": refusing(10),
        "bears all, times vary as exponential": queueing(1000, spread=1.0),
        "waits beyond 3": queueing(3),
        "three times slower from 100 s on, bears 40": changing(100, queueing(40), queueing(40, 0.06)),
        "bears 10, from 100 s on 40": changing(100, queueing(10), queueing(40)),
    }
    for name, dependency in kinds.items():
        print(name)
        for mover in (Ours(), Aimd(), Vegas()):
            played = play(mover, dependency, 300)
            last = played.numbers[-150:]
            done, failed = sum(played.ok[-150:]) / 150, sum(played.failed[-150:]) / 150
            print(
                f"   {type(mover).__name__:6} {min(last):3} – {max(last):3}, mean {sum(last) / 150:5.1f}; {done:6.0f} a second, "
                f"{failed:6.1f} failed"
            )


if __name__ == "__main__":
    _compare()
