"""Which runs are meant: what callers and operators say, and what cannot be meant."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.desk.filters import age, moment, run_filter
from holdfast.errors import InvalidInput

NOW = datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200.0), ("3d", 259_200.0), ("1.5min", 90.0), (" 1w ", 604_800.0), ("0s", 0.0)],
)
def test_an_age_has_a_unit(text: str, seconds: float) -> None:
    """An age is counted back from the store's time."""
    assert age(text) == seconds
    assert moment(text, "since", NOW) == NOW - seconds


@pytest.mark.parametrize("text", ["2", "h", "-1h", "2 h", "2m", "1e3s", "٣d", ""])
def test_what_is_no_age_is_none(text: str) -> None:
    """Minutes are `min`, because m could be months."""
    assert age(text) is None


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-17T12:00Z",
        "2026-11-17T13:00:00+01:00",
        datetime(2026, 11, 17, 12, tzinfo=UTC),
        timedelta(0),
        datetime.fromtimestamp(NOW, UTC).astimezone().replace(tzinfo=None).isoformat(),
    ],
    ids=str,
)
def test_a_time_has_a_zone_or_is_local(value: Any) -> None:
    """ISO times, datetimes and timedeltas are the same moment."""
    assert moment(value, "since", NOW) == NOW


@pytest.mark.parametrize("value", ["yesterday", "2m", "", "17.11.2026", 7, "9" * 30 + "d"], ids=str)
def test_what_is_no_time_is_refused(value: Any) -> None:
    """The error names the place, the value and what to write."""
    with pytest.raises(InvalidInput, match=r"--since: .* is no time: write how long ago"):
        moment(value, "--since", NOW)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"states": ["asleep"]}, "state: 'asleep' is no state of a run: it is one of pending, running"),
        ({"workflow": ""}, "workflow: expected a text that is not empty"),
        ({"prefix": "a\0"}, "prefix: expected a text"),
        ({"error": 7}, "error: expected a text"),
        ({"since": "1h", "until": "2h"}, "until: it must be later than since"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], message: str) -> None:
    """The error names the argument as the caller does."""
    with pytest.raises(InvalidInput, match=message):
        run_filter(now=NOW, what="{}", **given)


def test_a_filter_is_narrow_if_it_leaves_out_runs() -> None:
    """An empty list means something else then."""
    assert not run_filter(now=NOW).is_narrow
    assert run_filter(now=NOW, since="1h").is_narrow
    assert run_filter(now=NOW, prefix="a").is_narrow
