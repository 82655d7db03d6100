"""How long things take: quantiles of many durations, from counts in buckets that grow by a tenth each.

A bucket's middle is within 5 % of every duration in it, from microseconds to years, in some dozens of buckets. Two
sketches are merged by adding their counts, so every agent counts by itself and the store adds up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

GROWTH = 1.1
"""Each bucket ends at this many times its beginning."""
SHORTEST_S = 1e-6
_PER_E = 1 / math.log(GROWTH)


def bucket_of(seconds: float) -> int:
    """The bucket a duration is counted in."""
    return math.floor(math.log(max(SHORTEST_S, seconds)) * _PER_E)


def middle_of(bucket: int) -> float:
    """The duration that stands for a bucket."""
    return float(GROWTH ** (bucket + 0.5))


class Sketch:
    """Counts by bucket. They need not be whole: old ones are halved, sampled ones weigh more."""

    __slots__ = ("_buckets", "total")

    def __init__(self, counts: Mapping[int, float]) -> None:
        self._buckets = sorted((bucket, count) for bucket, count in counts.items() if count > 0)
        self.total = math.fsum(counts.values())

    def quantile(self, q: float) -> float | None:
        """The duration that a share `q` of all stays below; None when nothing was counted."""
        return _among(self._buckets, q)

    def left(self, elapsed_s: float, q: float = 0.5) -> float | None:
        """How much longer it takes when it has taken `elapsed_s` already: quantile `q` of those that took longer. None
        when none did."""
        longer = [one for one in self._buckets if middle_of(one[0]) > elapsed_s]
        took = _among(longer, q)
        return None if took is None else took - elapsed_s


def _among(buckets: list[tuple[int, float]], q: float) -> float | None:
    wanted = q * math.fsum(count for _, count in buckets)
    for bucket, count in buckets:
        wanted -= count
        if wanted <= 0:
            return middle_of(bucket)
    return middle_of(buckets[-1][0]) if buckets else None
