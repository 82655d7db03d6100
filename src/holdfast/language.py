"""The public names with which authors declare workflows and handle errors. They are loaded together, because what reads
an author's code without running it looks each of them up in the package, also those that no code has used yet.
"""

from holdfast.codec.secret import Secret
from holdfast.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    Refused,
    RetryIn,
    RunFailed,
    StepFailed,
    StepTimeout,
    Stop,
    UpdateFailed,
    WorkflowError,
)
from holdfast.model import RunState
from holdfast.policy import Retry
from holdfast.workflow import log_records  # noqa: F401  from now on, log records say what they belong to
from holdfast.workflow.ask import ask
from holdfast.workflow.here import here
from holdfast.workflow.lint import HoldfastWarning
from holdfast.workflow.markers import patched
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import step
from holdfast.workflow.surroundings import continue_as_new, now, publish, random, set_progress, uuid4
from holdfast.workflow.undo import keep, saga, undo_with
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import workflow

__all__ = [
    "Conflict",
    "HoldfastError",
    "HoldfastWarning",
    "InvalidInput",
    "Refused",
    "Retry",
    "RetryIn",
    "RunFailed",
    "RunState",
    "Secret",
    "Signal",
    "StepFailed",
    "StepTimeout",
    "Stop",
    "Update",
    "UpdateFailed",
    "WorkflowError",
    "ask",
    "continue_as_new",
    "here",
    "keep",
    "now",
    "patched",
    "publish",
    "random",
    "saga",
    "set_progress",
    "step",
    "undo_with",
    "uuid4",
    "workflow",
]
