"""What happened outside of the product: effects by `here.key`, and who was allowed to have them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast import Stop
from holdfast.testing.loop import PROCESS
from holdfast.workflow.here import here

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

DONE, UNDONE = "done", "undone"


class Ledger:
    """The services that steps talk to. One at a time: `now` is the simulation that runs."""

    now: Simulation


ledger = Ledger()


class Book:
    """One simulation's ledger."""

    def __init__(self) -> None:
        self.effects: dict[str, str] = {}
        self.begun: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.by_tag: dict[tuple[str, int], str] = {}
        """(run, tag of a step) to its `here.key`."""
        self.chains: dict[tuple[str, int], dict[str, None]] = {}
        """(first of a chain of retries, tag of a step) to all the keys that it had effects under."""
        self.by_hand: set[int] = set()
        self.log: list[tuple[str, str]] = []

    def did(self, key: str, tag: int, root: str) -> None:
        """An effect: once per key. One that was taken back before it came is refused."""
        if self.effects.get(key) == UNDONE:
            raise Stop("it was taken back before it came")
        self.counts[key] += 1
        self.by_tag[key.split("::", 1)[0], tag] = key
        self.chains.setdefault((root, tag), {})[key] = None
        if key not in self.effects:
            self.effects[key] = DONE
            self.log.append((DONE, key))

    def undid(self, key: str) -> None:
        if self.effects.get(key) == DONE:
            self.log.append((UNDONE, key))
        self.effects[key] = UNDONE


def process_now() -> object:
    """Which process runs the code that asks."""
    return PROCESS.get()


def key_now() -> tuple[str, int]:
    return here.key, here.attempt
