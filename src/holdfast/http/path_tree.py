"""Finds what answers a path. Paths are compared part by part, so this costs the same however many of them there are."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Leaf(NamedTuple, Generic[T]):
    what: T
    names: tuple[str, ...]
    """How the parts are called that may be anything, in their order."""


class PathTree(Generic[T]):
    """What answers the paths that begin here. `{name}` stands for any part that is not empty; a part that is named goes before
    it."""

    def __init__(self) -> None:
        self._named: dict[str, PathTree[T]] = {}
        self._any: PathTree[T] | None = None
        self._leaf: Leaf[T] | None = None

    def add(self, path: str, what: T) -> None:
        here, names = self, []
        for part in path.split("/"):
            if part.startswith("{"):
                names.append(part.strip("{}"))
                here._any = here._any or PathTree()
                here = here._any
            else:
                here = here._named.setdefault(part, PathTree())
        here._leaf = Leaf(what, tuple(names))

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        """Return what answers this path, and its parts by their names."""
        values: list[str] = []
        found = self._find(path.split("/"), 0, values)
        return None if found is None else (found.what, dict(zip(found.names, values, strict=True)))

    def _find(self, parts: list[str], at: int, values: list[str]) -> Leaf[T] | None:
        if at == len(parts):
            return self._leaf
        part = parts[at]
        below = self._named.get(part)
        if below is not None and (found := below._find(parts, at + 1, values)) is not None:
            return found
        if self._any is None or not part:
            return None
        values.append(part)
        found = self._any._find(parts, at + 1, values)
        if found is None:
            values.pop()
        return found
