"""The survivors that a person has looked at: mutants which no test can notice, because what they do is as right as what
the source does. `equivalents.toml` lists them, each with the reason."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.mutation.mutants import Key, Mutant

LIST = Path(__file__).with_name("equivalents.toml")


def read_list(text: str) -> dict[Key, str]:
    """Return the reason of each entry."""
    found: dict[Key, str] = {}
    for entry in tomllib.loads(text).get("equivalent", []):
        key = Key(**{name: value for name, value in entry.items() if name != "reason"})
        if key in found:
            raise ValueError(f"{key} is listed twice")
        if len(entry["reason"].split()) < 5:
            raise ValueError(f"{key} needs a reason that says why nothing can notice it")
        found[key] = entry["reason"]
    return found


def reviewed() -> dict[Key, str]:
    return read_list(LIST.read_text("utf-8"))


def names_nothing(entries: Iterable[Key], mutants: Iterable[Mutant]) -> list[Key]:
    """Return the entries that no mutant has as its key, because the source has changed."""
    return sorted(set(entries) - {mutant.key for mutant in mutants})


def entry(mutant: Mutant) -> str:
    """Return what to add to the list for a mutant, without the reason."""
    key = mutant.key
    lines = [f"{name} = {_quoted(value)}" for name, value in key._asdict().items() if isinstance(value, str)]
    if key.nth > 1:
        lines.append(f"nth = {key.nth}")
    return "\n".join(["[[equivalent]]", *lines, 'reason = ""'])


def _quoted(text: str) -> str:
    if "'" not in text:
        return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
