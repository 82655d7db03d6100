"""Doorbells between processes."""

from __future__ import annotations

from enum import StrEnum


class Bell(StrEnum):
    """What a doorbell rings for. A hint: losing one costs latency, never work."""

    RUNS = "runs"
    """A run waits for a scheduler."""
    STEPS = "steps"
    """A step waits for an agent."""
    OUTCOMES = "outcomes"
    """An outcome or signal waits to be delivered, or a timer changed."""
    ENDED = "ended"
    """A run ended, was held, or otherwise changed for those who watch it."""
    CANCELS = "cancels"
    """A running step was cancelled: its agent should look."""
    GATES = "gates"
    """A breaker or hold changed, or a dependency is in trouble."""
