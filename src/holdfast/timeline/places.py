"""The places in the code that a run's steps belong to, as a tree: branches, calls one after the other, many calls of one
name side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from holdfast.model import StepKind, StepRow

_NUMBER = re.compile(r"#\d+$")
GROUP_MIN = 12
"""Up to this many calls of one name side by side have a row each."""


def components(key: str) -> list[str]:
    """Split a key at its slashes. Free text after a colon belongs to the last part, even if it contains slashes."""
    path, colon, free = key.partition(":")
    parts = path.split("/")
    parts[-1] += colon + free
    return parts


def base_of(name: str) -> str:
    """Return the name of a step without its number: `is_up#3` is an `is_up`."""
    return _NUMBER.sub("", name)


class Place:
    """One or more steps at one place in the code."""

    __slots__ = ("is_group", "name", "naps", "steps")

    def __init__(self, name: str, steps: list[StepRow], *, is_group: bool = False) -> None:
        self.name, self.steps, self.is_group = name, steps, is_group
        self.naps: list[StepRow] = []
        """The sleeps between calls that follow each other."""

    @property
    def first_n(self) -> int:
        return self.steps[0].n


class Branch:
    """A task of the run. Its places and branches are in the order in which each was first asked for something."""

    __slots__ = ("items", "name", "path", "undone")

    def __init__(self, name: str, path: str) -> None:
        self.name, self.path = name, path
        self.items: list[Place | Branch] = []
        self.undone: list[StepRow] = []
        """The undos of a saga in it."""

    @property
    def first_n(self) -> int:
        return min((item.first_n for item in self.items), default=0)

    def all_steps(self) -> Iterable[StepRow]:
        for item in self.items:
            if isinstance(item, Branch):
                yield from item.all_steps()
            else:
                yield from item.steps
                yield from item.naps
        yield from self.undone


def grown(steps: Sequence[StepRow], undone: Sequence[tuple[str, StepRow]] = ()) -> Branch:
    """Return the tree of these steps. `undone` are the undos of sagas, each with the key of the step that it undoes."""
    root = Branch("", "")
    found: dict[str, Branch] = {"": root}
    direct: dict[str, list[tuple[str, StepRow]]] = {"": []}
    order: dict[str, list[str | None]] = {"": []}

    def branch(parts: Sequence[str]) -> str:
        path = "".join(f"{part}/" for part in parts)
        if path not in found:
            above = branch(parts[:-1])
            found[path] = Branch(parts[-1], path)
            direct[path], order[path] = [], []
            order[above].append(path)
        return path

    for step in steps:
        *parts, name = components(step.key)
        path = branch(parts)
        direct[path].append((name, step))
    for key, step in undone:
        found[branch(components(key)[:-1])].undone.append(step)
    for path, one in found.items():
        below: list[Place | Branch] = [
            *_places(direct[path]),
            *(found[other] for other in order[path] if other),
        ]
        one.items = below
    _sort(root)
    return root


def _sort(branch: Branch) -> None:
    for item in branch.items:
        if isinstance(item, Branch):
            _sort(item)
    branch.items.sort(key=lambda item: item.first_n)


def _places(steps: Sequence[tuple[str, StepRow]]) -> list[Place]:
    by_name: dict[tuple[str, StepKind], list[tuple[str, StepRow]]] = {}
    for name, step in steps:
        by_name.setdefault((base_of(name), step.kind), []).append((name, step))
    places: list[Place] = []
    for (base, _), members in by_name.items():
        rows = [step for _, step in members]
        if len(rows) == 1:
            places.append(Place(members[0][0], rows))
        elif follow_each_other(rows):
            places.append(Place(base, rows))
        elif len(rows) > GROUP_MIN:
            places.append(Place(base, rows, is_group=True))
        else:
            places += [Place(name, [step]) for name, step in members]
    return _with_naps(places, [step for _, step in steps])


def follow_each_other(steps: Sequence[StepRow]) -> bool:
    """True if each of these steps was asked for when the outcome of the one before was known."""
    return all(
        before.finished_at is not None and after.issued_at >= before.finished_at
        for before, after in pairwise(steps)
    )


def _with_naps(places: list[Place], steps: Sequence[StepRow]) -> list[Place]:
    """Move sleeps between two calls of one place into that place."""
    owner = {step.n: place for place in places for step in place.steps}
    calls = [step for step in steps if step.kind is StepKind.CALL]
    naps: set[int] = set()
    at = 0
    for step in steps:
        if step.kind is not StepKind.TIMER:
            continue
        while at < len(calls) and calls[at].n < step.n:
            at += 1
        if at == 0:
            continue
        before, after = owner[calls[at - 1].n], owner[calls[at].n] if at < len(calls) else None
        is_loop = len(before.steps) > 1 and not before.is_group
        if is_loop and (after is before or (after is None and before.naps)):
            before.naps.append(step)
            naps.add(step.n)
    if not naps:
        return places
    for place in places:
        place.steps = [step for step in place.steps if step.n not in naps]
    return [place for place in places if place.steps]
