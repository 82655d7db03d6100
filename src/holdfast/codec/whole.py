"""Was all of what is recorded read? What the code read is written again, and compared with what was recorded.

Everything that was recorded must be there again, in its place and equal. What is there more are the defaults of what the
code has learned since. So a field that was renamed is found although it has a default, at any depth, and so is a type that
reads the same JSON as another value. What two types write as the same JSON cannot be told apart here.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

SHOWN_CHARS = 60


def unread(recorded: bytes, again: bytes, *, ordered: bool = True) -> str | None:
    """What of the recorded JSON is missing or another one in what was written again; None when nothing is. Not `ordered`:
    arrays may be sets, whose order means nothing."""
    if recorded == again:  # as it nearly always is: the same code wrote it
        return None
    was, now = msgspec.json.decode(recorded), msgspec.json.decode(again)
    return _differs(was, now, "") if ordered else _differs(_sorted(was), _sorted(now), "")


def unread_arguments(recorded: bytes, again: bytes) -> str | None:
    """The same of a function's arguments. No parameter begins with a `$`: what does is ours, and goes beside them."""
    if recorded == again:
        return None
    was, now = msgspec.json.decode(recorded), msgspec.json.decode(again)
    if isinstance(was, dict) and isinstance(now, dict):
        was = {name: value for name, value in was.items() if not name.startswith("$") or name in now}
    return _differs(was, now, "")


def _differs(was: Any, now: Any, place: str) -> str | None:
    todo = [(was, now, place)]
    while todo:
        was, now, place = todo.pop()
        if isinstance(was, dict) and isinstance(now, dict):
            for name, value in was.items():
                inner = f"{place}.{name}" if place else str(name)
                if name not in now:
                    return f"{inner}: {_shown(value)} is recorded, and nothing in this code takes it"
                todo.append((value, now[name], inner))
        elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
            todo += [
                (one, other, f"{place}[{i}]") for i, (one, other) in enumerate(zip(was, now, strict=True))
            ]
        elif not _is_same(was, now):
            said = f"{_shown(was)} is recorded, and this code reads {_shown(now)}"
            return f"{place}: {said}" if place else said
    return None


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(part) for name, part in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def _is_same(was: Any, now: Any) -> bool:
    """1 and 1.0 are one number in JSON; true is none."""
    if isinstance(was, bool) or isinstance(now, bool):
        return was is now
    return bool(was == now)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
