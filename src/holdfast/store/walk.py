"""The walk: how a claim goes from queue to queue, so that nobody's backlog delays anybody else.

A claim looks at some pairs of lane and queue, beginning where the claim before it stopped, and takes from each as much as
its weight says. Nothing is written for this, neither when a step is issued nor when it is claimed. Weights and limits are
read when they are used, so a changed one counts at the next claim.

What a limit has left is read from the rows that run. It is read after the limit is locked, by a statement of its own: a
statement sees the rows as they were when it began, and that may be before it got a lock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.store.saved_slots import PATIENCE_S, SAVED_S, SavedSlots
from holdfast.store.shortage import Shortage, Wish, too_little

KEYS = 20
"""How many pairs of lane and queue one step of the walk looks at, or as many as it has places for, if these are more. While several
share a limit that has too little for them, it looks at all that a claim may look at, because those that share it must be seen
together."""
PASSED_MAX = 200
"""How many pairs a claim looks at in all. The next claim goes on from there."""
PASSES_MAX = 4
"""How often a claim goes round the same pairs to give out what some of them did not need."""
FIRST, LAST = -1, 2**31 - 1
"""Below and at the highest number of a queue."""
GRAIN_S = 1e-6
"""A token of a rate that comes within this time is there: the store's clock counts microseconds, and times are rounded."""

Row = Any


class WalkCursor(NamedTuple):
    """Where a walk stopped. If `used` is 0, the next one begins after this pair, and otherwise at it."""

    lane: int
    queue: int
    used: int


class Turns:
    """What one who claims remembers from claim to claim. Losing it costs a moment of unfairness and never work."""

    def __init__(self) -> None:
        self.cursors: dict[int, WalkCursor] = {}
        """By priority."""
        self.aged = 0
        """How many claims were made for those who have waited long."""
        self.age_s: float | None = None
        """If set, a claim takes only what has waited for longer than this, whatever its priority."""
        self.waiting: dict[int, int] = {}
        """The queues that had more than the last claim took, with their weights."""
        self.took: dict[int, tuple[int, int]] = {}
        """What the last claim took: (number, weight) by queue."""
        self.again_at: float | None = None
        """When the first rate that had no token has one again, on the store's clock."""
        self.is_contended = False
        """True if the last claim passed over a limit because another claim had it locked."""
        self.is_full = False
        """True if the last claim passed over a limit that had no room."""
        self.shortage = Shortage()
        """Who has had how much of the limits that have too little for those who share them."""
        self.is_short = False
        """True if there was such a limit at the last claim."""
        self.saves = False
        """True if the last claim saved slots up, or would have if it were no look."""

    @contextmanager
    def for_the_aged(self, age_s: float) -> Iterator[None]:
        """Meanwhile claims are for what has waited for longer than this. They are for all again afterwards, also if the store
        could not be reached."""
        self.age_s = age_s
        try:
            yield
        finally:
            self.age_s = None

    def beside(self) -> Turns:
        """Return turns for a claim that others may be made beside: it goes on from the same places, and notes for itself
        what it sees."""
        other = Turns()
        other.cursors, other.shortage, other.is_short = self.cursors, self.shortage, self.is_short
        return other

    def copied(self) -> Turns:
        """Return the same for a look, which must not change anything."""
        other = Turns()
        other.cursors, other.aged, other.age_s = dict(self.cursors), self.aged, self.age_s
        other.shortage, other.is_short = self.shortage.copied(), self.is_short
        return other

    def learn(self, look: Turns) -> None:
        """Take over what a look has seen."""
        self.waiting, self.took = look.waiting, {}
        self.shortage.idle = look.shortage.idle
        self.again_at, self.is_contended, self.is_full = look.again_at, look.is_contended, look.is_full

    def go_on(self, look: Turns) -> None:
        """Take over where a look stopped that found nothing: there is no claim that would go the same way."""
        self.cursors = look.cursors

    def begin(self) -> None:
        self.waiting, self.took = {}, {}
        self.again_at, self.is_contended, self.is_full, self.saves = None, False, False, False


class Segment(NamedTuple):
    """Queues of a lane, from one after `after` up to `upto`."""

    lane: int
    after: int
    upto: int


class Pair(msgspec.Struct):
    """A lane and a queue that has something ready in it."""

    lane: int
    queue: int
    weight: int
    limits: list[tuple[int, int]]
    """(id, how much of it one takes) of the limits that everything in this queue is under."""
    rates: list[int]
    heavy: list[int]
    """Those of the limits of which one takes several slots."""

    @property
    def place(self) -> tuple[int, int]:
        return self.lane, self.queue

    @property
    def uses(self) -> list[tuple[int, int]]:
        """(id, how much of it one takes) of all limits and rates."""
        return [*self.limits, *((one, 1) for one in self.rates)] if self.rates else self.limits

    @classmethod
    def of(cls, row: Row) -> Pair:
        lane, queue, weight, limits, rates = row
        under = [] if limits is None else [(one, cost) for one, cost in json.loads(limits)]
        heavy = [one for one, cost in under if cost > 1]
        return cls(lane, queue, weight, under, [] if rates is None else json.loads(rates), heavy)


class Room(msgspec.Struct):
    """How much a limit or a rate has left."""

    left: int
    again_at: float | None = None
    """For a rate: when it has its next token."""
    most: int = 0
    had: int = 0
    """How much was left before this claim took any."""
    saved: SavedSlots | None = None
    """For whom its slots are or were saved up. None if that never was so."""


class Walker(Protocol):
    """Takes what a walk decides. Each dialect has one for steps and one for runs, whose lanes are workflows."""

    async def levels(self) -> Sequence[tuple[int, int]]:
        """Return (lane, priority) of everything that is ready in lanes that are not behind a gate."""

    async def queues(self, priority: int, ring: Sequence[Segment], keys: int) -> Sequence[Row]:
        """Return (lane, queue, weight, limits, rates) of the first queues on this way that have something ready."""

    async def take(
        self, priority: int, quotas: Sequence[tuple[int, int, int]], age_s: float | None
    ) -> Sequence[tuple[int, int, Row]]:
        """Take up to so many (lane, queue, quota), the longest waiting first. Return (lane, queue, row) of each."""

    async def lock(self, ids: Sequence[int]) -> set[int]:
        """Lock these limits until the end of the transaction. Return those that nobody else has locked."""

    async def rooms(self, ids: Sequence[int]) -> Sequence[Row]:
        """Return (id, kind, most, per_s, burst, tat, used, now, is adaptive, *Saved) of these limits. Without a queue nothing was
        ever saved up."""

    async def spend(self, tokens: Sequence[tuple[int, int]]) -> None:
        """Take (rate, number) of tokens."""

    async def wait_long(self, priority: int, lane: int, queue: int, seconds: float) -> bool:
        """True if something has been ready in this queue for so long."""

    async def save_slots(self, ids: Sequence[int], saved: SavedSlots) -> None:
        """Write for whom the slots of these limits are saved up."""

    def adapted(self, row: Row, limits: tuple[int, ...]) -> Row:
        """Return what was taken, with the adaptive limits that it is under."""


async def walk(walker: Walker, turns: Turns, places: int) -> list[Row]:
    """Take up to `places` things: the highest priority first, and within it from each queue by its weight."""
    turns.begin()
    age_s = turns.age_s
    levels: dict[int, list[int]] = {}
    for lane, priority in await walker.levels():
        levels.setdefault(priority, []).append(lane)
    order = sorted(levels, reverse=True)
    if age_s is not None:
        # The highest level has all other places. Among the others, each is the first one in turn.
        first = turns.aged % max(1, len(order) - 1)
        turns.aged += 1
        order = [*order[1:][first:], *order[1:][:first]]
    taken: list[Row] = []
    is_short = False
    for priority in order:
        if len(taken) >= places:
            break
        level = _Level(walker, turns, priority, sorted(levels[priority]), age_s)
        # Slots are not saved up for what is behind a higher priority, until it has waited so long that it passes that.
        level.may_save = age_s is not None or priority == order[0]
        taken += await level.take(places - len(taken))
        is_short = is_short or level.is_short
    turns.is_short = is_short
    return taken


class _Level:
    """The walk among everything of one priority."""

    def __init__(
        self, walker: Walker, turns: Turns, priority: int, lanes: list[int], age_s: float | None
    ) -> None:
        self.walker, self.turns, self.priority, self.lanes = walker, turns, priority, lanes
        self.age_s = age_s
        self.rooms: dict[int, Room] = {}
        self.spent: dict[int, int] = {}
        self.adaptive: set[int] = set()
        """Those of the limits whose number moves."""
        self.is_short = False
        self.heavy: list[Pair] = []
        """Those of the pairs that take several slots of a limit."""
        self.served: dict[int, set[int]] = {}
        """By queue, the limits whose slots were saved up for it, and of which something has begun."""
        self.may_save = False

    async def take(self, places: int) -> list[Row]:
        taken: list[Row] = []
        seen: set[tuple[int, int]] = set()
        cursor = self.turns.cursors.get(self.priority)
        keys = PASSED_MAX if self.turns.is_short else min(self._keys(places), places + 3)
        while len(taken) < places and len(seen) < PASSED_MAX:
            rows = await self.walker.queues(self.priority, ring(self.lanes, cursor), keys)
            pairs = [Pair.of(row) for row in rows]
            fresh = [pair for pair in pairs if pair.place not in seen]
            if not fresh:
                break
            seen.update(pair.place for pair in fresh)
            is_all = len(rows) < keys
            taken += await self._share_out(fresh, places - len(taken), cursor, is_all)
            if is_all or len(fresh) < len(pairs):
                break
            # On behind them. Where the next claim begins is another question: those of them that gave something have had their turn.
            cursor, keys = WalkCursor(*pairs[-1].place, 0), self._keys(places - len(taken))
        if self.spent:
            await self.walker.spend(sorted(self.spent.items()))
        for queue, limits in self.served.items():
            await self._save(sorted(limits), SavedSlots(queue, 0.0, PATIENCE_S))
        if self.heavy and self.may_save:
            await self._save_up()
        return taken

    @staticmethod
    def _keys(places: int) -> int:
        """Return how many pairs to look at together: those who have many places would otherwise ask many times."""
        return min(max(KEYS, places), PASSED_MAX)

    async def _share_out(
        self, pairs: list[Pair], places: int, cursor: WalkCursor | None, is_all: bool
    ) -> list[Row]:
        """Take from these pairs, and move the cursor to where the next claim begins."""
        await self._learn_rooms(pairs)
        self.heavy += [pair for pair in pairs if pair.heavy]
        used = cursor.used if cursor is not None and _is_at(pairs[0], cursor) else 0
        quotas, next_one, next_used = shares(
            [pair.weight for pair in pairs], places, min(used, pairs[0].weight - 1)
        )
        if not is_all and (next_one == 0 or places >= sum(pair.weight for pair in pairs)):
            next_one, next_used = 0, 0  # those behind them are next
        at = pairs[next_one] if next_used else pairs[next_one - 1]
        self.turns.cursors[self.priority] = WalkCursor(at.lane, at.queue, next_used)
        taken: list[Row] = []
        for number in count(1):
            asked = await self._ask(pairs, quotas)
            taken += [row for _, rows in asked.values() for row in rows]
            # Who got all that was asked for may have more, also if that was nothing.
            pairs = [pair for pair in pairs if _may_have_more(asked.get(pair.place)) and self._room(pair) > 0]
            self.turns.waiting.update((pair.queue, pair.weight) for pair in pairs)
            places_left = places - len(taken)
            if places_left <= 0 or not pairs:
                break
            # What was given to those that could begin nothing is for the others, however many that are.
            if number >= PASSES_MAX and all(rows for _, rows in asked.values()):
                break
            quotas, _, _ = shares([pair.weight for pair in pairs], places_left, 0)
        return taken

    async def _ask(
        self, pairs: Sequence[Pair], quotas: Sequence[int]
    ) -> dict[tuple[int, int], tuple[int, list[Row]]]:
        """Take so much from each of these pairs, and no more than their limits have left. Return how much was asked for, and
        what was found, of each that anything was asked for."""
        wishes = [
            Wish(pair.place, pair.weight, quota, self._room(pair), pair.uses)
            for pair, quota in zip(pairs, quotas, strict=True)
        ]
        short = too_little(wishes, {one: room.left for one, room in self.rooms.items()})
        self.is_short = self.is_short or bool(short)
        numbers, by = self.turns.shortage.deal(wishes, short)
        asked = [(pair, number) for pair, number in zip(pairs, numbers, strict=True) if number > 0]
        found: dict[tuple[int, int], list[Row]] = {pair.place: [] for pair, _ in asked}
        for pair, number in asked:
            self._use(pair, number)
        if asked:
            ask = [(*pair.place, number) for pair, number in asked]
            for lane, queue, row in await self.walker.take(self.priority, ask, self.age_s):
                found[lane, queue].append(row)
        if self.adaptive:
            self._adapt(asked, found)
        for pair, number in asked:
            got = len(found[pair.place])
            self._use(pair, got - number)  # what it did not need is free again
            before, _ = self.turns.took.get(pair.queue, (0, 1))
            self.turns.took[pair.queue] = before + got, pair.weight
            if got and pair.heavy:
                self._note_served(pair)
        for limit, those in by.items():
            dealt = [(wishes[at].place, wishes[at].weight) for at in those]
            for place, _ in dealt:
                if place in found:
                    self.turns.shortage.note(place, len(found[place]))
            self.turns.shortage.add(
                limit, [(place, weight, len(found.get(place, ()))) for place, weight in dealt]
            )
        return {pair.place: (number, found[pair.place]) for pair, number in asked}

    def _adapt(self, asked: list[tuple[Pair, int]], found: dict[tuple[int, int], list[Row]]) -> None:
        for pair, _ in asked:
            limits = tuple(one for one, _ in pair.limits if one in self.adaptive)
            if limits:
                found[pair.place] = [self.walker.adapted(row, limits) for row in found[pair.place]]

    def _use(self, pair: Pair, number: int) -> None:
        for one, cost in pair.uses:
            self.rooms[one].left -= number * cost
        for one in pair.rates:
            self.spent[one] = self.spent.get(one, 0) + number

    def _room(self, pair: Pair) -> int:
        """Return how many more of this pair may begin now."""
        return min([LAST, *(self._left(one, pair.queue) // cost for one, cost in pair.uses)])

    def _left(self, one: int, queue: int) -> int:
        """Return how much a limit has left for this queue."""
        room = self.rooms[one]
        return 0 if room.saved is not None and room.saved.bars(queue) else room.left

    # --- what takes several slots ------------------------------------------------------------------------------------

    def _note_served(self, pair: Pair) -> None:
        """Note that what slots were saved up for has begun. The others may go on."""
        for one in pair.heavy:
            saved = self.rooms[one].saved
            if saved is not None and saved.for_s > 0:
                self.rooms[one].saved = SavedSlots(pair.queue, 0.0, PATIENCE_S)
                self.served.setdefault(pair.queue, set()).add(one)

    async def _save_up(self) -> None:
        """Save slots up for queues that have waited long for more of them than there are. Each limit has one at a time."""
        for pair in sorted(self.heavy, key=self._turn):
            if not self._lacks_slots(pair) or self._is_new(pair):
                continue
            if await self.walker.wait_long(self.priority, pair.lane, pair.queue, PATIENCE_S):
                await self._save(pair.heavy, SavedSlots(pair.queue, SAVED_S, 0.0))

    def _turn(self, pair: Pair) -> tuple[bool, int]:
        """The queue after that for which the slots were saved up last is the first. So each has its turn."""
        saved = self.rooms[pair.heavy[0]].saved
        return saved is not None and pair.queue <= saved.queue, pair.queue

    def _is_new(self, pair: Pair) -> bool:
        """True if it was written a short time ago that the slots are saved up for this pair."""
        known = [self.rooms[one].saved for one in pair.heavy]
        return all(saved is not None and saved.is_new_for(pair.queue) for saved in known)

    def _lacks_slots(self, pair: Pair) -> bool:
        """True if all that this pair waits for are slots that can be saved up for it: of all that it takes several of, or of
        nothing. So two that wait for the same ones never wait for each other."""
        lacks = False
        for one, cost in pair.uses:
            room = self.rooms[one]
            saved = room.saved
            if cost == 1:
                if room.had < 1 or (saved is not None and saved.bars(pair.queue)):
                    return False
                continue
            if room.most < cost or (saved is not None and not saved.may_be_for(pair.queue)):
                return False
            lacks = lacks or room.left < cost
        return lacks

    async def _save(self, ids: Sequence[int], saved: SavedSlots) -> None:
        await self.walker.save_slots(ids, saved)
        for one in ids:
            self.rooms[one].saved = saved
        self.turns.saves = True

    async def _learn_rooms(self, pairs: Sequence[Pair]) -> None:
        """Lock the limits of these pairs, and then read how much they have left."""
        ids = {one for pair in pairs for one, _ in pair.uses} - self.rooms.keys()
        if not ids:
            return
        got = await self.walker.lock(sorted(ids))
        self.rooms.update((one, Room(0)) for one in ids)
        if len(got) < len(ids):
            self.turns.is_contended = True
        for row in await self.walker.rooms(sorted(got)) if got else ():
            room = self.rooms[row[0]] = room_of(LimitState(*row[1:8]))
            room.most, room.had = row[2], room.left
            if row[8]:
                self.adaptive.add(row[0])
            if row[9] is not None:
                room.saved = SavedSlots(*row[9:])
            if room.left <= 0:
                self.turns.is_full = True
            if room.again_at is not None and room.left <= 0:
                known = self.turns.again_at
                self.turns.again_at = room.again_at if known is None else min(known, room.again_at)


class LimitState(NamedTuple):
    """A limit or a rate as it is at a moment."""

    kind: str
    most: int
    per_s: float | None
    burst: int | None
    tat: float
    used: int
    now: float


def room_of(state: LimitState) -> Room:
    """Return how much a limit or a rate has left. A rate has a token for every `per_s / most` seconds, and keeps up to
    `burst` of them."""
    kind, most, per_s, burst, tat, used, now = state
    if kind == "limit":
        return Room(most - used)
    assert per_s is not None
    assert burst is not None
    if most <= 0:
        return Room(0)
    each_s = per_s / most
    # Spans are subtracted from spans. A time since 1970 to which a span is added is rounded, and would make a token incomplete.
    ahead_s = max(tat - now, 0.0)
    left = min(burst, math.floor((burst * each_s - ahead_s + GRAIN_S) / each_s))
    return Room(left, now + ahead_s + each_s - burst * each_s)


def shares(weights: Sequence[int], places: int, used: int) -> tuple[list[int], int, int]:
    """Divide places among pairs by their weights, from the first one on, which has had `used` of its turn. Return how
    many each gets, whose turn is next, and how much of that turn is used."""
    rounds, rest = divmod(places, sum(weights))
    quotas = [rounds * weight for weight in weights]
    at = 0
    while rest > 0:
        given = min(rest, weights[at] - used)
        quotas[at] += given
        rest, used = rest - given, used + given
        if used >= weights[at]:
            at, used = (at + 1) % len(weights), 0
    return quotas, at, used


def ring(lanes: Sequence[int], cursor: WalkCursor | None) -> list[Segment]:
    """Return the way of a walk: from the cursor through all lanes, and round to the cursor again."""
    if cursor is None:
        return [Segment(lane, FIRST, LAST) for lane in lanes]
    begin = cursor.queue - 1 if cursor.used else cursor.queue
    after = [Segment(lane, FIRST, LAST) for lane in lanes if lane > cursor.lane]
    before = [Segment(lane, FIRST, LAST) for lane in lanes if lane < cursor.lane]
    if cursor.lane not in lanes:
        return [*after, *before]
    return [Segment(cursor.lane, begin, LAST), *after, *before, Segment(cursor.lane, FIRST, begin)]


def _may_have_more(asked: tuple[int, list[Row]] | None) -> bool:
    """True if as much was found as was asked for."""
    return asked is None or len(asked[1]) == asked[0]


def _is_at(pair: Pair, cursor: WalkCursor) -> bool:
    return pair.place == (cursor.lane, cursor.queue)
