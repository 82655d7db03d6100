"""What callers and operators send. An unknown member is refused: it is a typo."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

NAME_MAX, NOTE_MAX, ID_MAX, ITEMS_MAX, ENDED_MAX, WAIT_MAX_S = 200, 4_000, 500, 1_000, 500, 20.0

Name = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
Id = Annotated[str, Meta(min_length=1, max_length=ID_MAX)]
Note = Annotated[str, Meta(max_length=NOTE_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
Wait = Annotated[float, Meta(ge=0, le=WAIT_MAX_S)]
Tags = Annotated[dict[str, Annotated[str, Meta(max_length=1_000)]], Meta(max_length=50)]
INT_MAX = 2_147_483_647
Priority = Annotated[int, Meta(ge=0, le=9)]
Fair = Annotated[str, Meta(min_length=1, max_length=NAME_MAX)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]


def _null() -> Raw:
    return Raw(b"null")


def _nothing() -> Raw:
    return Raw(b"{}")


class Strict(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request."""


class Start(Strict):
    """A run to start. `input` has the arguments by name. The same `id` and input again is the same run."""

    workflow: Name
    input: Raw = msgspec.field(default_factory=_nothing)
    version: Name | None = None
    id: Id | None = None
    tags: Tags = {}
    priority: Priority | None = None
    timeout_s: Seconds | None = None
    begin_at: Annotated[datetime, Meta(tz=True)] | None = None
    """The run begins at this time, and not before."""
    begin_in_s: Seconds | None = None
    """The same, counted from the start. Give one of both."""
    fair: Fair | None = None
    due_at: Annotated[datetime, Meta(tz=True)] | None = None
    """The run is promised to end by this time. People are notified if it is late."""
    due_in_s: Seconds | None = None
    """The same, counted from when the run may begin. Give one of both."""


class SetFair(Strict):
    """The weight of a fair key: how many of its steps begin for one of a key with the weight 1, while both wait."""

    key: Fair
    weight: Annotated[int, Meta(ge=1, le=100)]
    note: Note = ""


class SetLimit(Strict):
    """The number of a limit or a rate. Null: that of the code counts again."""

    most: Annotated[int, Meta(ge=0, le=INT_MAX)] | None
    note: Note = ""


class StartItem(Start):
    """One of many. Without an id, `key` makes one: the same key is the same run."""

    key: Key | None = None


class Batch(Strict):
    items: Annotated[list[StartItem], Meta(min_length=1, max_length=ITEMS_MAX)]


class Ended(Strict):
    """Which of these runs have ended? The answer waits up to `wait_s` for the first."""

    runs: Annotated[list[Id], Meta(min_length=1, max_length=ENDED_MAX)]
    wait_s: Wait = 0.0


class Signal(Strict):
    name: Name
    data: Raw = msgspec.field(default_factory=_null)
    key: Key | None = None
    """The same key again is the same signal, and is sent once."""


class Update(Strict):
    name: Name
    key: Key
    """The same key again is the same call, and gets the same answer."""
    data: Raw = msgspec.field(default_factory=_null)
    wait_s: Wait = WAIT_MAX_S


class Cancel(Strict):
    note: Note = ""
    force: bool = False
    """Also stop a run that is undoing; ask again a run whose code heard the first request and goes on."""
    preview: bool = False
    """Only say what would happen."""


class Noted(Strict):
    note: Note = ""


class Steer(Noted):
    preview: bool = False
    """Only say what would happen."""


class Nothing(Strict):
    pass


class Retry(Strict):
    preview: bool = False
    """Only say what would happen."""


class Skip(Strict):
    step: Annotated[str, Meta(min_length=1, max_length=NOTE_MAX)] | None = None
    """The key of the step or of its undo. Without it, all undos that gave up."""
    note: Note = ""
    preview: bool = False
    """Only say what would happen."""


class Fork(Strict, rename={"start": "from", "results": "set"}):
    start: Annotated[str, Meta(min_length=1, max_length=NOTE_MAX)] | None = None
    """The key of the step from which on everything is executed again."""
    input: Raw = msgspec.field(default_factory=_null)
    """Other arguments, by name."""
    results: dict[str, Raw] = {}
    """Other results of steps, by their keys."""
    id: Id | None = None
    preview: bool = False
    """Only say what would happen."""


class HoldPlace(Strict):
    scope: Literal["workflow", "step", "dependency", "namespace", "all"]
    value: Annotated[str, Meta(max_length=NAME_MAX)] = ""
    """The name that is held. It is empty for the scope `all`."""
    note: Note = ""


Moment = Annotated[str, Meta(min_length=1, max_length=64)]


class CalendarDays(Strict):
    name: Name
    days: Annotated[list[Moment], Meta(min_length=1, max_length=10_000)]
    until: Moment


class NewSchedule(Strict):
    """A schedule. `times` is a cron expression, an interval such as 15m, a date, or several joined by |. Times without an
    offset are local times in `tz`."""

    name: Name
    workflow: Name
    times: Annotated[str, Meta(min_length=1, max_length=20_000)]
    input: Raw = msgspec.field(default_factory=_nothing)
    version: Name | None = None
    tz: Name = "UTC"
    skip: CalendarDays | None = None
    only: CalendarDays | None = None
    shift: Literal["next", "previous"] | None = None
    anchor: Moment | None = None
    start: Moment | None = None
    end: Moment | None = None
    count: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    overlap: Literal["skip", "buffer_one", "buffer_all", "cancel_other", "allow"] = "skip"
    missed: Literal["skip", "once"] | Annotated[int, Meta(ge=1, le=1000)] = "once"
    window_s: Annotated[float, Meta(ge=60, le=2_678_400)] = 86_400.0
    jitter_s: Annotated[float, Meta(ge=0, le=31_622_400)] = 0.0
    pause_after: Annotated[int, Meta(ge=1, le=10**6)] | None = None
    due: Annotated[str, Meta(max_length=5)] | None = None
    """The wall time in `tz` by which its runs are promised to end, such as 06:00."""
    due_in_s: Seconds | None = None
    """The same, as a span that is counted from when a run may begin. Give one of both."""
    tags: Tags = {}
    priority: Priority | None = None
    fair: Fair | None = None
    timeout_s: Seconds | None = None
    replace: bool = False
    """Change the schedule that has this name."""


class RunNow(Strict):
    anyway: bool = False
    """Start it whatever is open."""
    note: Note = ""


class NewBackfill(Strict, rename={"from_": "from"}):
    from_: Moment
    to: Moment
    newest_first: bool = False
    most: Annotated[int, Meta(ge=1, le=1000)] = 3
    """How many of its runs may be open at once."""
    again: Literal["none", "failed", "all"] = "none"
    """Which times run again that have run before."""
    dry_run: bool = False
    note: Note = ""


class ResolveSkip(Strict):
    note: Note = ""
    result: Raw = msgspec.field(default_factory=_null)
    """What the skipped steps return."""


Verb = Literal["cancel", "hold", "release", "retry", "skip", "fork"]


class Plan(Strict, rename={"start": "from", "traits": "is"}):
    """An act on many runs. The runs are chosen as by `GET /v1/runs`, or named. Nothing happens to them until it is carried
    out."""

    verb: Verb
    runs: Annotated[list[Id], Meta(max_length=1000)] = []
    """Exactly these runs."""
    state: list[Name] = []
    workflow: Name | None = None
    tags: Tags = {}
    since: Name | None = None
    until: Name | None = None
    error: Name | None = None
    prefix: Id | None = None
    traits: list[Name] = []
    note: Note = ""
    force: bool = False
    """Of `cancel`: also stop runs that are undoing."""
    start: Annotated[str, Meta(min_length=1, max_length=NOTE_MAX)] | None = None
    """Of `fork`: the key of the first step that is executed again."""


class CarryOut(Strict):
    wait_s: Wait = WAIT_MAX_S
    """For how long this request may carry it out. Ask again while it is running."""


class TokenCreate(Strict):
    role: Literal["viewer", "starter", "operator", "answerer", "agent", "admin"]
    name: Name | None = None
    namespaces: Annotated[list[Name], Meta(max_length=100)] = []
    can: Annotated[list[Name], Meta(max_length=100)] = []
    payloads: bool = True
    who: Annotated[list[Name], Meta(max_length=100)] = []
    """The person who bears it, and their teams: person:anna, team:finance."""
    expires_s: Seconds | None = 90 * 86_400.0
    """After how many seconds it expires. null: never."""


class Answer(Strict):
    """The answer to an ask."""

    value: Raw
    note: Note = ""
    by: Name | None = None
    """For whom a program on the store answers."""


class CallbackError(Strict):
    """Why another system could not do what was asked."""

    message: Annotated[str, Meta(max_length=NOTE_MAX)]
    type: Name = "Error"


class CallbackResult(Strict):
    """The result of a call that another system was asked for: one of both."""

    output: Raw | UnsetType = UNSET
    error: CallbackError | UnsetType = UNSET


class AnswerCallback(CallbackResult):
    """An operator ends a callback in place of the other system."""

    step: Id | None = None
    """The key, name or number of the step, if the run waits for several callbacks."""
    note: Note = ""


class Delegate(Strict):
    to: Name
    """Who gets the place: person:bob, or team:finance."""
    note: Note = ""
    by: Name | None = None


class TokenRotate(Strict):
    grace_s: Annotated[float, Meta(ge=0, le=1e9)] = 3_600.0
    """For how long the old secret works on."""
    expires_s: Seconds | None = None
    """Without it, it lasts as long from now as it did from its beginning."""


class Resolve(Strict):
    act: Literal["release", "skip", "fail"]
    note: Note = ""
    result: Raw = msgspec.field(default_factory=_null)
    """What skipped steps return."""
