"""Holdfast: multi-step operations that either finish or undo themselves."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from holdfast.workflow.here import here
from holdfast.workflow.lint import HoldfastWarning
from holdfast.workflow.log_records import install as _install_log_records
from holdfast.workflow.markers import patched
from holdfast.workflow.signal import Signal
from holdfast.workflow.step import step
from holdfast.workflow.surroundings import continue_as_new, now, publish, random, set_progress, uuid4
from holdfast.workflow.undo import keep, saga, undo_with
from holdfast.workflow.update import Update
from holdfast.workflow.workflow import workflow

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.info import RunInfo, RunView, StepInfo
    from holdfast.run import Run

__all__ = [
    "Conflict",
    "Holdfast",
    "HoldfastError",
    "HoldfastWarning",
    "InvalidInput",
    "Refused",
    "Retry",
    "RetryIn",
    "Run",
    "RunFailed",
    "RunInfo",
    "RunState",
    "RunView",
    "Signal",
    "StepFailed",
    "StepInfo",
    "StepTimeout",
    "Stop",
    "Update",
    "UpdateFailed",
    "WorkflowError",
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

_install_log_records()

_LOADED_WHEN_USED = {
    "Holdfast": "holdfast.client",
    "Run": "holdfast.client",
    "RunInfo": "holdfast.info",
    "RunView": "holdfast.info",
    "StepInfo": "holdfast.info",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    """Load the client when it is first used. It loads the store, which code that only declares workflows does not
    need."""
    if name in _LOADED_WHEN_USED:
        return getattr(import_module(_LOADED_WHEN_USED[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
