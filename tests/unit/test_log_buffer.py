"""What is logged is kept in bounded parts, from which the lines can be read again in their order."""

from __future__ import annotations

import logging

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log_buffer import LogBuffer, LogLimits, encode_line, level_number
from holdfast.logs import LEFT_OUT, LogFilter, LogTake, PlacedLine
from holdfast.model import LogLine, LogRow

MAX = 64 * 1024


def rows_of(written: dict[int, LogRow]) -> list[LogRow]:
    return sorted(written.values(), key=lambda row: row.first_line)


def write(buffer: LogBuffer, written: dict[int, LogRow]) -> None:
    """Write the parts as a store does: a part takes the place of the one with its number."""
    for one in buffer.take():
        written[one.part] = LogRow(
            1,
            one.attempt,
            one.twin,
            one.part,
            one.first_line,
            one.first_byte,
            one.lines,
            one.at,
            one.body,
        )


def read(written: dict[int, LogRow]) -> list[PlacedLine]:
    return LogTake().sorted(rows_of(written))


@given(
    lines=st.integers(0, 3000),
    size=st.sampled_from((0, 10, 100, 1000, 9000)),
    every=st.sampled_from((1, 3, 50, 10_000)),
)
def test_the_beginning_and_the_end_are_kept(lines: int, size: int, every: int) -> None:
    """However much is logged and however often it is written, the rows are bounded, and what is left out is one gap
    whose size is known."""
    buffer, written = LogBuffer(1, MAX), dict[int, LogRow]()
    for number in range(lines):
        buffer.add(LogLine(float(number), "INFO", "shop", f"{number} {'x' * size}"))
        if number % every == 0:
            write(buffer, written)
    write(buffer, written)
    assert sum(len(row.body) for row in written.values()) <= MAX + 64
    assert len(written) <= 40
    found = read(written)
    numbers = [one.number for one in found if one.line.logger == "shop"]
    gaps = [one for one in found if one.line.logger == LEFT_OUT]
    assert len(gaps) <= 1
    left_out = lines - len(numbers)
    if not gaps:
        assert numbers == list(range(lines))
    else:
        head = gaps[0].number
        assert head > 0
        assert numbers == [*range(head), *range(head + left_out, lines)]
        assert gaps[0].line.message.startswith(f"… {left_out:,} line")
        assert sum(len(row.body) for row in written.values()) > MAX / 4


def test_a_line_is_read_once_while_its_part_grows() -> None:
    """Whoever follows takes only what is new of a part that was written again."""
    buffer, written, take = LogBuffer(1, MAX), dict[int, LogRow](), LogTake()
    seen: list[str] = []
    for number in range(100):
        buffer.add(LogLine(0.0, "INFO", "shop", str(number)))
        write(buffer, written)
        seen += [one.line.message for one in take.sorted(rows_of(written))]
    assert seen == [str(number) for number in range(100)]


def test_what_is_left_out_stands_in_its_gap_although_the_store_rounds_times() -> None:
    """A store may keep the time of a part in microseconds, which is a little later than the part's first line."""
    body = msgspec.json.encode([LogLine(7.0000001, "INFO", "shop", "first")])
    end = msgspec.json.encode([LogLine(9.0000007, "INFO", "shop", "last")])
    rows = [LogRow(1, 1, False, 0, 0, 0, 1, 7.0, body), LogRow(1, 1, False, 1, 50, 5000, 1, 9.000001, end)]
    assert [one.line.logger for one in LogTake().sorted(rows)] == ["shop", LEFT_OUT, "shop"]


def test_nothing_is_added_after_the_end() -> None:
    """A thread that goes on after its attempt cannot write into it."""
    buffer = LogBuffer(1, MAX)
    buffer.add(LogLine(0.0, "INFO", "shop", "in time"))
    (part,) = buffer.close()
    buffer.add(LogLine(0.0, "INFO", "shop", "too late"))
    assert part.lines == 1
    assert buffer.take() == []


@given(
    message=st.text(st.characters(), max_size=300),
    times=st.sampled_from((1, 100, 10_000)),
    traceback=st.one_of(st.none(), st.just("Traceback\n" * 5000)),
)
def test_any_text_fits(message: str, times: int, traceback: str | None) -> None:
    """A line never needs more than its room, whatever is in it: NUL, halves of characters, megabytes."""
    encoded = encode_line(LogLine(1e9, "INFO", "shop" * 100, message * times, traceback), 8192)
    assert len(encoded) <= 8192
    encoded.decode()


def test_a_cut_line_has_its_beginning_and_its_end() -> None:
    """The end of a traceback is its most important line."""
    line = LogLine(1.0, "ERROR", "shop", "failed", "begin\n" + "in between\n" * 10_000 + "ValueError: no")
    text = encode_line(line, 8192).decode()
    assert "begin" in text
    assert "ValueError: no" in text
    assert "characters left out" in text


def test_levels_have_names() -> None:
    """Standard levels and those of the user; anything else is refused by name."""
    assert level_number("warning") == logging.WARNING
    assert LogLimits.of("INFO", 0) is None
    with pytest.raises(ValueError, match="'loud' is no level"):
        level_number("loud")


def test_a_printed_line_counts_as_info() -> None:
    """So `--level warning` leaves it out, and what is left out is always said."""
    line = PlacedLine(0.0, 1, 1, False, 0, LogLine(0.0, "", "", "printed", None, "stdout"))
    gap = PlacedLine(0.0, 1, 1, False, 0, LogLine(0.0, "", LEFT_OUT, "… 2 lines left out …"))
    assert LogFilter(level=logging.INFO).fits(line)
    assert not LogFilter(level=logging.WARNING).fits(line)
    assert LogFilter(level=logging.WARNING).fits(gap)
