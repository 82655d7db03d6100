"""Queues: a queue stands for whom a run or a step is for, and which limits it is under. Pure."""

from __future__ import annotations

import json
from functools import cached_property
from typing import NamedTuple

import msgspec

FAIR_MAX_CHARS = 200
"""How long a fair key or the key of a limit may be."""
WEIGHT_MAX = 100
"""The highest weight of a fair key: how many of its steps begin for one of a key with the weight 1."""
LIMITS_MAX, RATES_MAX = 3, 2
"""How many limits and rates a step or a run can be under."""


class LimitKey(msgspec.Struct, frozen=True):
    """A limit or a rate with its key filled in, as the code has it now."""

    name: str
    """Its stored name."""
    most: int
    weight: int = 1
    per_s: float | None = None
    """For a rate: in how many seconds `most` may begin."""
    burst: int | None = None
    least: int | None = None
    """For an adaptive limit: how low its number may fall."""

    @property
    def is_rate(self) -> bool:
        return self.per_s is not None


class QueueKey(NamedTuple):
    """What everything in one queue has in common."""

    fair: str
    """The stored name of its fair key, or nothing."""
    limits: tuple[LimitKey, ...] = ()

    @property
    def text(self) -> str:
        """What the store knows the queue by. The numbers of limits are not part of it: they may change."""
        held = [(one.name, one.weight) for one in self.limits if not one.is_rate]
        return json.dumps([self.fair, held, [one.name for one in self.limits if one.is_rate]])


class Queue(msgspec.Struct, frozen=True, dict=True):
    """The queue of a run or a step, with the numbers that the store has for it and for its limits."""

    number: int = 0
    limits: tuple[tuple[int, int], ...] = ()
    """(id, weight) of each."""
    under: tuple[str, ...] = ()
    """Of a run: the stored names of the limits that it is under, and those of the runs above it."""

    @cached_property
    def columns(self) -> tuple[int | None, ...]:
        """The values of `queue`, `limit_a` to `limit_c`, and `weight_a` to `weight_c`."""
        ids = [one for one, _ in self.limits]
        weights = [None if weight == 1 else weight for _, weight in self.limits]
        rest = [None] * (LIMITS_MAX - len(ids))
        return (self.number, *ids, *rest, *weights, *rest)


def under(limits: tuple[LimitKey, ...], above: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the names of the limits that a run is under, and of those above it."""
    return tuple(sorted(above | {one.name for one in limits if not one.is_rate}))


NO_QUEUE = Queue()
"""Queue 0: without a fair key, and under no limit."""
