"""Which runs an operator can steer in their undoing, and what a request to cancel is called. Pure."""

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


def cancel_key(heard: int, *, again: bool) -> str:
    """The key of a request to cancel a run whose code has heard so many. The same again is the same request, and does not
    disturb code that is cleaning up; only who insists asks anew, once the last one was heard."""
    return f"cancel#{heard + 1}" if again and heard else "cancel"
