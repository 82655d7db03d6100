"""Bells between processes."""

from __future__ import annotations

from enum import StrEnum


class Bell(StrEnum):
    """What a bell says. It is a hint: losing one costs time and never work."""

    RUNS = "runs"
    """A run waits for a scheduler."""
    STEPS = "steps"
    """A step waits for an agent."""
    OUTCOMES = "outcomes"
    """An outcome or signal waits to be delivered, or a timer changed."""
    ENDED = "ended"
    """A run ended, was held, or changed in another way that its watchers want to know."""
    CANCELS = "cancels"
    """A running step was cancelled. Its agent should look."""
    GATES = "gates"
    """A breaker or a hold changed, or a dependency has trouble."""
