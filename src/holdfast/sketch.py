"""How long things take: quantiles of many durations, from counts in buckets. Each bucket is a tenth wider than the one
before it.

The middle of a bucket is within 5 % of every duration in it, from microseconds to years, and a step needs only some
dozens of buckets. Adding their counts merges two sketches, so every agent counts by itself and the store adds the
counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

GROWTH = 1.1
"""A bucket's end is this many times its beginning."""
SHORTEST_S = 1e-6
_PER_E = 1 / math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """Return the bucket in which a duration is counted."""
    return math.floor(math.log(max(SHORTEST_S, seconds)) * _PER_E)


def middle_of(bucket: int) -> float:
    """Return the duration that stands for a bucket."""
    return float(GROWTH ** (bucket + 0.5))


class Sketch:
    """Counts by bucket. They need not be whole numbers, because old counts are halved and sampled ones weigh more."""

    __slots__ = ("_buckets", "total")

    def __init__(self, counts: Mapping[int, float]) -> None:
        self._buckets = sorted((bucket, count) for bucket, count in counts.items() if count > 0)
        self.total = math.fsum(counts.values())

    def quantile(self, q: float) -> float | None:
        """Return the duration below which a share `q` of all durations stays. None if nothing was counted."""
        return _among(self._buckets, q)

    def left(self, elapsed_s: float, q: float = 0.5) -> float | None:
        """Return how much longer something takes that has taken `elapsed_s` already: quantile `q` of those that took
        longer. None if none did."""
        longer = [(bucket, count) for bucket, count in self._buckets if middle_of(bucket) > elapsed_s]
        took = _among(longer, q)
        return None if took is None else took - elapsed_s


def _among(buckets: list[tuple[int, float]], q: float) -> float | None:
    wanted = q * math.fsum(count for _, count in buckets)
    for bucket, count in buckets:
        wanted -= count
        if wanted <= 0:
            return middle_of(bucket)
    return middle_of(buckets[-1][0]) if buckets else None
