"""What a timeline consists of. All times are seconds after `Timeline.begun`.

`fill` says which colour something has: `ok` succeeded, `run` runs now, `fail` went wrong, `lost` its agent was gone, `back`
undoes or backs off, `wait` waits for a time or somebody, `held` is held or behind a gate, `idle` is none of these.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

Fill = Literal["ok", "run", "fail", "lost", "back", "wait", "held", "idle", ""]


class Bar(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A stretch of a row."""

    kind: Literal["work", "queued", "off", "sleep", "child", "nap", "ghost"]
    """An attempt works; it waits for an agent or a gate; it backs off; it sleeps or waits for a signal; a child run is
    open; a loop sleeps between two calls; something is still to come."""
    begun: float
    ended: float
    """For what backs off, this may be after now."""
    fill: Fill = ""
    attempt: int = 0
    words: str = ""
    """What went wrong, or what it waits for."""
    live: bool = False
    """True if it goes on."""
    hatch: bool = False
    half: Literal["", "above", "below"] = ""
    """Of a step with a twin: the step's own attempt is above, the twin is below."""


class Mark(msgspec.Struct, omit_defaults=True):
    """A sign at a moment of a row."""

    at: float
    glyph: Literal["fail", "lost", "open"]
    fill: Fill = "fail"


class Say(msgspec.Struct, omit_defaults=True):
    """Words at a moment of a row."""

    at: float
    words: str
    fill: Fill = ""
    before: bool = False
    """True if the words end there. Otherwise they begin there."""


class Density(msgspec.Struct):
    """How much was worked in each slice of a stretch that is cut into equal slices."""

    begun: float
    ended: float
    work: list[float]
    """Between 0 and 1, where 1 is the slice with most work."""
    wrong: list[float]
    """Which share of that work went wrong."""


class Row(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A place in the code: a step, calls of one step one after the other, a branch, or many steps of one name."""

    id: str
    """The same as long as the run is kept, whatever else it does."""
    kind: Literal["run", "step", "branch", "group", "rest", "undo", "undone"]
    """`run`: the run itself, while it waits for a scheduler. `rest`: those of a group that ended alike. `undo`: an undo below
    the fold. `undone`: the heading over what a saga has undone, inside its branch."""
    level: int
    name: str
    state: str = ""
    """As commands name it, with `backing off` and `quarantined`. Empty for branches."""
    path: str = ""
    """The branches before the name, with a slash at the end."""
    small: str = ""
    """What stands behind the name, for example `× 6`."""
    n: int = 0
    """The number of the step that a click shows. 0: there is none."""
    steps: int = 1
    attempts: int = 0
    wrong: int = 0
    """How many attempts went wrong."""
    begun: float = 0.0
    ended: float | None = None
    """None while it is open."""
    took_s: float | None = None
    """How long the last attempt took, or how long an open row has been at it."""
    bars: list[Bar] = []
    marks: list[Mark] = []
    says: list[Say] = []
    words: str = ""
    """What there is to say about it, for readers."""
    pair: str = ""
    """The row that it undoes, or that undoes it."""
    child: str = ""
    """The id of the child run."""
    child_ref: str = ""
    is_open: bool | None = None
    """False: what is below it is fetched with `group` set to its id. None: nothing is below it."""
    density: Density | None = None


class Fold(msgspec.Struct):
    """A stretch in which nothing works."""

    begun: float
    ended: float
    words: str
    """How long it is."""


class Turn(msgspec.Struct):
    """The moment at which the run began to undo itself."""

    at: float
    words: Literal["failed", "cancelled", "deadline", "revoked"]


class UndoPart(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What stands below the fold: the undos, the newest effect first, so that they mirror the rows above."""

    done: int
    total: int
    kept: list[str] = []
    """Keys of steps that may have done something and have no undo, or that are never undone."""
    kept_more: int = 0
    rows: list[Row] = []
    more: int = 0
    """How many rows are left out."""


class Timeline(msgspec.Struct, kw_only=True):
    mark: str
    """Changes when something other than the time has changed."""
    run: str
    ref: str
    state: str
    begun: datetime
    now: float
    ended: float | None
    until: float
    """The right edge of the picture: the end of the run, or a little more than now."""
    eta_at: float | None
    """When the run probably ends."""
    kept_at: float | None
    """What was done before this is never undone."""
    turn: Turn | None
    folds: list[Fold]
    fold_share: float
    """How wide a folded stretch is drawn, as a share of the whole."""
    is_folded: bool
    """True if most of the run is quiet, so that a picture of it should begin folded."""
    steps: int
    """How many steps the run has asked for."""
    rows: list[Row]
    next: int | None
    """`after` of the next page of rows. None on the last one."""
    undo: UndoPart | None
