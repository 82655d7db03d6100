"""Composed triggers and their occasions: what `when(all_of(…), …)` means, and what becomes of what arrives. All of it is pure.

A composed trigger waits for several parts: events of some types, and times. An occasion is a trigger and a value: its parts are
collected until they are complete, or until its time is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec

from holdfast.errors import InvalidInput
from holdfast.event_names import event_value
from holdfast.model import OccasionRow, OccasionState
from holdfast.times.plan import Plan
from holdfast.times.zones import zone

Otherwise = Literal["skip", "alert", "run"]
"""What becomes of an occasion that is not complete in time: nothing, an alert, or a run with what arrived."""
DAY = "%Y-%m-%d"
"""How a time names its occasion, unless a trigger says otherwise: by its local date."""
BETWEEN = "@when:"
"""Stands between the name of a trigger and the value of an occasion, in the id of the occasion and its run."""
TIMES_MAX = 1000
"""How many times of one part arrive in one transaction."""
VALUE_MAX_CHARS = 40
"""A longer value stands in the id of its occasion by its beginning and a digest."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+=@-]*", re.ASCII)
_DIGESTED = re.compile(r"-[0-9a-f]{20}$")


class Part(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", tag="part"):
    """Something that a trigger waits for: events of a type, or a time."""

    name: str
    """What the workflow's argument has it as."""
    type: str = ""
    """The type of the events. Empty for a time."""
    count: int | None = None
    """How many events it takes. None: one, which the argument has as it is, and not in a list."""
    times: Plan | None = None

    @property
    def key(self) -> str:
        """What the store has it as. No type of an event begins with a dollar sign."""
        return self.type or f"$time:{self.name}"

    @property
    def many(self) -> int:
        return self.count or 1


class Group(msgspec.Struct, frozen=True, tag_field="is", tag="group"):
    """Parts of which all are needed, or any one."""

    need: Literal["all", "any"]
    of: tuple[Part | Group, ...]


class Composition(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a composed trigger says, apart from its name and its workflow."""

    needs: Group
    by: str
    within_s: float
    otherwise: Otherwise
    parameter: str
    """The parameter of the workflow that gets what arrived."""
    time_as: str = DAY
    """How a time names its occasion, as `strftime` reads it."""
    schemas: dict[str, dict[str, Any]] = {}
    """By part, what its data must be."""
    priority: int = 0
    timeout_s: float | None = None
    tags: dict[str, str] = {}

    @property
    def parts(self) -> list[Part]:
        return list(parts_of(self.needs))

    def part(self, key: str) -> Part | None:
        return next((one for one in parts_of(self.needs) if one.key == key), None)


class Collected(NamedTuple):
    """An event or a time that an occasion has."""

    occasion: str
    part: str
    """The key of the part."""
    source: str
    """Empty for a time."""
    id: str
    """Of an event. For a time, the time itself."""
    at: float


_bodies = msgspec.json.Decoder(Composition)


def read_composition(body: str) -> Composition:
    return _bodies.decode(body)


# --- parts ------------------------------------------------------------------------------------------------------------


def parts_of(node: Part | Group) -> Iterator[Part]:
    """Yield all parts, as they are written."""
    if isinstance(node, Part):
        yield node
    else:
        for one in node.of:
            yield from parts_of(one)


def is_complete(node: Part | Group, have: Mapping[str, int]) -> bool:
    """True if these arrivals, counted by the keys of their parts, are enough."""
    if isinstance(node, Part):
        return have.get(node.key, 0) >= node.many
    found = (is_complete(one, have) for one in node.of)
    return all(found) if node.need == "all" else any(found)


def missing(node: Part | Group, have: Mapping[str, int]) -> list[str]:
    """Say what is still missing."""
    if is_complete(node, have):
        return []
    if isinstance(node, Part):
        got = have.get(node.key, 0)
        return [node.name if node.many == 1 else f"{node.name} ({got} of {node.many})"]
    if node.need == "all":
        return [words for one in node.of for words in missing(one, have)]
    ways = (" and ".join(missing(one, have)) for one in node.of)
    return [" or ".join(f"({one})" if " and " in one else one for one in ways)]


def certain(node: Part | Group) -> frozenset[str]:
    """Return the names of the parts that every complete occasion has."""
    if isinstance(node, Part):
        return frozenset({node.name})
    each = [certain(one) for one in node.of]
    return frozenset.union(*each) if node.need == "all" else frozenset.intersection(*each)


def words(node: Part | Group) -> str:
    """Say what a trigger waits for, in one line."""
    if isinstance(node, Part):
        what = f"every {node.times.times} {node.times.zone}" if node.times is not None else node.type
        named = f"{node.name}=" if node.name not in {node.type, TIME} else ""
        return f"{named}{what}" if node.many == 1 and node.count is None else f"{named}{node.many} × {what}"
    inner = ", ".join(words(one) for one in node.of)
    return f"{node.need} of ({inner})"


TIME = "time"
"""The name of a time, unless the author gives another."""


def counted(held: Iterable[Collected]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in held:
        found[one.part] = found.get(one.part, 0) + 1
    return found


# --- occasions --------------------------------------------------------------------------------------------------------


def occasion_id(trigger: str, value: str) -> str:
    """Return the id of an occasion, which its run will have, too: `report@when:2026-11-16`. A value that is long, or that an id
    cannot have, stands there by its beginning and a digest."""
    is_plain = len(value) <= VALUE_MAX_CHARS and _PLAIN.fullmatch(value) and "::" not in value
    if is_plain and not _DIGESTED.search(value):
        return f"{trigger}{BETWEEN}{value}"
    digest = blake2b(value.encode(), digest_size=10).hexdigest()
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", value)[:20].strip("-.") or "value"
    return f"{trigger}{BETWEEN}{plain}-{digest}"


def value_of_time(composition: Composition, plan: Plan, at: float) -> str | None:
    """Return the value of the occasion that a time belongs to. None if it cannot be one."""
    try:
        return event_value(zone(plan.zone).aware(at).strftime(composition.time_as), "time_as")
    except InvalidInput:
        return None


class ArrivedTimes(NamedTuple):
    """The times of a part that have come."""

    times: list[float]
    cursor: float
    """The newest time that has come."""
    next_at: float | None
    passed: int
    """How many were too old: nobody led for longer than the window."""


def due_times(plan: Plan, cursor: float, now: float) -> ArrivedTimes:
    """Return the times after the cursor that have come. If nobody led for longer than the plan's window, those before it are
    passed over."""
    too_old, passed = now - plan.window_s, 0
    old = plan.count_between(cursor, too_old, TIMES_MAX)
    if old is not None:
        passed, cursor = old[0], old[2]
    is_more = old is not None and plan.count_between(cursor, too_old, 1) is not None
    times = [] if is_more else list(islice(plan.between(cursor, now), TIMES_MAX))
    moved = times[-1] if times else cursor
    return ArrivedTimes(times, moved, plan.after(moved), passed)


class TakenArrivals(NamedTuple):
    """What becomes of arrivals at an occasion."""

    adds: list[Collected]
    drops: list[Collected]
    """What newer events take the places of."""
    late: list[Collected]


def take(
    row: OccasionRow,
    composition: Composition,
    held: Sequence[Collected],
    comings: Sequence[Collected],
    is_over: bool,
) -> TakenArrivals:
    """Return what becomes of arrivals at an occasion. `is_over` says that its time is over: then events are late. A time is as
    early as it says, whenever somebody notices it."""
    kept, taken = list(held), TakenArrivals([], [], [])
    for one in comings:
        part = composition.part(one.part)
        if part is None:
            continue
        if row.state is not OccasionState.OPEN or (is_over and not part.times):
            if not part.times:
                taken.late.append(one)
            continue
        own = [each for each in kept if each.part == one.part]
        if part.times is not None and (own or one.at > row.ends_at):
            continue  # the first time of an occasion counts
        if len(own) >= part.many:
            oldest = min(own, key=lambda each: (each.at, each.source, each.id))
            kept.remove(oldest)
            if oldest in taken.adds:
                taken.adds.remove(oldest)
            else:
                taken.drops.append(oldest)
        kept.append(one)
        taken.adds.append(one)
    return taken


Verdict = Literal["wait", "start", "skip", "alert"]


def judge(composition: Composition, held: Sequence[Collected], *, is_over: bool) -> Verdict:
    """Decide what becomes of an open occasion that has these arrivals."""
    if is_complete(composition.needs, counted(held)):
        return "start"
    if not is_over:
        return "wait"
    return "start" if composition.otherwise == "run" else composition.otherwise


def input_of(composition: Composition, held: Sequence[Collected], data: Mapping[Collected, bytes]) -> bytes:
    """Return the input of the run: what arrived, by the names of the parts. A part that takes several has a list, the oldest
    first. A time is its text."""
    found: dict[str, Any] = {}
    for part in composition.parts:
        own = sorted(
            (one for one in held if one.part == part.key), key=lambda one: (one.at, one.source, one.id)
        )
        values = [
            msgspec.Raw(msgspec.json.encode(_moment(one.at)) if part.times else data.get(one, b"null"))
            for one in own[-part.many :]
        ]
        if values:
            found[part.name] = values[-1] if part.count is None else values
    return msgspec.json.encode({composition.parameter: found})


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
