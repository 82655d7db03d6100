"""Sentences whose parts say what they are: a step, a run, an error, a duration, a command. Pure.

A sentence is put together as text. What somebody may want to follow is marked in it by `said`, with a character that no
stored text has. `parts` takes the marks out again, and `plain` leaves only the words.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.model import NodeRow, StepRow
from holdfast.supervisor import phrases

PartKind = Literal["text", "step", "run", "agent", "breaker", "hold", "error", "duration", "command"]
_KINDS = frozenset({"step", "run", "agent", "breaker", "hold", "error", "duration", "command"})
_EDGE, _BETWEEN = "\0", "\1"


class SentencePart(msgspec.Struct, omit_defaults=True):
    """A part of a sentence."""

    kind: PartKind
    text: str
    ref: str = ""
    """What it is about: the number of a step, the id of a run or of an agent, the name of a breaker, the scope and value of
    a hold."""


def said(kind: PartKind, text: str, ref: str = "") -> str:
    """Return a text that is marked as being of this kind."""
    return f"{_EDGE}{kind}{_BETWEEN}{_clean(ref)}{_BETWEEN}{_clean(text)}{_EDGE}"


def _clean(text: str) -> str:
    return text.replace(_EDGE, "").replace(_BETWEEN, "")


def parts(sentence: str) -> list[SentencePart]:
    """Return the parts of a sentence. Their texts joined are the sentence."""
    found: list[SentencePart] = []
    for number, piece in enumerate(sentence.split(_EDGE)):
        kind, between, rest = piece.partition(_BETWEEN)
        ref, again, text = rest.partition(_BETWEEN)
        if number % 2 and between and again and kind in _KINDS:
            found.append(SentencePart(kind, text, ref))  # type: ignore[arg-type]  # it is one of them
        elif piece:
            found.append(SentencePart("text", piece))
    return found


def plain(sentence: str) -> str:
    """Return the words of a sentence."""
    return "".join(part.text for part in parts(sentence)) if _EDGE in sentence else sentence


def ago(seconds: float) -> str:
    return said("duration", phrases.ago(seconds))


def command(*words: str) -> str:
    return said("command", phrases.command(*words))


def reason(raw: str | None) -> str:
    found = phrases.reason(raw)
    return said("error", found) if found else ""


def place(node: NodeRow) -> str:
    return said("agent", phrases.place(node), node.id)


def step_said(step: StepRow) -> str:
    return said("step", step.key, str(step.n))


def run_said(run_id: str) -> str:
    return said("run", run_id, run_id)


def parsed(raw: str | None) -> dict[str, Any]:
    """Return a note or an error as `phrases.parsed` does, without the characters that mark parts."""
    found: dict[str, Any] = _without_edges(phrases.parsed(raw))
    return found


def _without_edges(value: Any) -> Any:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {_without_edges(name): _without_edges(one) for name, one in value.items()}
    return [_without_edges(one) for one in value] if isinstance(value, list) else value
