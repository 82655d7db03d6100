"""The markers of one run: which way its code goes at each `patched(name)`, decided once.

The way of a marker is decided when the code first asks for it, and recorded with the next hop. During a replay, what the
code does was committed before, by code that did not know the marker: the run goes the old way. After the replay, the run
is the first to arrive there: it goes the new way. From then on the record counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.decider.commands import Issue
from holdfast.errors import Drift
from holdfast.model import StepKind, StepRow, marker_key

NEW, OLD = b"true", b"false"


class Markers:
    """The part of a decider that answers `patched`."""

    __slots__ = ("_asked", "_recorded", "_unwritten", "ways")

    def __init__(self, recorded: Iterable[StepRow] = ()) -> None:
        self._recorded = {row.name: row for row in recorded}
        self.ways = {row.name: row.output == NEW for row in self._recorded.values()}
        """The markers that are decided. True is the new way."""
        self._asked: set[str] = set()
        self._unwritten: list[Issue] = []
        """The markers that were decided since the last turn."""

    def ask(self, name: str, *, is_new: bool, seq: int) -> bool:
        """Return the way at this marker. If it is not decided yet, it is `is_new`."""
        way = self.ways.get(name)
        if way is None:
            way = self.ways[name] = is_new
            self._unwritten.append(Issue(0, marker_key(name), StepKind.MARKER, name, after_seq=seq))
        self._asked.add(name)
        return way

    def take(self, last_n: int) -> list[tuple[Issue, bytes]]:
        """Return the markers that were decided since the last call, and their ways. Their numbers follow `last_n`."""
        issued, self._unwritten = self._unwritten, []
        for n, issue in enumerate(issued, last_n + 1):
            issue.n = n
        return [(issue, NEW if self.ways[issue.name] else OLD) for issue in issued]

    def removed(self, passed_seq: float, unasked: Sequence[StepRow]) -> Drift | None:
        """Return a drift if the code has lost a marker that this run still needs. All that was delivered up to
        `passed_seq` has been delivered again, and `unasked` are the recorded steps that the code did not ask for.

        A run that goes the old way needs its marker: without it, the code would go the new way. A run that goes the new
        way needs no marker, as long as the code asks for what was recorded after it. Otherwise it is old code, from
        before the marker.
        """
        for name, row in self._recorded.items():
            if name in self._asked or row.after_seq > passed_seq:
                continue
            if not self.ways[name]:
                return Drift(
                    row.key,
                    f"marker {name}: the old way",
                    "no such marker",
                    message=(
                        f"the run goes the old way at the marker {name!r}, and this code no longer asks for it: keep "
                        f"`if patched({name!r}):` and its old way until `holdfast check` says that no run needs it"
                    ),
                    kind="marker",
                )
            left = next((one for one in unasked if one.n > row.n and _counts(one)), None)
            if left is not None:
                return Drift(
                    row.key,
                    f"marker {name}: the new way",
                    "no such marker",
                    message=(
                        f"the run went the new way at the marker {name!r}, and this code asks neither for it nor for "
                        f"step {left.key!r}, which was recorded after it: it seems to be code from before the marker"
                    ),
                    kind="marker",
                )
        return None


def _counts(row: StepRow) -> bool:
    """True if the code that recorded this step did something by it."""
    return row.kind in (StepKind.CALL, StepKind.CHILD) and row.delivered_seq != 0
