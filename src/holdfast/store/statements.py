"""Loads the SQL files of a dialect.

The loader is strict. It raises if a statement or a fragment is missing, is defined twice or is not used. So a mistake
shows when a process starts, and not when the statement is first needed. Only the columns of nouns are filled in later,
so that a heart, whose statements name no noun, need not load the model.

    -- name: verb                     begins a statement; the comments before it are about it
    -- fragment: name(x)              begins a piece of SQL that statements share; {name(s)} inserts it, with s for {x}
    {Run}, {Run(r)}                   the columns of a noun, in the order of its fields; with a table's alias before each
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

_HEAD = re.compile(r"^--\s*(name|fragment):\s*(\w+)(?:\((\w+)\))?\s*$")
_USE = re.compile(r"\{(\w+)(?:\(([^(){}]*)\))?\}")

MODEL, ANSWERS = "holdfast.model", "holdfast.store.answers"
NOUNS: dict[str, tuple[str, str]] = {
    name.removesuffix("Row"): (module, name)
    for module, names in {
        MODEL: (
            "ActRow ActRun Alert AskPerson AskRow Attempt BackfillRow Breaker ComposedRow Declaration Delivery EventRow FireRow Hold "
            "HookRow JournalEntry LogRow NodeRow OccasionRow "
            "Quarantined RunRow ScheduleRow SignalRow StepRow TokenRow Twin"
        ),
        ANSWERS: "ClaimedStep LostStep SeenNode",
    }.items()
    for name in names.split()
}
"""Classes whose fields are columns of a table, as (module, class), by the name that statements use for them."""


def columns(noun: str) -> tuple[str, ...]:
    """Return the columns of a noun, in the order of its fields."""
    module, name = NOUNS[noun]
    made = getattr(import_module(module), name)
    others: frozenset[str] = getattr(made, "not_columns", frozenset())
    return tuple(field for field in made.__struct_fields__ if field not in others)


class Fragment(NamedTuple):
    parameter: str | None
    text: str


class Whole(dict[str, str]):
    """Statements with the columns of nouns in them, which are inserted when a statement is first asked for. From then on
    it is in the dict, and a hop finds it without a call."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def __missing__(self, verb: str) -> str:
        whole = self[verb] = _USE.sub(_columns, self._texts[verb])
        return whole


class Statements(Mapping[str, str]):
    """Statements by verb."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts, self.whole = texts, Whole(texts)

    def __getitem__(self, verb: str) -> str:
        return self.whole[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def read_statements(package: str) -> Statements:
    """Return all statements in the `statements` folder of `package`, by verb, with their fragments inserted."""
    found: dict[str, str] = {}
    fragments: dict[str, Fragment] = {}
    for kind, name, parameter, text in _blocks(package):
        if name in (found if kind == "name" else fragments):
            raise ValueError(f"{package}: {name!r} is defined twice")
        if kind == "name":
            found[name] = text
        else:
            fragments[name] = Fragment(parameter, text)
    used: set[str] = set()
    whole = {verb: _filled_in(text, fragments, used, f"{package}: {verb}") for verb, text in found.items()}
    if unused := fragments.keys() - used:
        raise ValueError(f"{package}: no statement uses the fragments {', '.join(sorted(unused))}")
    return Statements(whole)


def load(package: str, verbs: Iterable[str]) -> Statements:
    """Return the statements of `package`. Raise unless their verbs are exactly these."""
    found, wanted = read_statements(package), set(verbs)
    known = set(found)
    if missing := wanted - known:
        raise ValueError(f"{package}: no statement for {', '.join(sorted(missing))}")
    if unused := known - wanted:
        raise ValueError(f"{package}: no verb uses the statements {', '.join(sorted(unused))}")
    return found


def _blocks(package: str) -> Iterable[tuple[str, str, str | None, str]]:
    """Return every block of every file: (`name` or `fragment`, the block's name, its parameter, its text)."""
    (folder,) = import_module(package).__path__
    for file in sorted(Path(folder, "statements").glob("*.sql")):
        head: re.Match[str] | None = None
        lines: list[str] = []
        for line in [*file.read_text("utf-8").splitlines(), "-- name: end"]:
            begins = _HEAD.match(line)
            if begins is None:
                if not line.lstrip().startswith("--"):
                    lines.append(line)
                continue
            if head is not None:
                yield head[1], head[2], head[3], "\n".join(lines).strip()
            head, lines = begins, []


def _columns(use: re.Match[str]) -> str:
    prefix = "" if use[2] is None else f"{use[2]}."
    return ", ".join(prefix + column for column in columns(use[1]))


def _filled_in(text: str, fragments: Mapping[str, Fragment], used: set[str], where: str) -> str:
    def inserted(use: re.Match[str]) -> str:
        name, argument = use[1], use[2]
        if name in NOUNS:
            return use[0]
        if name not in fragments:
            raise ValueError(f"{where}: there is no fragment {name!r}")
        parameter, body = fragments[name]
        if (parameter is None) != (argument is None):
            raise ValueError(
                f"{where}: the fragment {name!r} takes {'no' if parameter is None else 'an'} argument"
            )
        used.add(name)
        if parameter is not None:
            body = body.replace(f"{{{parameter}}}", str(argument))
        return _filled_in(body, fragments, used, where)

    return _USE.sub(inserted, text)
