"""Pieces of sentences for people: durations, counts, commands as they can be pasted, errors in short. Pure."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

PLAIN = re.compile(r"[\w@%+=:,./-][\w@%+=:,./~-]*", re.ASCII)


def ago(seconds: float) -> str:
    """A duration for people."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def command(*words: str) -> str:
    """A command of ours, as it can be pasted."""
    return f"`{' '.join(('holdfast', *map(quoted, words)))}`"


def quoted(word: str) -> str:
    """As a shell needs it. A `~` within a word, as retries have it, needs nothing."""
    return word if PLAIN.fullmatch(word) else shlex.quote(word)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def remark(note: str | None) -> str:
    """What somebody said with it, in brackets."""
    return f" ({note})" if note else ""


def parsed(raw: str | None) -> dict[str, Any]:
    """A note or an error that one of our own processes wrote; nothing, if it is what a person wrote."""
    try:
        told = json.loads(raw or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def reason(raw: str | None) -> str:
    """An error that was recorded: `ValueError: bad card`."""
    told = parsed(raw)
    kind = str(told.get("type", "")).rsplit(".", 1)[-1]
    return ": ".join(part for part in (kind, str(told.get("message", ""))) if part)


def lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
