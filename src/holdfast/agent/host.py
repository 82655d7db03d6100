"""What an agent needs of the node that hosts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.store.bell import Bell
from holdfast.store.operations import StepOp

Then = Callable[[Any], None]
"""Called with the answer to a write, or with the exception that ended it."""
Place = tuple[str, int, int]
"""(run, n, fence) of a step."""


class AgentHost(Protocol):
    def has_lease(self) -> bool:
        """Whether the node has its lease. Asked before a step begins: the process may have been paused."""

    def write_step(self, op: StepOp, then: Then | None = None) -> None:
        """Write what became of a step. A write that is refused is not repeated."""

    def note_claim(self, run_id: str, n: int) -> None:
        """A step was claimed."""

    def note_loss(self, run_id: str, n: int) -> None:
        """A step turned out to be another agent's by now."""

    def known_steps(self) -> set[Place]:
        """Steps that are executed here, or have ended here and are not written yet."""

    def claim_after(self, delay_s: float) -> None:
        """Claim again after so many seconds."""

    def exchange_gates_after(self, delay_s: float) -> None:
        """Exchange with the store what is known of gates, after so many seconds."""

    def ring(self, bell: Bell) -> None: ...
