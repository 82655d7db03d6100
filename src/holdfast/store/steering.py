"""Which runs an operator can steer in their undoing. Pure."""

from __future__ import annotations

from holdfast.errors import WrongState
from holdfast.model import Run, RunState


def demand_undoing(run: Run, act: str) -> None:
    """Raise unless the run takes itself back, or is stuck at that."""
    if run.state is RunState.STUCK and run.resume is RunState.RUNNING:
        raise WrongState(
            f"run {run.id!r} waits for a step in quarantine: there is no undo to {act}; "
            f"`holdfast why {run.id}` names the fingerprint to release, skip or fail"
        )
    if RunState.UNDOING not in {run.state, run.resume} and run.state is not RunState.STUCK:
        raise WrongState(f"run {run.id!r} is {run.state}: there is no undo to {act}")
