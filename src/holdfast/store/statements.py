"""Loads the SQL files of a dialect.

The loader is strict. It raises if a statement or a fragment is missing, is defined twice or is not used. So a mistake
shows when a process starts, and not when the statement is first needed.

    -- name: verb                     begins a statement; the comments before it are about it
    -- fragment: name(x)              begins a piece of SQL that statements share; {name(s)} inserts it, with s for {x}
    {Run}, {Run(r)}                   the columns of a noun, in the order of its fields; with a table's alias before each
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import NamedTuple

from holdfast import model
from holdfast.store import answers

_HEAD = re.compile(r"^--\s*(name|fragment):\s*(\w+)(?:\((\w+)\))?\s*$")
_USE = re.compile(r"\{(\w+)(?:\(([^(){}]*)\))?\}")

NOUNS: Mapping[str, tuple[str, ...]] = {
    noun.__name__.removesuffix("Row"): noun.__struct_fields__
    for noun in (
        model.Alert,
        model.Attempt,
        model.Breaker,
        model.Declaration,
        model.Delivery,
        model.Hold,
        model.JournalEntry,
        model.LogRow,
        model.NodeRow,
        model.Quarantined,
        model.RunRow,
        model.SignalRow,
        model.StepRow,
        model.TokenRow,
        model.Twin,
        answers.ClaimedStep,
        answers.LostStep,
        answers.SeenNode,
    )
}
"""Classes whose fields are columns of a table, by the name that statements use for them."""


class Fragment(NamedTuple):
    parameter: str | None
    text: str


def read_statements(package: str) -> dict[str, str]:
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
    return whole


def load(package: str, verbs: Iterable[str]) -> dict[str, str]:
    """Return the statements of `package`. Raise unless their verbs are exactly these."""
    found, wanted = read_statements(package), set(verbs)
    if missing := wanted - found.keys():
        raise ValueError(f"{package}: no statement for {', '.join(sorted(missing))}")
    if unused := found.keys() - wanted:
        raise ValueError(f"{package}: no verb uses the statements {', '.join(sorted(unused))}")
    return found


def _blocks(package: str) -> Iterable[tuple[str, str, str | None, str]]:
    """Return every block of every file: (`name` or `fragment`, the block's name, its parameter, its text)."""
    for file in sorted(files(package).joinpath("statements").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
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


def _filled_in(text: str, fragments: Mapping[str, Fragment], used: set[str], where: str) -> str:
    def inserted(use: re.Match[str]) -> str:
        name, argument = use[1], use[2]
        if name in NOUNS:
            prefix = "" if argument is None else f"{argument}."
            return ", ".join(prefix + column for column in NOUNS[name])
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
