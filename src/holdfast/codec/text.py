"""Checks text that comes from outside: keys, notes, tags, and JSON that a person wrote. What one of the stores cannot
keep is refused for both."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from holdfast.codec.secret import redacted
from holdfast.errors import InvalidInput

NOTE_MAX_CHARS = 4_000
TAGS_MAX = 50
TAG_MAX_CHARS = 1_000
PROGRESS_MAX_CHARS = 1_000


def stored_text(value: object, what: str, most: int = NOTE_MAX_CHARS) -> str:
    """Return the text, or raise an InvalidInput that names it. PostgreSQL cannot store a NUL, neither store can keep
    half of a character, and a note must not be a book."""
    if not isinstance(value, str):
        raise InvalidInput(f"{what}: expected text, not a {type(value).__name__}")
    if len(value) > most:
        raise InvalidInput(f"{what}: {len(value):,} characters are more than the {most:,} it may have")
    if "\0" in value:
        raise InvalidInput(
            f"{what}: {value[:50]!r} contains a NUL character, which cannot be stored: leave it out"
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"{what}: {value[:50]!r} contains half of a surrogate pair, which is not a character: leave it out"
            ) from None
    return value


def stored_tags(tags: Mapping[Any, Any], what: str) -> dict[str, str]:
    if len(tags) > TAGS_MAX:
        raise InvalidInput(f"{what}: {len(tags):,} tags are more than the {TAGS_MAX} a run may have")
    for key in tags:
        if str(key).startswith("$"):
            raise InvalidInput(f"{what}: the name of a tag does not begin with $, as {str(key)[:50]!r} does")
    return {
        stored_text(str(key), what, TAG_MAX_CHARS): stored_text(str(value), what, TAG_MAX_CHARS)
        for key, value in tags.items()
    }


def progress_note(note: object) -> str:
    """Return what a step says about its progress as text that can be stored, without secrets. A note that is too long is cut: it is
    never a reason to fail."""
    text = redacted(str(note).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00"))
    return text if len(text) <= PROGRESS_MAX_CHARS else text[: PROGRESS_MAX_CHARS - 1] + "…"


def read_json(raw: bytes | str, what: str) -> Any:
    """Read JSON strictly: no NaN, no number that is too large to keep, no key twice, nothing after the value."""

    def refuse_constant(name: str) -> NoReturn:
        raise InvalidInput(f"{what}: {name} is not JSON: use null or a number")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise InvalidInput(f"{what}: {digits[:40]} is larger than any number that can be kept")
        return number

    def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise InvalidInput(f"{what}: the key {json.dumps(key)} occurs twice in one object")
            found[key] = value
        return found

    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        return json.loads(
            text, object_pairs_hook=unique_keys, parse_constant=refuse_constant, parse_float=finite
        )
    except UnicodeDecodeError as wrong:
        raise InvalidInput(f"{what}: the input is not UTF-8: {wrong.reason} at byte {wrong.start}") from None
    except json.JSONDecodeError as wrong:
        raise InvalidInput(
            f"{what}: the input is not JSON: {wrong.msg} at line {wrong.lineno}, column {wrong.colno}"
        ) from None
    except RecursionError:
        raise InvalidInput(f"{what}: the input is nested too deeply") from None
    except ValueError as wrong:  # an integer with thousands of digits
        raise InvalidInput(f"{what}: {wrong}") from None
