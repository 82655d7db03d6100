"""The mutants of the product: each is its source with one small change, which some test should notice.

`python_mutants.py` and `sql_mutants.py` find the places. This module says which files are mutated, names each mutant, and
draws a sample.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.mutation.places import Change
from tests.mutation.python_mutants import python_changes
from tests.mutation.sql_mutants import sql_changes

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "holdfast"
AREAS = ("decider", "policy.py", "breaker.py", "lifecycle.py", "scheduler", "agent", "supervisor", "store")
"""What of the package is mutated: that which decides, and that which writes. Of the migrations only the functions are,
because statements call them."""


class Key(NamedTuple):
    """Names a mutant in a way that survives when lines move."""

    file: str
    where: str
    """The function, or the SQL statement."""
    line: str
    """The line of the source, with one space wherever it has blanks."""
    kind: str
    change: str
    nth: int = 1
    """Which one it is of those that have the rest of their keys in common: the same change twice in a line."""


class Mutant(msgspec.Struct, frozen=True, dict=True):
    file: str
    """The file's path in the package."""
    change: Change
    line: int
    column: int
    source_line: str
    nth: int = 1

    @cached_property
    def id(self) -> str:
        return f"{self.file}:{self.line}:{self.column}:{self.change.kind}"

    @property
    def what(self) -> str:
        """What is changed, in one line."""
        return f"{_short(self.change.old)} → {_short(self.change.new) or 'nothing'}"

    @property
    def key(self) -> Key:
        line = _one_line(self.source_line)
        return Key(self.file, self.change.where, line, self.change.kind, self.what, self.nth)

    @property
    def area(self) -> str:
        """The area, with the dialect and the language for a store."""
        first, *rest = Path(self.file).parts
        if first != "store":
            return first
        dialect = f"/{rest[0]}" if len(rest) > 1 else ""
        return f"store{dialect}{' (SQL)' if self.is_sql else ''}"

    @property
    def is_sql(self) -> bool:
        return self.file.endswith(".sql")

    def applied_to(self, text: str) -> str:
        return text[: self.change.start] + self.change.new + text[self.change.end :]


def files() -> list[Path]:
    """Return every file that is mutated."""
    found: list[Path] = []
    for area in AREAS:
        place = PACKAGE / area
        found += [place] if place.is_file() else [*place.rglob("*.py"), *place.rglob("*.sql")]
    return sorted(found)


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yield the mutants of one file, in the order of their places."""
    changes = sql_changes(text) if file.endswith(".sql") else python_changes(text)
    if "migrations" in Path(file).parts:
        changes = (change for change in changes if change.where)
    lines = text.splitlines()
    alike: Counter[Key] = Counter()
    for change in sorted(changes, key=lambda change: (change.start, change.kind)):
        before = text[: change.start]
        line = before.count("\n") + 1
        column = change.start - (before.rfind("\n") + 1) + 1
        mutant = Mutant(file, change, line, column, lines[line - 1])
        alike[mutant.key] += 1
        yield msgspec.structs.replace(mutant, nth=alike[mutant.key])


def all_mutants() -> list[Mutant]:
    found: list[Mutant] = []
    for path in files():
        found += mutants_of(path.relative_to(PACKAGE).as_posix(), path.read_text("utf-8"))
    return found


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` of the mutants. Each mutant's rank depends only on the seed and on its key, so that a change of the
    source leaves most of the sample as it was."""

    def rank(mutant: Mutant) -> tuple[bytes, str]:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest(), mutant.id

    return sorted(mutants, key=rank)[:count]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _short(text: str, limit: int = 70) -> str:
    line = _one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"
