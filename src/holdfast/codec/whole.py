"""Checks that code reads recorded JSON whole: what it read is written again and compared with what was recorded.

Everything that was recorded must be there again, in its place and equal. Anything more is a default of something that
was added to the code later. So this finds a renamed field at any depth, even if it has a default, and a type that reads
the same JSON as another value. It cannot distinguish two types that write the same JSON.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

SHOWN_CHARS = 60


def find_unread(recorded: bytes, again: bytes, *, ordered: bool = True) -> str | None:
    """Return what is missing or different in the JSON that was written again, or None. If not `ordered`, arrays may be
    sets, whose order means nothing."""
    if recorded == again:  # nearly always, because the same code wrote both
        return None
    was, now = msgspec.json.decode(recorded), msgspec.json.decode(again)
    return _difference(was, now, "") if ordered else _difference(_sorted(was), _sorted(now), "")


def find_unread_arguments(recorded: bytes, again: bytes) -> str | None:
    """Like `find_unread`, for the arguments of a function. A name that begins with `$` is no parameter: Holdfast itself
    recorded that member beside the arguments, and the code need not read it."""
    if recorded == again:
        return None
    was, now = msgspec.json.decode(recorded), msgspec.json.decode(again)
    if isinstance(was, dict) and isinstance(now, dict):
        was = {name: value for name, value in was.items() if not name.startswith("$") or name in now}
    return _difference(was, now, "")


def _difference(was: Any, now: Any, place: str) -> str | None:
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
            problem = f"{_shown(was)} is recorded, and this code reads {_shown(now)}"
            return f"{place}: {problem}" if place else problem
    return None


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(part) for name, part in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def _is_same(was: Any, now: Any) -> bool:
    """True if both are the same in JSON: 1 and 1.0 are one number, and true is not a number."""
    if isinstance(was, bool) or isinstance(now, bool):
        return was is now
    return bool(was == now)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
