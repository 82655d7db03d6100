"""Exhaustive search: every state that can be reached, every move between two states, and whether each state can still
reach an end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

W = TypeVar("W")


class Violation(AssertionError):
    """A rule was broken. The message says by which events."""


class Move(NamedTuple, Generic[W]):
    """An event and the world after it. `heals` says that it can also happen when nothing goes wrong any more."""

    event: str
    after: W
    heals: bool = True


class Found(NamedTuple):
    states: int
    moves: int
    ends: int


def explore(
    first: W,
    moves: Callable[[W], Iterable[Move[W]]],
    *,
    key: Callable[[W], Hashable],
    check: Callable[[W, str, W], None],
    is_end: Callable[[W], bool],
    states_max: int = 1_000_000,
) -> Found:
    """Search all states breadth first, so that a violation is reported with one of the shortest paths to it.

    Then check liveness: from every state an end can be reached by moves that heal.
    """
    numbers: dict[Hashable, int] = {key(first): 0}
    reached_by: list[tuple[int, str]] = [(-1, "")]
    ends: list[int] = [0] if is_end(first) else []
    before: list[list[int]] = [[]]
    queue = deque([(0, first)])
    count = 0
    while queue:
        number, world = queue.popleft()
        for event, after, heals in _moves(world, moves, reached_by, number):
            count += 1
            try:
                check(world, event, after)
            except AssertionError as error:
                raise Violation(f"{error}: {' > '.join([*_path(reached_by, number), event])}") from error
            name = key(after)
            seen = numbers.get(name)
            if seen is None:
                seen = numbers[name] = len(numbers)
                assert seen < states_max, f"more than {states_max} states"
                reached_by.append((number, event))
                before.append([])
                queue.append((seen, after))
                if is_end(after):
                    ends.append(seen)
            if heals:
                before[seen].append(number)
    _demand_ends(before, ends, reached_by)
    return Found(len(numbers), count, len(ends))


def _moves(
    world: W, moves: Callable[[W], Iterable[Move[W]]], reached_by: list[tuple[int, str]], number: int
) -> Iterator[Move[W]]:
    """Yield what can happen next. The specification itself refuses what the table of transitions does not allow."""
    try:
        yield from moves(world)
    except AssertionError as error:
        raise Violation(f"{error}: after {' > '.join(_path(reached_by, number))}") from error


def _demand_ends(before: list[list[int]], ends: list[int], reached_by: list[tuple[int, str]]) -> None:
    """Raise if there is a state from which no end can be reached."""
    reached = set(ends)
    queue = deque(ends)
    while queue:
        for number in before[queue.popleft()]:
            if number not in reached:
                reached.add(number)
                queue.append(number)
    stranded = next((number for number in range(len(before)) if number not in reached), None)
    if stranded is not None:
        path = " > ".join(_path(reached_by, stranded))
        raise Violation(f"no end can be reached any more: {path}")


def _path(reached_by: list[tuple[int, str]], number: int) -> list[str]:
    """Return the events that lead to a state."""
    path = []
    while number > 0:
        number, event = reached_by[number]
        path.append(event)
    return path[::-1]
