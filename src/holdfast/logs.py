"""Reads what runs and their steps have logged: the parts that the store keeps, as lines in the order of their times."""

from __future__ import annotations

import heapq
import logging
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from holdfast.keyring import sealed_by
from holdfast.model import LogLine, LogRow
from holdfast.store.reads import Reads

PAGE = 100
"""How many parts are read at once. A part is at most some kilobytes."""
LEFT_OUT = "holdfast.logs"
"""The logger of the line that says how much is left out."""

_decoder = msgspec.json.Decoder(list[LogLine])
Attempt = tuple[int, int, bool]
"""(n, attempt, True for a twin)."""


class LogInfo(NamedTuple):
    """A line that a run or one of its steps has logged."""

    at: datetime
    level: str
    """As `logging` names it: `INFO`. For a printed line it is empty."""
    logger: str
    message: str
    traceback: str | None
    stream: str | None
    """`stdout` or `stderr`, if an isolated step printed this line."""
    step: str | None
    """The key of the step. None for a line of the workflow's own code."""
    attempt: int | None
    """The number of the step's attempt: 1 for the first."""
    twin: bool
    """True if the twin of a hedged step has logged it."""


class PlacedLine(NamedTuple):
    """A line, with its place. Lines in the order of these values are in the order of time."""

    at: float
    n: int
    attempt: int
    twin: bool
    number: int
    """How many lines the attempt had logged before."""
    line: LogLine

    def info(self, keys: dict[int, str]) -> LogInfo:
        line = self.line
        return LogInfo(
            datetime.fromtimestamp(self.at, UTC),
            line.level,
            line.logger,
            line.message,
            line.traceback,
            line.stream,
            keys.get(self.n, f"step {self.n}") if self.n else None,
            self.attempt if self.n else None,
            self.twin,
        )


class LogFilter(NamedTuple):
    """Which lines somebody wants to see."""

    n: int | None = None
    """Only those of this step. 0 is the workflow's own code."""
    attempt: int | None = None
    level: int = 0

    def fits(self, logged: PlacedLine) -> bool:
        if self.n is not None and logged.n != self.n:
            return False
        if self.attempt is not None and (not logged.n or logged.attempt != self.attempt):
            return False
        return logged.line.logger == LEFT_OUT or _number(logged.line.level) >= self.level


class LogTake:
    """Takes lines out of parts, each line once, and notices where some are left out. The parts of one attempt must come
    in their order."""

    def __init__(self) -> None:
        self._ends: dict[Attempt, tuple[int, int, float]] = {}
        """For each attempt: how many lines and bytes it has logged as far as is known, and when the last one was."""

    def lines(self, row: LogRow) -> Iterator[PlacedLine]:
        """Yield the lines of this part that were not taken before."""
        place = row.n, row.attempt, row.twin
        known, size, last_at = self._ends.get(place, (row.first_line, row.first_byte, 0.0))
        if row.first_line + row.lines <= known and place in self._ends:
            return
        lines = _lines(row)
        if row.first_line > known:
            # Not the row's own time: a store may round it, and then it is later than the line that follows.
            at = max(lines[0].at, last_at)
            yield PlacedLine(at, *place, known, _left_out(row.first_line - known, row.first_byte - size, at))
        for number, line in enumerate(lines, row.first_line):
            if number >= known:
                # A line never comes before those that the same attempt logged before, whatever its clock says.
                last_at = max(last_at, line.at)
                yield PlacedLine(last_at, *place, number, line)
        self._ends[place] = row.first_line + row.lines, row.first_byte + len(row.body) - 1, last_at

    def sorted(self, rows: Iterable[LogRow]) -> list[PlacedLine]:
        in_order = sorted(rows, key=lambda row: (row.n, row.attempt, row.twin, row.first_line))
        return sorted(logged for row in in_order for logged in self.lines(row))


def _lines(row: LogRow) -> list[LogLine]:
    """Return the lines of a part. One that is sealed has a line for all of them."""
    if (key := sealed_by(row.body)) is None:
        return _decoder.decode(row.body)
    words = "1 line is" if row.lines == 1 else f"{row.lines:,} lines are"
    return [LogLine(row.at, "", "holdfast", f"{words} sealed with the key {key!r}, which is not here")]


async def in_time(reads: Reads, run_id: str, take: LogTake) -> AsyncIterator[PlacedLine]:
    """Yield all lines of a run in the order of time. Only the parts that overlap in time are in memory at once."""
    waiting: list[PlacedLine] = []
    after: LogRow | None = None
    while True:
        rows = await reads.logs(run_id, after, PAGE)
        for row in rows:
            while waiting and waiting[0].at < row.at:
                yield heapq.heappop(waiting)
            for logged in take.lines(row):
                heapq.heappush(waiting, logged)
        if len(rows) < PAGE:
            break
        after = rows[-1]
    while waiting:
        yield heapq.heappop(waiting)


def _left_out(lines: int, size: int, at: float) -> LogLine:
    what = "1 line" if lines == 1 else f"{lines:,} lines"
    return LogLine(at, "", LEFT_OUT, f"… {what} ({max(size, 0):,} bytes) left out here …")


def _number(level: str) -> int:
    """Return the number of a level. A printed line, and a level that this process does not know, count as INFO."""
    number = logging.getLevelName(level)
    return number if isinstance(number, int) else logging.INFO
