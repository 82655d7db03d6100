"""A change of a source text."""

from typing import NamedTuple


class Change(NamedTuple):
    start: int
    end: int
    new: str
    """What stands from `start` to `end` instead of `old`."""
    old: str
    kind: str
    where: str
    """The function or the statement that is changed."""
