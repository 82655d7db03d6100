"""Parts of sentences for people: durations, counts, commands that can be pasted, short errors. Pure."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from holdfast.model import NodeRow

PLAIN = re.compile(r"[\w@%+=:,./-][\w@%+=:,./~-]*", re.ASCII)


def ago(seconds: float) -> str:
    """Return a duration for people: `3.2 s`, `12 min`."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def command(*words: str) -> str:
    """Return a `holdfast` command in backquotes, with its words quoted so that it can be pasted into a shell."""
    return f"`{' '.join(('holdfast', *map(quoted, words)))}`"


def quoted(word: str) -> str:
    """Return a word as a shell needs it. A `~` inside a word, as in the ids of retries, needs no quotes."""
    return word if PLAIN.fullmatch(word) else shlex.quote(word)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def remark(note: str | None) -> str:
    """Return an operator's note in brackets; empty if there is none."""
    return f" ({note})" if note else ""


def parsed(raw: str | None) -> dict[str, Any]:
    """Return a note or an error that one of our own processes wrote as JSON; empty if a person wrote it as plain
    text."""
    try:
        value = json.loads(raw or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def reason(raw: str | None) -> str:
    """Return a recorded error in short: `ValueError: bad card`."""
    error = parsed(raw)
    kind = str(error.get("type", "")).rsplit(".", 1)[-1]
    return ": ".join(part for part in (kind, str(error.get("message", ""))) if part)


def lower(sentence: str) -> str:
    """Return a sentence with its first letter in lower case, to put it after a colon."""
    return sentence[:1].lower() + sentence[1:]


def place(node: NodeRow) -> str:
    return f"{node.host} pid {node.pid}"
