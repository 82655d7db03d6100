"""How attempts under adaptive limits went at an agent, added up until the agent reports it.

For other limits nothing is counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import errors, policy
from holdfast.breaker import Sign, read_failure
from holdfast.model import Ending
from holdfast.store.limits import LimitLoad


def is_overload(retry: policy.Retry, error: BaseException, ending: Ending) -> bool:
    """True if a failed attempt may mean that the dependency has too much to do: it timed out, it failed in a way that is
    tried again, or it was asked to come later. An answer that will not change, and a mistake in the code, say nothing
    about the load."""
    if ending is Ending.FAILED and isinstance(error, errors.RetryIn):
        return True
    return read_failure(retry, error, ending) is Sign.TROUBLE


class Loads:
    def __init__(self) -> None:
        self._sums: dict[int, list[float]] = {}
        """(succeeded, failed, seconds) by limit."""

    def __bool__(self) -> bool:
        return bool(self._sums)

    def succeeded(self, limits: Iterable[int], seconds: float) -> None:
        for one in limits:
            sums = self._sums.setdefault(one, [0, 0, 0.0])
            sums[0] += 1
            sums[2] += max(0.0, seconds)

    def failed(self, limits: Iterable[int]) -> None:
        for one in limits:
            self._sums.setdefault(one, [0, 0, 0.0])[1] += 1

    def take(self) -> list[LimitLoad]:
        """Return what the store should know. From now on it counts as reported."""
        sums, self._sums = self._sums, {}
        return [
            LimitLoad(one, int(ok), int(failed), seconds)
            for one, (ok, failed, seconds) in sorted(sums.items())
        ]

    def restore(self, loads: Iterable[LimitLoad]) -> None:
        """Count these as not reported, because they did not reach the store."""
        for one in loads:
            sums = self._sums.setdefault(one.id, [0, 0, 0.0])
            sums[0] += one.ok
            sums[1] += one.failed
            sums[2] += one.seconds
