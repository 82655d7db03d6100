"""How `why` and the alerts say times, numbers and commands."""

import pytest

from holdfast.supervisor.phrases import ago, command, counted, lower, parsed, reason, remark


@pytest.mark.parametrize(
    ("seconds", "says"),
    [
        (-1.0, "0.0 s"),
        (0.0, "0.0 s"),
        (9.94, "9.9 s"),
        (10.0, "10 s"),
        (119.4, "119 s"),
        (120.0, "2 min"),
        (7_199.0, "120 min"),
        (7_200.0, "2 h"),
        (172_799.0, "48 h"),
        (172_800.0, "2 d"),
    ],
)
def test_a_duration_has_the_unit_of_which_there_are_two(seconds: float, says: str) -> None:
    """A person reads `2 min` more easily than `120 s`, and `90 s` more easily than `2 min`. A clock that was set makes
    no negative time."""
    assert ago(seconds) == says


def test_one_is_singular() -> None:
    """Large numbers have commas."""
    assert [counted(number, "run") for number in (0, 1, 2, 1234)] == [
        "0 runs",
        "1 run",
        "2 runs",
        "1,234 runs",
    ]


def test_a_command_can_be_pasted_into_a_shell() -> None:
    """Only words that a shell would change are in quotes. The id of a retry has a `~`, which needs none."""
    assert command("why", "order~2", "~home", "a b") == "`holdfast why order~2 '~home' 'a b'`"


def test_an_error_is_the_name_of_its_class_and_its_message() -> None:
    """Each of the two may be missing. A text that a person wrote is no recorded error."""
    assert reason('{"type": "app.errors.NoCard", "message": "expired"}') == "NoCard: expired"
    assert reason('{"type": "builtins.KeyError"}') == "KeyError"
    assert reason('{"message": "expired"}') == "expired"
    assert [parsed(raw) for raw in (None, "by hand", "[1]")] == [{}, {}, {}]


def test_a_note_is_in_brackets_and_a_sentence_goes_on_in_lower_case() -> None:
    """Nothing stays nothing."""
    assert (remark("later"), remark(""), remark(None)) == (" (later)", "", "")
    assert (lower("It waits."), lower("")) == ("it waits.", "")
