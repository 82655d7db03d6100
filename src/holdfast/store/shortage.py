"""Decides who gets what a limit has left, if several queues share it and want more than that together. Pure.

Each queue has a count for each such limit: what it has had of it, divided by its weight. The queue with the lowest count
is next. The places of a claim are divided by weight, too, but that is not enough here: an agent may have a hundred free
places and the limit one slot, and then whoever is asked first would have it every time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

LIMITS_MAX = 1000
"""How many limits are remembered. Forgetting them costs a moment of unfairness."""
IDLE_MAX = 10_000
"""How many that could begin nothing are remembered. Forgetting them costs a claim that asks them in vain."""

Place = tuple[int, int]


class Wish(NamedTuple):
    """What a pair of lane and queue wants of a claim."""

    place: Place
    weight: int
    number: int
    """How many, by the places of the claim."""
    room: int
    """How many its limits have left for it alone."""
    uses: Sequence[tuple[int, int]]
    """(id, how much of it one takes) of the limits and rates that it is under."""


class SharedLimit:
    """What the queues that share a limit have had of it."""

    def __init__(self) -> None:
        self.least = 0.0
        """The lowest count of those that wait. Whoever has not waited before begins with it, and gets nothing for the
        past."""
        self.ahead: dict[Place, float] = {}
        """The counts above it."""

    def count(self, place: Place) -> float:
        return max(self.least, self.ahead.get(place, 0.0))

    def add(self, took: Sequence[tuple[Place, int, int]]) -> None:
        """Count what was taken: (place, weight, number) of all that waited."""
        for place, weight, number in took:
            self.ahead[place] = self.count(place) + number / weight
        self.least = max(self.least, min(self.ahead[place] for place, _, _ in took))
        self.ahead = {place: count for place, count in self.ahead.items() if count > self.least}


class Shortage:
    """The limits of which there was too little at the last claims."""

    def __init__(self) -> None:
        self.served: dict[int, SharedLimit] = {}
        self.idle: dict[Place, None] = {}
        """Those that were given something and could begin nothing, because it backs off or its run does not go on. The one that
        was asked longest ago is the first."""

    def copied(self) -> Shortage:
        other = Shortage()
        other.idle = dict(self.idle)
        for one, served in self.served.items():
            other.served[one] = copied = SharedLimit()
            copied.least, copied.ahead = served.least, dict(served.ahead)
        return other

    def deal(
        self, wishes: Sequence[Wish], short: Mapping[int, int]
    ) -> tuple[list[int], dict[int, list[int]]]:
        """Return how many each gets. `short` has the limits of which there is too little, with what they have left. Return,
        too, for each of these limits whose wishes were dealt with by its counts."""
        numbers, by = [max(0, min(wish.number, wish.room)) for wish in wishes], dict[int, list[int]]()
        left, heap = dict(short), list[tuple[bool, float, int]]()
        passed = self._passed_over(wishes)
        for at, wish in enumerate(wishes):
            mine = next((one for one, _ in wish.uses if one in short), None)
            if mine is None or wish.room <= 0:
                continue  # What waits for another limit has no turn here, and does not save turns up.
            numbers[at] = 0
            by.setdefault(mine, []).append(at)
            heap.append((wish.place in passed, self._served(mine).count(wish.place), at))
        heapq.heapify(heap)
        while heap:
            is_last, count, at = heapq.heappop(heap)
            wish = wishes[at]
            if numbers[at] >= min(wish.number, wish.room) or any(
                left.get(one, cost) < cost for one, cost in wish.uses
            ):
                continue
            numbers[at] += 1
            for one, cost in wish.uses:
                if one in left:
                    left[one] -= cost
            heapq.heappush(heap, (is_last, count + 1 / wish.weight, at))
        return numbers, by

    def _passed_over(self, wishes: Sequence[Wish]) -> set[Place]:
        """Return the idle ones but one, which has its turn to be asked. They get what the others leave."""
        if not self.idle:
            return set()
        places = {wish.place for wish in wishes}
        idle = [place for place in self.idle if place in places]
        return set(idle[1:])

    def note(self, place: Place, number: int) -> None:
        """Note how many could begin of one that was given something."""
        self.idle.pop(place, None)
        if not number:
            if len(self.idle) >= IDLE_MAX:
                self.idle.clear()
            self.idle[place] = None

    def add(self, limit: int, took: Iterable[tuple[Place, int, int]]) -> None:
        """Count what was taken of a limit: (place, weight, number). Who is idle does not wait, and does not save turns up."""
        if waited := [one for one in took if one[0] not in self.idle]:
            self._served(limit).add(waited)

    def _served(self, limit: int) -> SharedLimit:
        if limit not in self.served and len(self.served) >= LIMITS_MAX:
            self.served.clear()
        return self.served.setdefault(limit, SharedLimit())


def too_little(wishes: Iterable[Wish], left: Mapping[int, int]) -> dict[int, int]:
    """Return the limits that several share and that have less left than these want together, with what they have."""
    total: dict[int, int] = {}
    sharers: dict[int, int] = {}
    for wish in wishes:
        for one, cost in wish.uses if wish.number else ():
            total[one] = total.get(one, 0) + wish.number * cost
            sharers[one] = sharers.get(one, 0) + 1
    return {
        one: max(0, left[one]) for one, wanted in total.items() if sharers[one] > 1 and wanted > left[one]
    }
