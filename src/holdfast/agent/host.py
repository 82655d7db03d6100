"""What an agent needs from the node that hosts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.store.bell import Bell
from holdfast.store.operations import StepOp

Then = Callable[[Any], None]
"""Called with the answer to a write, or with the exception that ended it."""
StepRef = tuple[str, int, int]
"""(run, n, fence) of a step."""


class AgentHost(Protocol):
    def has_lease(self) -> bool:
        """True if the node has its lease. Asked before each step begins, because the process may have been paused."""

    def write_step(self, op: StepOp, then: Then | None = None) -> None:
        """Write an operation on a step. A write that is refused is not repeated."""

    def note_claim(self, run_id: str, n: int) -> None:
        """Note that this agent has claimed a step."""

    def note_loss(self, run_id: str, n: int) -> None:
        """Note that this agent no longer has a step."""

    def known_steps(self) -> set[StepRef]:
        """Return the steps that are executed here, or have ended here and are not written yet."""

    def claim_after(self, delay_s: float) -> None:
        """Claim again after `delay_s` seconds."""

    def claim_at(self, at: float) -> None:
        """Claim steps at this time of the store's clock."""

    def exchange_gates_after(self, delay_s: float) -> None:
        """Report observations of dependencies to the store, and read its gates, after `delay_s` seconds."""

    def ring(self, bell: Bell) -> None: ...
