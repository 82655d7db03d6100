"""Every error Holdfast raises, grouped by who can act on it.

    HoldfastError
    ├── WorkflowError           the author: change the code
    │   ├── DefinitionError       a step, workflow or signal is declared wrongly
    │   ├── NotInStep             workflow code did what only a step may do
    │   ├── Drift                 the code no longer fits what the run recorded
    │   │   └── Unreadable          and cannot read all of it: an InvalidInput, too
    │   └── UndoMissing           a run takes itself back, and an undo it needs is not loaded
    ├── RunError                the caller: change the call, or look at the run
    │   ├── InvalidInput          a value does not fit its declared type
    │   ├── UnknownRun · UnknownWorkflow · UnknownSignal · Conflict · WrongState · NoTransaction
    │   ├── StepFailed            a step gave up, and its own exception cannot be rebuilt here
    │   │   └── StepTimeout · StepLost
    │   └── RunFailed             what `run.result()` raises
    │       └── RunCancelled · RunUndone · RunStuck
    ├── InvalidSettings         the operator: mend a settings file or an environment variable
    ├── NameTaken               the operator or the author: two applications publish one name on one store
    └── StoreError              the operator: mend the store
        ├── StoreUnreachable · StoreFull · StoreGone · SchemaMismatch · StoreUnsupported
        └── LeaseLost             another node holds what this one wrote to

`Stop` and `RetryIn` are raised by authors, inside steps. `ContinueAsNew` is a control signal: it derives from
BaseException so that an author's `except Exception` cannot swallow it.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """Base of all errors of this library."""


class WorkflowError(HoldfastError):
    """The code of a workflow or step is wrong."""


class DefinitionError(WorkflowError):
    """A step, workflow or signal is declared in a way that cannot work."""


class NotInStep(WorkflowError):
    """Workflow code tried something that only a step may do: I/O, threads, processes."""


class Drift(WorkflowError):
    """The code asks for something else than what the run recorded under the same key."""

    __recorded__ = ("key", "recorded", "asked", "kind")

    def __init__(
        self, key: str, recorded: str, asked: str, *, message: str | None = None, kind: str = "drift"
    ) -> None:
        super().__init__(
            message or f"step {key!r} was recorded with {recorded}, the code now asks for {asked}"
        )
        self.key, self.recorded, self.asked, self.kind = key, recorded, asked, kind


class UndoMissing(WorkflowError):
    """A run has to undo a step, and the code that does it is not loaded here."""

    __recorded__ = ("undo", "step")

    def __init__(self, undo: str, step: str) -> None:
        super().__init__(
            f"the undo {undo!r} of step {step!r} is not loaded here: deploy the code that declares it and release the run, "
            "or skip this undo"
        )
        self.undo, self.step = undo, step


class RunError(HoldfastError):
    """A call about a run cannot be done as asked."""


class InvalidInput(RunError):
    """A value does not fit its declared type. The message names the field."""


class Unreadable(Drift, InvalidInput):
    """Something that was recorded cannot be read whole by the code that is loaded: a part of it would be lost or changed.
    `kind` says what: an input, a result, a signal or a checkpoint."""

    def __init__(self, key: str, kind: str, what: str, recorded: str, problem: str) -> None:
        message = f"{what} was recorded as {recorded}, and this code cannot read all of it: {problem}"
        super().__init__(key, recorded, problem, message=message, kind=kind)


class UnknownRun(RunError):
    """No run has this id."""


class UnknownWorkflow(RunError):
    """No workflow has this name here."""


class UnknownSignal(RunError):
    """The run's workflow takes no signal of this name."""


class Conflict(RunError):
    """A run with this id exists, and it was started with something else, or as no child of the one that asks for it."""


class WrongState(RunError):
    """The run is in a state in which this cannot be done."""


class NoTransaction(RunError):
    """A run is to be started within a transaction, and there is none."""


class StepFailed(RunError):
    """A step gave up. Raised in the workflow when the step's own exception cannot be rebuilt."""

    __recorded__ = ("error_type", "step")

    def __init__(self, message: str, *, error_type: str = "", step: str = "") -> None:
        super().__init__(message)
        self.error_type, self.step = error_type, step


class StepTimeout(StepFailed, TimeoutError):
    """An attempt did not complete in time, and no attempt is left."""


class StepLost(StepFailed):
    """The step's agents were lost more often than its budget allows."""


class RunFailed(RunError):
    """The run ended without a result. `error_type` and `run_id` say which and of what kind."""

    __recorded__ = ("run_id", "error_type")

    def __init__(self, message: str, *, run_id: str = "", error_type: str = "") -> None:
        super().__init__(message)
        self.run_id, self.error_type = run_id, error_type


class RunCancelled(RunFailed):
    """The run was cancelled."""


class RunUndone(RunFailed):
    """The run failed and took back what it had done."""


class RunStuck(RunFailed):
    """A person must look: see `holdfast why`."""


class RunTimeout(RunError, TimeoutError):
    """The run did not end before its deadline."""


class InvalidSettings(HoldfastError):
    """A settings file cannot be used. The message names the place."""


class NameTaken(HoldfastError):
    """Another application has a step or workflow of this name on this store, and its code would be executed for ours."""


class StoreError(HoldfastError):
    """The State Store cannot do what was asked."""


class StoreUnreachable(StoreError):
    """No connection to the store."""

    maybe_done = True
    """What was asked may have been done all the same: its answer was lost. False: it was not done."""


class StoreFull(StoreError):
    """The store cannot write: the disk is full or read-only."""


class StoreGone(StoreError):
    """The store's file was deleted or replaced while it was in use. What is written to it is seen by nobody: nodes stop."""


class StoreUnsupported(StoreError):
    """The URL, the server's version or the SQLite library is not one Holdfast can use."""


class SchemaMismatch(StoreError):
    """The database was made for another version of Holdfast."""


class LeaseLost(StoreError):
    """A write named a fence that is no longer current: somebody else holds the row."""


class Stop(Exception):
    """Raise in a step or workflow to fail at once: no retry."""


class RetryIn(Exception):
    """Raise in a step to try again after `seconds`, as a server's Retry-After asks. It spends no attempt."""

    __recorded__ = ("seconds",)

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"asked to retry in {seconds:g} s")
        self.seconds = float(seconds)


class ContinueAsNew(BaseException):
    """Ends this generation of a run and begins the next with a new input and an empty history."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        super().__init__("continue as new")
        self.arguments, self.keywords = args, kwargs
