"""What a claim asks for. Each dialect knows how to take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.store.walk import Turns

LOSSES_NEVER = 2**31 - 1
"""More than any step's number of losses."""


class StepClaim(NamedTuple):
    """A claim of steps for an agent, by priority, then age. Steps behind a gate, and steps whose run does not go on,
    are left out."""

    node: str
    lanes: Sequence[int]
    limit: int
    suspect_losses: int = LOSSES_NEVER
    """A step that has lost its agent this often or more is a suspect."""
    suspects: int = 0
    """How many suspects may be claimed. The others do not keep the steps behind them from being claimed."""
    runs: Sequence[str] | None = None
    """If given, only steps of these runs: the node works on no others."""
    probes_of: str | None = None
    """If given, only probes of this breaker. The transaction has locked its row."""
    turns: Turns | None = None
    """If given, the claim goes from queue to queue, and remembers here where it stopped. Otherwise it takes only what is
    in queue 0."""


class RunClaim(NamedTuple):
    """A claim of runs for a scheduler, by priority, then age: pending runs, and runs without an owner that have
    something to deliver."""

    node: str
    workflows: Sequence[tuple[str, str]]
    limit: int
    runs: Sequence[str] | None = None
    """If given, only these runs: the node works on no others."""
    steps_max: int = 2**31 - 1
    """The claim stops when the claimed runs together have this many steps to replay."""
    turns: Turns | None = None
    """If given, the claim goes from queue to queue, and remembers here where it stopped. Otherwise it takes only what is
    in queue 0."""
