"""Which run takes a start, by what the code of a workflow says about its starts. Pure."""

from __future__ import annotations

import string
from typing import Any

import msgspec

from holdfast.errors import InvalidInput
from holdfast.model import Gathering

KEY_MAX_CHARS = 500
"""How long the filled key may be. It is in an index."""


class Gather(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a workflow gathers its starts, as its declaration says it to processes without the code."""

    key: str
    first_s: float
    """How long the run waits for further starts if none comes."""
    at_most_s: float = 0.0
    size: int = 0
    parameter: str = ""
    """The parameter that has the items of a batch. Empty for a debounced workflow."""

    def of(self, workflow: str, version: str, raw: bytes) -> Gathering:
        """Return what a start with this input belongs to. `workflow` is a stored name."""
        key = f"{workflow}@{version}:{_filled(self.key, raw)}"
        return Gathering(key, self.first_s, self.first_s, self.at_most_s, self.size, self.parameter)


def _filled(key: str, raw: bytes) -> str:
    arguments = msgspec.json.decode(raw, type=dict[str, Any])
    made = []
    for text, name, _, _ in string.Formatter().parse(key):
        made.append(text)
        if name is None:
            continue
        first, *rest = name.split(".")
        value = arguments.get(first)
        for part in rest:
            if not isinstance(value, dict) or part not in value:
                raise InvalidInput(f"input: `{name}` is in the key {key!r}, and there is no `{part}`")
            value = value[part]
        if isinstance(value, dict | list):
            raise InvalidInput(f"input: `{name}` is in the key {key!r}, so it must be a text or a number")
        made.append(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    found = "".join(made)
    if len(found) > KEY_MAX_CHARS or "\0" in found:
        raise InvalidInput(
            f"input: with these arguments the key {key!r} would have more than {KEY_MAX_CHARS} characters or a NUL"
        )
    return found
