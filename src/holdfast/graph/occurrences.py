"""Which row is whose: the exact key of each item that every run comes by exactly once.

A key ends with a number if its label came up in its task before: `charge`, then `charge#2`. Those numbers follow from
the source only as long as every run that goes far enough comes by each of the calls, in one order. After the first call
of a label in a loop or under a condition, the numbers of that label are doubtful; after something unknown, which may
call anything, all are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase

from holdfast.graph.graph import MAYBE, Kind
from holdfast.graph.values import Item, KeyPart, Path


def exact_keys(items: list[Item]) -> dict[int, str]:
    """Return the exact key of each item that has one, by the item's `id`."""
    keyed: list[tuple[Item, bool]] = []
    doubtful: list[KeyPart] = []
    """What comes after something unknown."""
    is_after = False
    for item, is_certain in _all(items, is_certain=True):
        is_after = is_after or item.kind is Kind.UNKNOWN
        keyed.append((item, is_certain))
        if is_after:
            doubtful += (*item.key, *item.timer)
    end = min((part.turn for part in doubtful), default=None)
    tasks: dict[Path, dict[KeyPart, bool]] = defaultdict(dict)
    for item, is_certain in keyed:
        for key in (item.key, item.timer):
            for n, part in enumerate(key):
                known = tasks[key[:n]]
                known[part] = known.get(part, False) or is_certain
    numbered = {path: _numbered(parts, end) for path, parts in tasks.items()}
    found: dict[int, str] = {}
    for item, is_certain in keyed:
        parts = [numbered[item.key[:n]].get(part, "") for n, part in enumerate(item.key)]
        if is_certain and parts and all(parts):
            found[id(item)] = "/".join(parts)
    return found


def _all(items: list[Item], *, is_certain: bool) -> Iterator[tuple[Item, bool]]:
    """Yield the items, and whether every run that goes far enough comes by each of them exactly once."""
    for item in items:
        yield item, is_certain
        yield from _all(item.body, is_certain=is_certain and item.kind not in MAYBE)


def _numbered(parts: dict[KeyPart, bool], end: int | None) -> dict[KeyPart, str]:
    """Return the parts of one task's keys with their numbers, without the doubtful ones. `end` is the first turn that
    is doubtful anyway."""
    by_label: dict[str, list[KeyPart]] = defaultdict(list)
    for part in sorted(parts, key=lambda one: one.turn):
        by_label[part.label].append(part)
    open_labels = [label for label in by_label if "*" in label]
    found: dict[KeyPart, str] = {}
    for label, alike in by_label.items():
        if any(fnmatchcase(label, one) for one in open_labels):
            continue
        for n, part in enumerate(alike, start=1):
            if part.turn < 0 or not parts[part] or (end is not None and part.turn >= end):
                break
            found[part] = label if n == 1 else f"{label}#{n}"
    return found
