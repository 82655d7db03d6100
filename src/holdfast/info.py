"""What a program sees of a run, its steps and their attempts: the store's rows with their payloads decoded.

Payloads are plain JSON values here (a dict for a dataclass). `run.result()` of a handle that knows its workflow returns
the declared type instead. A payload is decoded when it is asked for, so that listing many runs costs little.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast import codec
from holdfast.codec.secret import masked
from holdfast.model import Attempt, Ending, RunRow, RunState, StepKind, StepRow, StepState

Row = TypeVar("Row", bound=RunRow | StepRow | Attempt)


class Progress(NamedTuple):
    """How far a run or a step has come, as it says itself."""

    fraction: float | None
    """0 to 1."""
    note: str


class _Info(Generic[Row]):
    __slots__ = ("_row",)

    def __init__(self, row: Row) -> None:
        self._row: Row = row

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Info) and type(other) is type(self) and other._row == self._row

    __hash__ = None  # type: ignore[assignment]  # not hashable, like a list: two reads of one run soon differ


class RunInfo(_Info[RunRow]):
    """A run, as it was when it was read."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<RunInfo {self.id} {self.workflow} {self.state}>"

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def workflow(self) -> str:
        """The workflow's name."""
        return self._row.workflow

    @property
    def version(self) -> str:
        return self._row.version

    @property
    def state(self) -> RunState:
        return self._row.state

    @property
    def input(self) -> Any:
        """The arguments, by parameter."""
        return _value(self._row.input)

    @property
    def output(self) -> Any:
        """The result, if the run succeeded."""
        return _value(self._row.output)

    @property
    def error(self) -> Exception | None:
        """Why the run failed or is stuck: the exception itself where it can be rebuilt here."""
        return _error(self._row.note if self.state is RunState.STUCK else self._row.error)

    @property
    def note(self) -> str | None:
        """Why the run is held, or what an operator said."""
        return None if self.state is RunState.STUCK else _note(self._row.note)

    @property
    def tags(self) -> dict[str, str]:
        return _value(self._row.tags) or {}

    @property
    def published(self) -> dict[str, Any]:
        """What the workflow showed with `publish`."""
        return _value(self._row.published) or {}

    @property
    def progress(self) -> Progress | None:
        """What the workflow said with `set_progress`."""
        return _progress(self._row.progress)

    @property
    def namespace(self) -> str:
        return self._row.namespace

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def fair(self) -> str | None:
        """Whom the run is for."""
        return self._row.fair

    @property
    def parent_id(self) -> str | None:
        """The run whose child this run is."""
        return self._row.parent_id

    @property
    def started_by(self) -> str | None:
        """The run whose code started this run with `start`. It is not the parent of this run."""
        return self._row.started_by

    @property
    def retry_of(self) -> str | None:
        """The run of which this run is the retry."""
        return self._row.retry_of

    @property
    def forked_from(self) -> str | None:
        """The run that this run was forked from."""
        return self._row.forked_from

    @property
    def generation(self) -> int:
        """1 at first. Each `continue_as_new` adds one."""
        return self._row.generation

    @property
    def created_at(self) -> datetime:
        return _at(self._row.created_at)

    @property
    def started_at(self) -> datetime | None:
        return _maybe_at(self._row.started_at)

    @property
    def finished_at(self) -> datetime | None:
        return _maybe_at(self._row.finished_at)

    @property
    def deadline(self) -> datetime | None:
        return _maybe_at(self._row.deadline)

    @property
    def begin_at(self) -> datetime | None:
        """The time before which nobody begins the run. None if it could begin at once."""
        return _maybe_at(self._row.begin_at)

    @property
    def due_at(self) -> datetime | None:
        """When the run was promised to end. None if nothing was promised."""
        return _maybe_at(self._row.due_at)


class StepInfo(_Info[StepRow]):
    """A step of a run: a call, a timer, a signal that the run waits for, or a child run."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<StepInfo {self.key} {self.state}>"

    @property
    def n(self) -> int:
        """The step's place among the run's steps."""
        return self._row.n

    @property
    def key(self) -> str:
        """The step's name within the run."""
        return self._row.key

    @property
    def name(self) -> str:
        """The name of the step function, workflow or signal."""
        return self._row.name

    @property
    def kind(self) -> StepKind:
        return self._row.kind

    @property
    def state(self) -> StepState:
        return self._row.state

    @property
    def quarantined(self) -> bool:
        """True if the step waits for a person."""
        return self._row.quarantined

    @property
    def attempt(self) -> int:
        """How many attempts began."""
        return self._row.attempt

    @property
    def spent(self) -> int:
        """How many of them count against the attempts that the step may have."""
        return self._row.spent

    @property
    def losses(self) -> int:
        """How often the step's agent died during an attempt."""
        return self._row.losses

    @property
    def timeouts(self) -> int:
        return self._row.timeouts

    @property
    def throttled(self) -> int:
        """How often the step raised `RetryIn`."""
        return self._row.throttled

    @property
    def excused(self) -> int:
        """How many attempts spent no budget: an agent handed the step back, its dependency was known to be down, or an
        operator released it from quarantine."""
        return self._row.excused

    @property
    def agent(self) -> str | None:
        """The node that executes the step, or executed it last."""
        return self._row.agent

    @property
    def input(self) -> Any:
        """The arguments, by parameter."""
        return _value(self._row.input)

    @property
    def output(self) -> Any:
        """The result, if the step succeeded."""
        return _value(self._row.output)

    @property
    def error(self) -> Exception | None:
        """Why the step failed, or why its last attempt failed."""
        return _error(self._row.error)

    @property
    def progress(self) -> Progress | None:
        """What the step said with `here.beat`."""
        return _progress(self._row.progress)

    @property
    def issued_at(self) -> datetime:
        """When the workflow asked for the step."""
        return _at(self._row.issued_at)

    @property
    def ready_at(self) -> datetime:
        """The time before which the step does not begin: when a timer fires, or when the next attempt may begin."""
        return _at(self._row.ready_at)

    @property
    def started_at(self) -> datetime | None:
        return _maybe_at(self._row.started_at)

    @property
    def finished_at(self) -> datetime | None:
        return _maybe_at(self._row.finished_at)


class AttemptInfo(_Info[Attempt]):
    """An attempt whose result did not become its step's outcome."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<AttemptInfo {self.attempt} of step {self.n} {self.ending}>"

    @property
    def n(self) -> int:
        """The step's place among the run's steps."""
        return self._row.n

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1 for the first."""
        return self._row.attempt

    @property
    def ending(self) -> Ending:
        return self._row.ending

    @property
    def error(self) -> Exception | None:
        return _error(self._row.error)

    @property
    def agent(self) -> str | None:
        return self._row.agent

    @property
    def started_at(self) -> datetime | None:
        return _maybe_at(self._row.started_at)

    @property
    def finished_at(self) -> datetime:
        return _at(self._row.finished_at)


class RunView(NamedTuple):
    """A run, its steps and their failed attempts, as they were at one moment."""

    run: RunInfo
    steps: list[StepInfo]
    attempts: list[AttemptInfo]


def cursor(info: RunInfo) -> tuple[float, str]:
    """Return where the next page of a list of runs begins."""
    return info._row.created_at, info._row.id


def _value(raw: bytes | str | None) -> Any:
    return None if raw is None else masked(json.loads(raw))


def _note(note: str | None) -> str | None:
    """Return the words of a note. A scheduler's note is JSON with a message; an operator's note is what the operator
    said."""
    try:
        fields = json.loads(note or "")
    except ValueError:
        return note
    return str(fields.get("message", note)) if isinstance(fields, dict) else note


def _error(raw: str | None) -> Exception | None:
    return None if raw is None else codec.decode_error(raw)


def _progress(raw: str | None) -> Progress | None:
    if raw is None:
        return None
    fields = json.loads(raw)
    return Progress(fields.get("fraction"), str(fields.get("note") or ""))


def _at(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _maybe_at(at: float | None) -> datetime | None:
    return None if at is None else _at(at)
