"""The schedule of a seed: what it drew. A schedule that found a bug is kept, and not the number of its seed.

A seed plays something else as soon as anything more is drawn. A schedule says by name what was drawn: the limits, the
processes, the workflows, the parts, the faults and when they come. So another version plays the same. Only small
chances are still drawn from the seed: how long a step takes, and which calls a fault hits.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import structs

from holdfast.config import DEFAULT, Config

KEPT = Path(__file__).with_name("kept.jsonl")
MORE = "more"
"""The attribute with the parts that have a module of their own. A schedule has their names."""


class Schedule(msgspec.Struct, omit_defaults=True):
    seed: int
    found: str = ""
    """The bug that it found."""
    settings: dict[str, Any] = {}
    """Limits of the configuration that are not the usual ones."""
    parts: dict[str, Any] = {}
    """What only some seeds play: see `parts.py`."""
    rates: dict[str, float] = {}
    """How often each kind of fault comes."""
    faults: list[tuple[str, float]] = []
    """Faults that come by themselves, and when."""
    roles: list[tuple[str, ...]] = []
    """For each process, its roles."""
    plans: dict[str, Any] = {}
    """By id of a run, its plan."""
    shared: dict[str, Any] = {}
    """The same for runs that other runs start."""

    def config(self) -> Config:
        """Return the configuration with the limits of this schedule. Limits that do not exist any more are left out."""
        known = {name: value for name, value in self.settings.items() if hasattr(DEFAULT, name)}
        return structs.replace(DEFAULT, **known)

    def set_parts(self, parts: Any) -> None:
        for name, value in self.parts.items():
            setattr(parts, name, _named(parts, value) if name == MORE else value)


def unusual(config: Config) -> dict[str, Any]:
    """Return the limits that differ from the usual ones."""
    usual = structs.asdict(DEFAULT)
    return {name: value for name, value in structs.asdict(config).items() if value != usual[name]}


def _named(parts: Any, names: list[str]) -> list[Any]:
    return [part for part in getattr(parts, MORE, []) if part.name in names]


def drawn_parts(parts: Any) -> dict[str, Any]:
    """Return what was drawn about parts, as JSON can keep it."""
    return {MORE: [part.name for part in getattr(parts, MORE, [])]} | {
        name: value
        for name, value in vars(parts).items()
        if not isinstance(value, Random) and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


_decoder = msgspec.json.Decoder(Schedule)


def kept_schedules() -> list[Schedule]:
    """Return the schedules that once found a bug."""
    return [_decoder.decode(line) for line in KEPT.read_text("utf-8").splitlines() if line]


def keep(schedule: Schedule, found: str) -> None:
    """Keep a schedule, with what it found."""
    with KEPT.open("a", encoding="utf-8") as file:
        file.write(encoded(structs.replace(schedule, found=found)) + "\n")


def encoded(schedule: Schedule) -> str:
    return msgspec.json.encode(schedule).decode()


def decoded(text: str) -> Schedule:
    return _decoder.decode(text)
