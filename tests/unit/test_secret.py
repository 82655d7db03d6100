"""Secrets: what they say is taken out of errors and logs, however it is written there."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest

from holdfast import Secret
from holdfast.codec import decode_error, describe_error, encode_error, ending_of, secret
from holdfast.codec.failure import MESSAGE_MAX_CHARS
from holdfast.codec.text import progress_note
from holdfast.terminal.logs import Brief, JsonLines, LineFormatter

CANARY = "canary-4f1d"


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has never seen a secret."""
    monkeypatch.setattr(secret, "_state", secret._State())


@dataclass
class Login:
    user: str
    password: str


@pytest.mark.parametrize(
    "written", [str, repr, json.dumps, quote, quote_plus, lambda text: quote(text, safe="")]
)
def test_a_secret_is_taken_out_however_it_is_written(written: Any) -> None:
    """Clients write a key into the address that their error names, and Python prints texts with escapes."""
    text = "p/w=\n'1' \"ö\" +&"
    Secret(text)
    assert written(text) not in encode_error(ValueError(f"no: {written(text)}."))
    assert describe_error(encode_error(ValueError(f"no: {written(text)}."))).startswith("ValueError: no: ")
    assert secret.redacted(f"no: {quote_plus(text)}.") == "no: •••."


def test_a_longer_secret_is_taken_out_as_a_whole() -> None:
    """Otherwise the shorter one would be taken out, and the rest of the longer one would stay."""
    Secret("4242")
    Secret("4242 9999")
    Secret("9999 1111")
    assert secret.redacted("no card 4242 9999, no card 4242") == "no card •••, no card •••"


@pytest.mark.parametrize(
    "value",
    [CANARY, [CANARY], {"a": {"b": CANARY}}, Login("anna", CANARY), CANARY.encode(), (1, CANARY), {CANARY}],
    ids=lambda value: type(value).__name__,
)
def test_texts_in_an_object_that_is_secret_are_taken_out(value: Any) -> None:
    Secret(value)
    for error in (ValueError(f"no {CANARY}"), ValueError(CANARY), ValueError({"key": [CANARY]})):
        assert CANARY not in encode_error(error)


def test_a_secret_in_what_an_error_has_is_taken_out() -> None:
    """In its arguments, notes, causes, members, and in bytes, of which base64 is recorded."""
    Secret(CANARY)
    caused = ValueError("outer")
    caused.__cause__ = KeyError(CANARY)
    caused.add_note(f"with {CANARY}")
    group = ExceptionGroup(CANARY, [caused, ValueError({CANARY: CANARY})])
    raw = encode_error(group)
    assert CANARY not in raw
    assert isinstance(decode_error(raw), ExceptionGroup)
    try:
        CANARY.encode().decode("utf-16-be")
        (CANARY.encode() + b"\xff").decode()
    except UnicodeDecodeError as error:
        again = decode_error(encode_error(error))
        assert isinstance(again, UnicodeDecodeError)
        assert CANARY.encode() not in again.object


def test_a_secret_that_a_message_is_cut_in_is_taken_out() -> None:
    Secret(CANARY)
    for many in range(MESSAGE_MAX_CHARS - len(CANARY) - 1, MESSAGE_MAX_CHARS + 1):
        assert CANARY[:6] not in encode_error(ValueError("x" * many + CANARY))


@pytest.mark.parametrize("said", ["message", "type", "failed", "ending", "builtins", 4000, 1.25])
def test_a_secret_that_is_a_word_of_ours_breaks_no_record(said: Any) -> None:
    """The record is read as before: its class, how the attempt ended, and its message."""
    Secret(said)
    raw = encode_error(ValueError("wrong", said), ending="failed", step="charge")
    assert ending_of(raw) == "failed"
    again = decode_error(raw)
    assert type(again) is ValueError
    assert again.args == ("wrong", "•••")
    assert msgspec.json.decode(raw)["step"] == "charge"


def test_a_secret_is_taken_out_of_what_a_step_says_about_its_progress() -> None:
    Secret(CANARY)
    assert progress_note(f"charging {CANARY}") == "charging •••"


@pytest.mark.parametrize(
    "formatter", [LineFormatter(), Brief(), JsonLines()], ids=lambda one: type(one).__name__
)
def test_a_secret_is_taken_out_of_the_log_that_commands_write(formatter: logging.Formatter) -> None:
    """Out of messages, what is logged beside them, and tracebacks."""
    Secret(CANARY)
    record = logging.makeLogRecord({"msg": "charging %s", "args": (CANARY,), "fields": {"card": CANARY}})
    try:
        raise ValueError(CANARY)
    except ValueError:
        record.exc_info = sys.exc_info()
    for _ in range(2):  # the second time, the record has the text of its traceback
        written = formatter.format(record)
        assert "charging" in written
        assert CANARY not in written
