"""What a claim asks for, as values: the dialects know how to take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LOSSES_NEVER = 2**31 - 1
"""No step loses its agent this often."""


class StepClaim(NamedTuple):
    """Steps for an agent: by priority, then age. None behind a gate, and none whose run does not go on."""

    node: str
    lanes: Sequence[int]
    limit: int
    suspect_losses: int = LOSSES_NEVER
    """A step that lost its agent this often is a suspect."""
    suspects: int = 0
    """At most so many suspects; with none, those behind them come all the same."""
    runs: Sequence[str] | None = None
    """Only steps of these runs, where a node works on these alone."""
    probes_of: str | None = None
    """Only probes of this breaker, whose row the transaction has locked."""


class RunClaim(NamedTuple):
    """Runs for a scheduler: pending ones, and ownerless ones with something to deliver. By priority, then age."""

    node: str
    workflows: Sequence[tuple[str, str]]
    limit: int
    runs: Sequence[str] | None = None
    """Only some of these, where a node works on these alone."""
    steps_max: int = 2**31 - 1
    """No further run is taken when those taken have so many steps to replay."""
