"""Every error Holdfast raises, grouped by who can act on it.

    HoldfastError
    ├── WorkflowError           the author: change the code
    │   ├── DefinitionError       a step, workflow or signal is declared wrongly
    │   ├── NotInStep             workflow code did what only a step may do
    │   ├── Drift                 the code no longer fits what the run recorded
    │   │   └── Unreadable          the code cannot read all of it; also an InvalidInput
    │   ├── Bug                   workflow code raised, and its runs are held then
    │   └── UndoMissing           a run undoes its steps, and an undo it needs is not loaded
    ├── RunError                the caller: change the call, or look at the run
    │   ├── InvalidInput          a value does not fit its declared type
    │   ├── UnknownWorkflow · UnknownSignal · UnknownUpdate · UnknownValue · UnknownAct · UnknownSchedule ·
    │   │   UnknownEvent · UnknownOccasion · UnknownHook · UnknownAsk · UnknownCallback · UnknownLimit
    │   ├── UnknownRun
    │   │   └── UnknownStep         the run has no step of this key
    │   ├── Conflict · NoTransaction
    │   ├── WrongState              this cannot be done in the state that the run is in
    │   │   └── Gone                nobody waits for an answer any more, or another one came first
    │   ├── LimitReached            a limit of the workflow has no room, and refuses the start
    │   ├── Refused               the run refused an update; nothing changed
    │   ├── UpdateFailed          an update ended in an error, or its run ended without answering it
    │   ├── UpdateTimeout         an update is recorded, and was not answered in time
    │   ├── RunTimeout            the run did not end before its deadline
    │   ├── StepFailed            a step gave up, and its own exception cannot be rebuilt here
    │   │   └── StepTimeout · StepLost
    │   └── RunFailed             what `run.result()` raises
    │       └── RunCancelled · RunUndone · RunStuck
    ├── InvalidSettings         the operator: mend a settings file or an environment variable
    ├── AccessError             the caller or the operator: use another token
    │   └── Unauthenticated · Forbidden
    ├── NameTaken               the operator or the author: two applications publish one name on one store
    └── StoreError              the operator: mend the store
        ├── StoreUnreachable · StoreFull · StoreGone · StoreSealed · SchemaMismatch · StoreUnsupported
        └── LeaseLost             another node has what this one wrote to

Authors raise `Stop` and `RetryIn` inside steps. `ContinueAsNew` ends one generation of a run and begins the next. It
derives from BaseException so that an author's `except Exception` does not catch it.
"""

from __future__ import annotations


class HoldfastError(Exception):
    """The base class of all errors of this library."""


class WorkflowError(HoldfastError):
    """The code of a workflow or step is wrong."""


class DefinitionError(WorkflowError):
    """A step, workflow or signal is declared in a way that cannot work."""


class NotInStep(WorkflowError):
    """Workflow code tried something that only a step may do: I/O, threads, processes."""


class Drift(WorkflowError):
    """The code asks for something other than what the run recorded under the same key."""

    __recorded__ = ("key", "recorded", "asked", "kind")

    def __init__(
        self, key: str, recorded: str, asked: str, *, message: str | None = None, kind: str = "drift"
    ) -> None:
        super().__init__(
            message or f"step {key!r} was recorded with {recorded}, the code now asks for {asked}"
        )
        self.key, self.recorded, self.asked, self.kind = key, recorded, asked, kind


class Bug(WorkflowError):
    """Workflow code raised an exception of its own, and this workflow's runs are held then. `error` is that exception,
    as it would have been recorded."""

    __recorded__ = ("error", "place")

    def __init__(self, message: str, *, error: str, place: str) -> None:
        super().__init__(message)
        self.error, self.place = error, place


class UndoMissing(WorkflowError):
    """A run has to undo a step, and the code of that undo is not loaded here."""

    __recorded__ = ("undo", "step")

    def __init__(self, undo: str, step: str) -> None:
        super().__init__(
            f"the undo {undo!r} of step {step!r} is not loaded here: deploy the code that declares it and release the "
            "run, or skip this undo"
        )
        self.undo, self.step = undo, step


class RunError(HoldfastError):
    """Holdfast cannot do what a call about a run asks for."""


class InvalidInput(RunError):
    """A value does not fit its declared type. The message names the field."""


class Unreadable(Drift, InvalidInput):
    """The loaded code cannot read all of something that was recorded: it would lose or change a part of it. `kind` says
    what was recorded: an input, a result, a signal or a checkpoint."""

    def __init__(self, key: str, kind: str, what: str, recorded: str, problem: str) -> None:
        message = f"{what} was recorded as {recorded}, and this code cannot read all of it: {problem}"
        super().__init__(key, recorded, problem, message=message, kind=kind)


class UnknownRun(RunError):
    """No run has this id."""

    @classmethod
    def of(cls, run_id: str) -> UnknownRun:
        return cls(f"no run has the id {run_id!r}: `holdfast ps` lists the newest")


class UnknownWorkflow(RunError):
    """No workflow has this name here."""


class UnknownSchedule(RunError):
    """No schedule has this name."""

    @classmethod
    def of(cls, name: str) -> UnknownSchedule:
        return cls(f"no schedule is called {name!r}: `holdfast schedules` lists them")


class UnknownEvent(RunError):
    """No event has this source and id."""

    @classmethod
    def of(cls, source: str, id: str) -> UnknownEvent:
        return cls(f"no event has the source {source!r} and the id {id!r}: `holdfast events` lists them")


class UnknownOccasion(RunError):
    """No occasion has this id."""

    @classmethod
    def of(cls, id: str) -> UnknownOccasion:
        return cls(f"no occasion has the id {id!r}: `holdfast triggers` lists them")


class UnknownHook(RunError):
    """No hook has this name."""

    @classmethod
    def of(cls, name: str) -> UnknownHook:
        return cls(f"no hook is called {name!r}: `holdfast hooks` lists them")


class UnknownAsk(RunError):
    """No ask has this id, or it is not for whoever asks."""

    @classmethod
    def of(cls, ask: str) -> UnknownAsk:
        return cls(f"no ask has the id {ask!r}: `holdfast asks` lists those that are open")


class UnknownCallback(RunError):
    """There is no such callback, or none that may be named so."""


class LimitReached(RunError):
    """A run was not started: its limit has no room, and says `full="refuse"`."""


class UnknownLimit(RunError):
    """No limit has this key."""

    @classmethod
    def of(cls, key: str) -> UnknownLimit:
        return cls(f"no limit has the key {key!r}: `holdfast limits` lists them")


class UnknownAct(RunError):
    """No act on many runs has this id."""


class UnknownSignal(RunError):
    """The run's workflow has no signal of this name."""


class UnknownUpdate(RunError):
    """The run's workflow has no update of this name."""


class UnknownStep(UnknownRun):
    """The run has no step of this key."""

    @classmethod
    def named(cls, run_id: str, key: str) -> UnknownStep:
        return cls(f"run {run_id!r} has no step {key!r}: `holdfast show {run_id}` lists them")


class UnknownValue(RunError):
    """The run has published nothing under this key."""


class Conflict(RunError):
    """A run with this id exists, but it was started with something else, or it is no child of the run that asks for it.
    Or an update was called before under the same key, with another value."""

    @classmethod
    def of_start(cls, run_id: str) -> Conflict:
        return cls(
            f"run {run_id!r} exists and was started with another workflow or input: "
            f"`holdfast show {run_id}` shows it; choose another id"
        )


class WrongState(RunError):
    """This cannot be done in the state in which the run is."""


class Gone(WrongState):
    """It is too late: nobody waits for this any more, or another answer came first."""


class NoTransaction(RunError):
    """The caller asks to start a run within its transaction, but no transaction is open."""


class Refused(RunError):
    """A run refuses an update: raise it in the function that serves the update, before that has awaited anything. The
    caller gets it, and nothing in the run has changed."""


class UpdateFailed(RunError):
    """An update ended in an error, or its run ended without answering it. `run_id` says which run, and `error_type` what
    kind of error it was; the error itself is the cause."""

    __recorded__ = ("run_id", "error_type")

    def __init__(self, message: str, *, run_id: str = "", error_type: str = "") -> None:
        super().__init__(message)
        self.run_id, self.error_type = run_id, error_type


class UpdateTimeout(RunError, TimeoutError):
    """An update was not answered in time. It is recorded: call again with the same key to get its answer."""


class StepFailed(RunError):
    """A step gave up. The workflow gets this error when the step's own exception cannot be rebuilt."""

    __recorded__ = ("error_type", "step")

    def __init__(self, message: str, *, error_type: str = "", step: str = "") -> None:
        super().__init__(message)
        self.error_type, self.step = error_type, step


class StepTimeout(StepFailed, TimeoutError):
    """An attempt did not complete in time, and the step has no attempt left."""


class StepLost(StepFailed):
    """The step lost its agent more often than its budget allows."""


class RunFailed(RunError):
    """The run ended without a result. `run_id` says which run, and `error_type` what kind of error ended it."""

    __recorded__ = ("run_id", "error_type")

    def __init__(self, message: str, *, run_id: str = "", error_type: str = "") -> None:
        super().__init__(message)
        self.run_id, self.error_type = run_id, error_type


class RunCancelled(RunFailed):
    """The run was cancelled."""


class RunUndone(RunFailed):
    """The run failed and undid its steps."""


class RunStuck(RunFailed):
    """The run cannot go on without a person. `holdfast why` says what to do."""


class RunTimeout(RunError, TimeoutError):
    """The run did not end before its deadline."""


class InvalidSettings(HoldfastError):
    """A settings file or an environment variable cannot be used. The message names the place."""


class AccessError(HoldfastError):
    """A server does not do this for whoever asks."""


class Unauthenticated(AccessError):
    """There is no token, or it is unknown, expired or revoked."""


class Forbidden(AccessError):
    """The role or the namespaces of a token do not allow this, whatever exists."""


class NameTaken(HoldfastError):
    """Another application has a step or workflow of this name on this store. Its code could be executed instead of
    ours."""


class StoreError(HoldfastError):
    """The State Store cannot do what was asked."""


class StoreUnreachable(StoreError):
    """There is no connection to the store."""

    maybe_done = True
    """True if the store may have done what was asked and only the answer was lost. False if it was not done."""


class StoreFull(StoreError):
    """The store cannot write: the disk is full or read-only."""


class StoreGone(StoreError):
    """The store's file was deleted or replaced while it was in use. Nobody would see what is written to it, so nodes
    stop."""


class StoreSealed(StoreError):
    """The store's payloads are sealed, and this process does not have the key."""


class StoreUnsupported(StoreError):
    """Holdfast cannot use this URL, this version of the server or this SQLite library."""


class SchemaMismatch(StoreError):
    """The database was made for another version of Holdfast."""


class LeaseLost(StoreError):
    """A write named a fence that is no longer current, because somebody else has the row now."""


class Stop(Exception):
    """Raise this in a step or workflow to fail at once, without a retry."""


class RetryIn(Exception):
    """Raise this in a step to try again after `seconds`, as a server's Retry-After asks. It spends no attempt."""

    __recorded__ = ("seconds",)

    def __init__(self, seconds: float, message: str = "") -> None:
        super().__init__(message or f"asked to retry in {seconds:g} s")
        self.seconds = float(seconds)


class ContinueAsNew(BaseException):
    """Ends this generation of a run and begins the next one with a new input and an empty history."""

    def __init__(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        super().__init__("continue as new")
        self.arguments, self.keywords = args, kwargs
