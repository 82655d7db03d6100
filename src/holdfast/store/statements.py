"""Loads SQL files: `-- name: verb` starts a statement. Strict: a statement nobody asked for fails the load.

A dialect declares its statements as a class with one annotated attribute per verb; `load` fills it in. A file that
lacks a verb, has one twice or has one too many is an error at start-up, not at three in the morning.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^--\s*name:\s*(\w+)\s*$")


def read_statements(package: str) -> dict[str, str]:
    """All statements in the `statements` folder of `package`, by verb."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath("statements").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".sql"):
            continue
        verb = ""
        for line in file.read_text("utf-8").splitlines():
            match = _NAME.match(line)
            if match:
                verb = match.group(1)
                if verb in found:
                    raise ValueError(f"{package}: statement {verb!r} stands twice, again in {file.name}")
                found[verb] = ""
            elif verb and not line.lstrip().startswith("--"):
                found[verb] += line + "\n"
    return {verb: text.strip() for verb, text in found.items()}


class Statements:
    """Base of a dialect's verbs: subclass it and annotate one `str` attribute per statement."""

    def __init__(self, package: str) -> None:
        found = read_statements(package)
        wanted = set(type(self).__annotations__)
        if missing := wanted - found.keys():
            raise ValueError(f"{package}: no statement for {', '.join(sorted(missing))}")
        if unused := found.keys() - wanted:
            raise ValueError(f"{package}: nobody uses {', '.join(sorted(unused))}")
        for verb, text in found.items():
            setattr(self, verb, text)
