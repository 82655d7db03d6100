"""Claims about the times of schedules: cron expressions, intervals, dates, calendars, and all time zones."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from holdfast.errors import DefinitionError
from holdfast.times import Calendar, Plan
from holdfast.times.plan import Shift
from holdfast.times.zones import iso, names, zone

FROM, YEARS = 2024, 8
AROUND_MIN = 180

EXPRESSIONS = (
    """
* * * * *|*/5 * * * *|*/30 2 * * *|*/15 0 * * *|0 * * * *|30 * * * *|15 */2 * * *|0 */3 * * *|*/7 1-3 * * *|*/20 23 * * *
59 * * * *|0 0 * * *|30 0 * * *|0 1 * * *|30 1 * * *|59 1 * * *|0 2 * * *|30 2 * * *|45 2 * * *|0 3 * * *|30 3 * * *
0,30 2,3 * * *|15,45 1,2 * * *|0-30 2 * * *|10/20 2 * * *|0 23 * * *|59 23 * * *|30 12 * * *|0 2 * * SUN|30 2 * * 0
0 0 1 * *|0 0 L * *|30 1 * * 5L|30 2 * * SUN#1|30 0 * * FRI#5|0 2 25-31 3,10 *|30 1 1-7 4 SUN|0 4 * MAR,OCT *|*/10 * * 11 *|5 2 * 3 0
""".replace("\n", "|")
    .strip("|")
    .split("|")
)

DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


def numbers(field: str, low: int, high: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = (int(one) for one in span.split("-"))
        else:
            first = last = int(span)
            if step:
                last = high
        found.update(range(first, last + 1, int(step or 1)))
    return found


def fits(expression: str) -> Callable[[datetime], bool]:
    """Whether a local time fits, found without cronsim."""
    for number, name in enumerate(DAYS):
        expression = expression.replace(name, str(number))
    for number, name in enumerate(MONTHS, 1):
        expression = expression.replace(name, str(number))
    minute, hour, day, month, weekday = expression.split()
    minutes, hours, months = numbers(minute, 0, 59), numbers(hour, 0, 23), numbers(month, 1, 12)

    def day_fits(at: datetime) -> bool:
        if day == "L":
            return at.day == calendar.monthrange(at.year, at.month)[1]
        return at.day in numbers(day, 1, 31)

    def weekday_fits(at: datetime) -> bool:
        today = at.isoweekday() % 7
        if weekday.endswith("L"):
            return today == int(weekday[:-1]) and (at + timedelta(days=7)).month != at.month
        if "#" in weekday:
            which, number = weekday.split("#")
            return today == int(which) and (at.day - 1) // 7 + 1 == int(number)
        return today in {one % 7 for one in numbers(weekday, 0, 7)}

    def whole(at: datetime) -> bool:
        if at.minute not in minutes or at.hour not in hours or at.month not in months:
            return False
        both = day.startswith("*") or weekday.startswith("*")
        return (day_fits(at) and weekday_fits(at)) if both else (day_fits(at) or weekday_fits(at))

    return whole


def reference(expression: str, places: list[tuple[int, datetime]], seen: set[datetime]) -> list[int]:
    """Walk the minutes of UTC with their local times. `seen` are the local times before the first of them."""
    does_fit = fits(expression)
    minute, hour, *_ = expression.split()
    fixed = not minute.startswith("*") and not hour.startswith("*")
    found, before = [], max(seen)
    for at, local in places:
        if not fixed:
            is_due = does_fit(local)
        else:
            is_due = does_fit(local) and local not in seen
            skipped = before + timedelta(minutes=1)
            while skipped < local:  # the clocks were set forward over these
                is_due = is_due or does_fit(skipped)
                skipped += timedelta(minutes=1)
            seen.add(local)
            before = max(before, local)
        if is_due:
            found.append(at)
    return found


def load(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, name)


def transitions() -> Iterator[tuple[str, int]]:
    """Every distinct transition of all zones in these years: one zone that has it, and the minute at which it comes."""
    begin = int(datetime(FROM, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(FROM + YEARS, 1, 1, tzinfo=UTC).timestamp())
    known: set[tuple[int, object, object]] = set()
    for name in sorted(names()):
        one = load(name)
        before = datetime.fromtimestamp(begin, one).utcoffset()
        for hour in range(begin, end, 6 * 3600):
            after = datetime.fromtimestamp(hour, one).utcoffset()
            if after == before:
                continue
            at = next(
                m
                for m in range(hour - 6 * 3600, hour + 60, 60)
                if datetime.fromtimestamp(m, one).utcoffset() == after
            )
            if (at, before, after) not in known:
                known.add((at, before, after))
                yield name, at
            before = after


@cache
def found_transitions() -> list[tuple[str, int]]:
    return list(transitions())


def mismatches(name: str, at: int) -> list[str]:
    one = load(name)
    first, last = at - AROUND_MIN * 60, at + AROUND_MIN * 60

    def local(minute: int) -> datetime:
        return datetime.fromtimestamp(minute, one).replace(tzinfo=None, fold=0)

    places = [(minute, local(minute)) for minute in range(first, last + 60, 60)]
    earlier = {local(minute) for minute in range(first - 86_400, first, 60)}
    wrong = []
    for expression in EXPRESSIONS:
        plan = Plan(expression, zone=name)
        found = [int(time) for time in plan.between(first - 1, last)]
        expected = reference(expression, places, set(earlier))
        if found != expected:
            odd = sorted(set(found) ^ set(expected))
            wrong.append(f"{expression!r} in {name}: {[plan.shown(time) for time in odd]}")
    return wrong


@pytest.mark.parametrize("part", range(8))
def test_the_times_around_transitions_are_right_in_a_sample_of_all_zones(part: int) -> None:
    """Around a sample of all transitions of eight years, 40 expressions fire exactly when a walk over all minutes says."""
    assert len(found_transitions()) > 200
    assert len(EXPRESSIONS) >= 40
    for name, at in found_transitions()[part :: 8 * 7]:
        assert not mismatches(name, at)


@pytest.mark.parametrize("part", range(8))
def test_the_times_around_transitions_are_right_in_all_zones(part: int) -> None:
    """Around every distinct transition of all IANA zones in eight years, 40 expressions fire exactly when a walk over all
    minutes says."""
    wrong = [one for name, at in found_transitions()[part::8] for one in mismatches(name, at)]
    assert not wrong


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def first(plan: Plan, after: str, count: int = 3) -> list[str]:
    return [plan.shown(at) for at in islice(plan.between(moment(after), 9e10), count)]


def test_a_time_that_does_not_exist_fires_at_the_first_instant_after_the_gap() -> None:
    """02:30 in Oslo does not exist on 29 March 2026. The schedule fires at 03:00."""
    plan = Plan("30 2 * * *", zone="Europe/Oslo")
    assert first(plan, "2026-03-28T12:00") == [
        "2026-03-29 03:00:00+02:00",
        "2026-03-30 02:30:00+02:00",
        "2026-03-31 02:30:00+02:00",
    ]


def test_a_moving_expression_fires_in_both_hours_of_autumn() -> None:
    """`*/30 2 * * *` in Oslo fires four times on 25 October 2026."""
    plan = Plan("*/30 2 * * *", zone="Europe/Oslo")
    assert [one[:10] for one in first(plan, "2026-10-24T12:00", 5)] == ["2026-10-25"] * 4 + ["2026-10-26"]


def test_after_is_always_later_in_the_hour_that_comes_twice() -> None:
    """Asked in the second 02:15 of the night, `30 2 * * *` answers with the next day: the first 02:30 is over."""
    plan = Plan("30 2 * * *", zone="Europe/Oslo")
    second = moment("2026-10-25T01:15")
    assert plan.shown(second) == "2026-10-25 02:15:00+01:00"
    found = plan.after(second)
    assert found is not None
    assert plan.shown(found) == "2026-10-26 02:30:00+01:00"


def test_the_same_expression_in_two_zones_has_two_answers() -> None:
    """Whoever asks in turn for two zones, or for two times, gets the answer to the own question."""
    oslo, tokyo = (Plan("0 3 * * *", zone=zone) for zone in ("Europe/Oslo", "Asia/Tokyo"))
    noon, day = moment("2026-11-16T12:00"), 86_400.0
    expected = [oslo.after(noon), tokyo.after(noon), oslo.after(noon + day), tokyo.after(noon + day)]
    assert len(set(expected)) == 4
    asked = [
        (oslo, noon),
        (oslo, noon),
        (tokyo, noon),
        (tokyo, noon),
        (oslo, noon + day),
        (tokyo, noon + day),
    ]
    assert [plan.after(at) for plan, at in asked] == [expected[i] for i in (0, 0, 1, 1, 2, 3)]
    assert expected[0] == moment("2026-11-17T02:00")
    assert expected[1] == moment("2026-11-16T18:00")


def test_an_interval_is_elapsed_time() -> None:
    """`1h30m` is aligned to the epoch or to its anchor, and does not notice that clocks are set forward."""
    plan = Plan("1h30m", zone="Europe/Oslo")
    assert first(plan, "2026-03-28T23:00") == [
        "2026-03-29 01:00:00+01:00",
        "2026-03-29 03:30:00+02:00",
        "2026-03-29 05:00:00+02:00",
    ]
    assert Plan("1d", anchor=moment("2026-01-01T05:00")).after(moment("2026-02-01T00:00")) == moment(
        "2026-02-01T05:00"
    )


def test_texts_are_joined_by_a_bar() -> None:
    """A time that two parts have is one time; dates may be local or have an offset."""
    plan = Plan("0 12 * * * | 2026-06-01T12:00 | 2026-06-02T01:00+02:00", zone="Europe/Oslo")
    assert first(plan, "2026-05-31T12:00") == [
        "2026-06-01 12:00:00+02:00",
        "2026-06-02 01:00:00+02:00",
        "2026-06-02 12:00:00+02:00",
    ]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan("0 0 30 2 *"), "can fire"),
        (Plan("0 0 31 4,6 *"), "can fire"),
        (Plan("61 * * * *"), "Bad minute"),
        (Plan("* * * *"), "five fields"),
        (Plan("0 * * * * *"), "five fields"),
        (Plan("@reboot"), "@hourly"),
        (Plan("0s"), "at least 1s"),
        (Plan("400d"), "at most 366d"),
        (Plan("0 0 * * * | "), "empty"),
        (Plan("2027-13-01"), "no date"),
        (Plan("@daily", zone="Europe/Oxlo"), "no such time zone"),
        (Plan("@daily", start=10.0, end=5.0), "never fires"),
        (Plan("@daily", shift="next"), "calendar"),
        (Plan("@daily", overlap="both"), "overlap"),  # type: ignore[arg-type]  # the claim
        (Plan("@daily", count=0), "count"),
        (Plan("@daily", pause_after=0), "pause_after"),
    ],
)
def test_bad_plans_are_refused_where_they_are_written(plan: Plan, words: str) -> None:
    """What can never fire, or means nothing, is refused with words that say what to do."""
    with pytest.raises(DefinitionError, match=words):
        plan.check()


@pytest.mark.parametrize(
    ("days", "until", "words"),
    [
        ([], "2030-12-31", "1 to"),
        (["2031-01-01"], "2030-12-31", "later until"),
        (["2026-02-30"], "2030-12-31", "expected a day"),
        ("2026-12-25", "2030-12-31", "a list of days"),
    ],
)
def test_bad_calendars_are_refused_where_they_are_written(days: list[str], until: str, words: str) -> None:
    """A calendar that ends before its last day, that has no day, or something that is no day."""
    with pytest.raises(DefinitionError, match=words):
        Calendar("norway", days, until)


HOLIDAYS = Calendar("norway", ["2026-12-24", "2026-12-25", "2026-12-26"], "2026-12-31").stored


@pytest.mark.parametrize(
    ("shift", "expected"),
    [
        (None, ["12-23 03:00", "12-27 03:00", "12-28 03:00"]),
        ("next", ["12-23 03:00", "12-27 03:00", "12-28 03:00"]),
        ("previous", ["12-23 03:00", "12-27 03:00", "12-28 03:00"]),
    ],
)
def test_a_calendar_leaves_days_out(shift: Shift | None, expected: list[str]) -> None:
    """Times of days that are left out, or that are moved to a day that has the time anyway, are one time."""
    plan = Plan("0 3 * * *", zone="Europe/Oslo", skip=HOLIDAYS, shift=shift)
    assert [one[5:16] for one in first(plan, "2026-12-22T12:00")] == expected


def test_a_shift_moves_a_time_to_the_nearest_day_that_is_kept() -> None:
    """A weekly time on a holiday comes on the day after the holidays, or on the day before, at the same wall time."""
    following = Plan("0 3 * * FRI", zone="Europe/Oslo", skip=HOLIDAYS, shift="next")
    assert first(following, "2026-12-19T12:00", 2) == [
        "2026-12-27 03:00:00+01:00",
        "2027-01-01 03:00:00+01:00",
    ]
    previous = Plan("0 3 * * FRI", zone="Europe/Oslo", skip=HOLIDAYS, shift="previous")
    assert first(previous, "2026-12-19T12:00", 2) == [
        "2026-12-23 03:00:00+01:00",
        "2027-01-01 03:00:00+01:00",
    ]


def test_only_keeps_to_the_days_of_a_calendar_until_it_ends() -> None:
    """Beyond its end a calendar removes nothing, and the preview says so."""
    plan = Plan("0 3 * * *", zone="Europe/Oslo", only=HOLIDAYS)
    assert [one[5:10] for one in first(plan, "2026-12-01T12:00", 5)] == [
        "12-24",
        "12-25",
        "12-26",
        "01-01",
        "01-02",
    ]
    seen = plan.preview("x", moment("2026-12-26T12:00"), 1)
    assert [one.note for one in seen] == ["left out: not in calendar norway"] * 5 + [
        "calendar norway ended with 2026-12-31 and removes nothing"
    ]
    assert plan.ends_soon(moment("2026-12-05T00:00")) == HOLIDAYS
    assert plan.ends_soon(moment("2026-11-05T00:00")) is None


def test_start_and_end_bound_the_times() -> None:
    """Both count as times, if they are."""
    plan = Plan("@daily", start=moment("2026-06-02T00:00"), end=moment("2026-06-03T00:00"))
    assert [iso(at) for at in plan.between(0, 9e10)] == ["2026-06-02T00:00Z", "2026-06-03T00:00Z"]


def test_jitter_is_the_same_everywhere_and_never_reaches_the_next_time() -> None:
    """It depends on the schedule's name and the time alone."""
    plan = Plan("1m", jitter_s=3600)
    starts = [plan.starts_at("a", 60.0 * n) for n in range(100)]
    assert all(60.0 * n <= at < 60.0 * (n + 1) for n, at in enumerate(starts))
    assert starts == [plan.starts_at("a", 60.0 * n) for n in range(100)]
    assert starts != [plan.starts_at("b", 60.0 * n) for n in range(100)]
    assert len({at % 60 for at in starts}) > 90


def test_many_missed_times_of_an_interval_are_counted_at_once() -> None:
    """A year of seconds is not walked."""
    plan = Plan("1s")
    assert plan.count_between(0.0, 31_536_000.0, 10) == (31_535_999, 1.0, 31_535_999.0)
    assert Plan("@hourly").count_between(0.0, 86_400.0, 100) == (23, 3600.0, 82_800.0)
    assert Plan("@hourly").count_between(0.0, 86_400.0, 10) == (10, 3600.0, 36_000.0)
    assert Plan("@hourly").count_between(0.0, 3600.0, 10) is None


def test_a_time_right_before_the_end_of_what_is_counted_counts() -> None:
    """A schedule may be resumed in the very moment of one of its times. The difference is less than a float of today can show."""
    at = 1_800_000_006.0
    assert Plan("2s").count_between(at - 2, at + 1e-6, 10) == (1, at, at)
    assert Plan("2s").count_between(at - 4, at + 1e-6, 10) in ((1, at - 2, at - 2), (2, at - 2, at))
    assert Plan("2s").count_between(at, at + 1e-6, 10) is None


def test_a_local_time_and_its_instant_belong_together() -> None:
    """Samoa left out 30 December 2011: times of that day come at the first instant after it."""
    apia = zone("Pacific/Apia")
    assert apia.aware(apia.instant(datetime(2011, 12, 30, 12))).isoformat() == "2011-12-31T00:00:00+14:00"  # noqa: DTZ001


@pytest.mark.parametrize(
    ("at", "due"),
    [
        ("2026-11-16T02:00Z", "2026-11-16T05:00+00:00"),  # 03:00 in Oslo: on the same day
        ("2026-11-16T05:00Z", "2026-11-17T05:00+00:00"),  # 06:00 itself: on the next one
        ("2026-11-16T22:30Z", "2026-11-17T05:00+00:00"),
        ("2026-03-28T22:00Z", "2026-03-29T04:00+00:00"),  # the clock is set forward in that night
    ],
)
def test_a_run_is_due_at_the_first_wall_time_after_its_time(at: str, due: str) -> None:
    """In the zone of the schedule. A plan without one promises nothing."""
    plan = Plan("0 3 * * *", "Europe/Oslo", due="06:00")
    found = plan.due_at(moment(at))
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).isoformat(timespec="minutes") == due
    assert Plan("0 3 * * *").due_at(moment(at)) is None


def test_a_wall_time_that_a_day_does_not_have_is_due_after_the_gap() -> None:
    """02:30 does not exist in Oslo on 29 March 2026."""
    plan = Plan("@daily", "Europe/Oslo", due="02:30")
    found = plan.due_at(moment("2026-03-28T23:00Z"))
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).isoformat(timespec="minutes") == "2026-03-29T01:00+00:00"


@pytest.mark.parametrize("due", ["6", "24:00", "6:00", "06:00:00", "2h", "", "06:0\u0660"])
def test_what_is_no_wall_time_is_refused(due: str) -> None:
    """Where it is written."""
    with pytest.raises(DefinitionError, match="no wall time"):
        Plan("@daily", due=due).check()
