"""Holdfast: multi-step operations that either finish or undo themselves.

The public names are loaded when one of them is first used, so that a process loads only what it needs: the process that
renews a lease loads no workflows, and code that only declares workflows loads no store.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast import log_fields

if TYPE_CHECKING:
    from holdfast.client import Holdfast
    from holdfast.info import RunInfo, RunView, StepInfo
    from holdfast.language import (
        Conflict,
        HoldfastError,
        HoldfastWarning,
        InvalidInput,
        Refused,
        Retry,
        RetryIn,
        RunFailed,
        RunState,
        Secret,
        Signal,
        StepFailed,
        StepTimeout,
        Stop,
        Update,
        UpdateFailed,
        WorkflowError,
        ask,
        continue_as_new,
        here,
        keep,
        now,
        patched,
        publish,
        random,
        saga,
        set_progress,
        step,
        undo_with,
        uuid4,
        workflow,
    )
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
    "Secret",
    "Signal",
    "StepFailed",
    "StepInfo",
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

_OF_THE_CLIENT = {
    "Holdfast": "holdfast.client",
    "Run": "holdfast.client",
    "RunInfo": "holdfast.info",
    "RunView": "holdfast.info",
    "StepInfo": "holdfast.info",
}


def __getattr__(name: str) -> Any:
    if name in _OF_THE_CLIENT:
        return getattr(import_module(_OF_THE_CLIENT[name]), name)
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    language = import_module("holdfast.language")
    globals().update({each: getattr(language, each) for each in language.__all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps the decorator `workflow` in its place. When Python has imported the folder of that name, it would put the
    folder there."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
log_fields.install()
