"""What happened outside the product: effects by `here.key`, and who was allowed to have them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from holdfast import Stop

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

DONE, UNDONE = "done", "undone"


class Ledger:
    """The services that steps call. There is one simulation at a time, and they belong to it."""

    simulation: Simulation


ledger = Ledger()


class Book:
    """One simulation's ledger."""

    def __init__(self) -> None:
        self.effects: dict[str, str] = {}
        self.begun: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.by_tag: dict[tuple[str, int], str] = {}
        """From a run and the tag of a step to its `here.key`."""
        self.chains: dict[tuple[str, int], dict[str, None]] = {}
        """From the first run of a chain of retries and the tag of a step to all the keys with which it had effects."""
        self.by_run: set[tuple[str, int]] = set()
        """The runs whose steps had effects, with the tags of these. A retry has some with the keys of the run before."""
        self.saved: set[tuple[str, int]] = set()
        """The steps (run, n) that have a checkpoint."""

    def did(self, key: str, tag: int, run_id: str, root: str) -> None:
        """Have an effect, once per key. An effect that was undone before it happened is refused."""
        if self.effects.get(key) == UNDONE:
            raise Stop("it was undone before it happened")
        self.counts[key] += 1
        self.by_tag[key.split("::", 1)[0], tag] = key
        self.by_run.add((run_id, tag))
        self.chains.setdefault((root, tag), {})[key] = None
        self.effects.setdefault(key, DONE)

    def undid(self, key: str) -> None:
        self.effects[key] = UNDONE
