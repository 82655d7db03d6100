"""A fork: a new run with the history of another one up to a point, with an input or results that somebody edited.

What was recorded before the point counts as done, and the fork never undoes it, because it did not do it. Everything
after the point is executed by the fork itself, under its own `here.key`. The run it came from is not changed, and keeps
its children: the fork uses the results that they had.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast import codec
from holdfast.errors import Conflict, InvalidInput, UnknownRun, WrongState
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    CANCEL,
    DEADLINE,
    UNDO_PREFIX,
    Inherited,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    undone_key,
)
from holdfast.store.database import Session
from holdfast.store.retries import CopiedStep, RunCopy, copy_history, ended_at, inherited
from holdfast.store.rows import step_of
from holdfast.store.verbs import Verb

ID_MAX_CHARS = 200
"""The longest id of a run."""


class ForkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody wants a fork to be."""

    start: str | None = None
    """The key of the first step that is executed again. None: after the first of the results that are set. Without
    these, from the beginning if there is an input, else everything that is recorded is kept."""
    input: bytes | None = None
    """The input, if it differs."""
    results: Mapping[str, bytes] = {}
    """What steps returned, by their keys, where that differs."""
    id: str | None = None
    """The id of the fork. None: one is made."""

    @property
    def is_anew(self) -> bool:
        """True if nothing is kept: the code begins at the beginning."""
        return self.input is not None and self.start is None

    @property
    def is_edited(self) -> bool:
        return self.input is not None or bool(self.results)


class ForkPlan(NamedTuple):
    """What a fork keeps."""

    steps: list[CopiedStep]
    signals: list[tuple[int, int | None]]
    """(id, place in the history)."""
    kept_n: int
    undone: list[str]
    """The keys of kept steps that the other run has undone. What they did is gone, and their results are used."""


class Forked(NamedTuple):
    """A fork that was made."""

    id: str
    kept: int
    """How many steps it took over."""
    undone: list[str]


async def fork(session: Session, run: RunRow, request: ForkRequest) -> Forked:
    """Start a run that keeps what the plan says. Raise, and change nothing, if there can be none."""
    plan = plan_fork(
        run,
        [step_of(row) for row in await session.rows(Verb.history_steps, [run.id])],
        [SignalRow(*row) for row in await session.rows(Verb.signals, run.id)],
        request,
    )
    digest = None if request.input is None else codec.digest(request.input)
    copied = RunCopy(
        kept_n=plan.kept_n,
        forked_from=run.id,
        input=request.input,
        digest=digest,
        is_anew=request.is_anew,
    )
    new_id = await copied.write(session, run.id, fork_ids(run, request.id))
    if new_id is None:
        raise Conflict(f"run {request.id!r} exists: choose another id, or leave it out")
    first = next((one for one in (await inherited(session, [run.id])).get(run.id, []) if not one.key), None)
    identity = run.id if first is None or first.effect is None else first.effect
    kept = Inherited("", new_id if request.is_anew else identity, kept_n=plan.kept_n, sender=new_id)
    entries = [] if request.is_anew and not plan.steps else [kept]
    await copy_history(session, run.id, new_id, plan.steps, plan.signals, entries)
    return Forked(new_id, len(plan.steps), plan.undone)


def fork_ids(run: RunRow, wanted: str | None) -> Iterator[str]:
    """Yield ids for a fork: the wanted one alone, or `id-fork-1`, `id-fork-2` and so on. The fork of `id-fork-1` is
    `id-fork-2`."""
    if wanted is not None:
        yield wanted
        return
    stem = run.id
    if run.forked_from is not None:
        head, _, tail = run.id.rpartition("-fork-")
        if head and tail.isascii() and tail.isdigit():
            stem = head
    number = 1
    while len(made := f"{stem}-fork-{number}") <= ID_MAX_CHARS:
        yield made
        number += 1
    raise InvalidInput(f"the id {run.id!r} is too long to make another one of it: give the fork an id")


def plan_fork(
    run: RunRow, steps: Sequence[StepRow], signals: Sequence[SignalRow], request: ForkRequest
) -> ForkPlan:
    """Return what a fork keeps. Raise if it names a step that is not there, or cannot be named."""
    by_key = {row.key: row for row in steps}
    for key in request.results:
        _demand_settable(_named(by_key, run, key), run)
    point = _point(run, steps, signals, by_key, request)
    is_compared = not request.is_edited
    kept: dict[int, CopiedStep] = {}
    for row in steps:
        result = request.results.get(row.key)
        place = point.place(row, is_set=result is not None)
        if place is not None:
            kept[row.n] = CopiedStep(row.n, None if place < 0 else place, result, is_compared)
    undone_in_sagas = {undone_key(row.key)[0] for row in steps if row.n in kept and _is_undo(row)}
    for row in steps:
        # A call that a saga gave up and undid: the replayed saga asks for both again.
        if row.key in undone_in_sagas and row.delivered_seq == 0:
            kept[row.n] = CopiedStep(row.n, 0, None, is_compared)
    undone = set(codec.end_of(run.error).undone)
    return ForkPlan(
        [kept[n] for n in sorted(kept)],
        [] if request.is_anew else [(one.id, seq) for one in signals if (seq := point.heard(one)) != 0],
        max(kept, default=0),
        [
            row.key
            for row in steps
            if row.n in kept and row.n in undone and row.key not in {*request.results, *undone_in_sagas}
        ],
    )


NOT_DELIVERED = -1
"""The place of a step whose outcome is recorded and still to be delivered."""


class _Point(NamedTuple):
    """Where the fork begins to execute."""

    seq: float
    """The last place in the history that is kept."""
    before_n: float
    after_seq: float
    """The code had asked for a step by then if its n is smaller than the one, and its `after_seq` than the other."""
    is_end: bool
    """True if everything that is recorded is kept."""
    is_cancelled: bool
    """True if the run ended because somebody cancelled it."""
    start_n: int | None = None
    """The step that is executed again. Its result may stand before the place where the code asked for it, if it was set
    by an earlier fork."""

    def place(self, row: StepRow, *, is_set: bool) -> int | None:
        """Return the place of a step in the kept history, NOT_DELIVERED, or None if the step is not kept."""
        heard = row.delivered_seq if row.delivered_seq and row.delivered_seq <= self.seq else 0
        if is_set:
            return heard or NOT_DELIVERED
        if row.n == self.start_n:
            return None
        if row.kind is StepKind.TIMER and row.name == "deadline" and row.key.endswith(DEADLINE):
            return None
        is_asked = row.n < self.before_n and row.after_seq < self.after_seq
        if row.kind in (StepKind.UNDO, StepKind.MARKER):
            return 0 if is_asked else None
        if heard and row.state in STEP_ENDED:
            return heard
        # What was asked for before does not depend on what comes after, and its effect is there.
        has_result = row.kind in (StepKind.CALL, StepKind.CHILD) and row.state is StepState.SUCCEEDED
        return NOT_DELIVERED if has_result and is_asked and not _is_undo(row) else None

    def heard(self, signal: SignalRow) -> int | None:
        """Return the place of a signal in the kept history, None if it is still to be delivered, 0 if it is not
        kept."""
        if signal.update is not None:
            # An update that the code got is a part of its history. Who calls waits for the other run's answer.
            return signal.delivered_seq if signal.delivered_seq and signal.delivered_seq <= self.seq else 0
        if signal.delivered_seq is None:
            return None if self.is_end and not signal.name.startswith("$") else 0
        if signal.delivered_seq > self.seq or (signal.name.startswith("$") and signal.name != CANCEL):
            return 0
        # A request to cancel that ended the run is not kept. One that the code caught is a part of its history.
        return 0 if signal.name == CANCEL and self.is_end and self.is_cancelled else signal.delivered_seq


def _point(
    run: RunRow,
    steps: Sequence[StepRow],
    signals: Sequence[SignalRow],
    by_key: Mapping[str, StepRow],
    request: ForkRequest,
) -> _Point:
    ends = ended_at(run, steps, signals) if run.error is not None or run.ending is not None else math.inf
    is_cancelled = RunState.CANCELLED in (run.state, run.ending)
    if request.start is not None:
        row = _named(by_key, run, request.start)
        if _is_undo(row) or row.kind is StepKind.UNDO:
            raise WrongState(
                f"step {row.key!r} of run {run.id!r} is an undo: fork from a step of the workflow itself"
            )
        return _Point(min(row.after_seq, ends), row.n, math.inf, False, is_cancelled, row.n)
    if request.is_anew:
        return _Point(-1, 0, 0, False, is_cancelled)
    heard = [seq for key in request.results if (seq := by_key[key].delivered_seq) and seq <= ends]
    if heard:
        return _Point(min(heard), math.inf, min(heard), False, is_cancelled)
    return _Point(ends, math.inf, math.inf, True, is_cancelled)


def _named(by_key: Mapping[str, StepRow], run: RunRow, key: str) -> StepRow:
    row = by_key.get(key)
    if row is None:
        raise UnknownRun(f"run {run.id!r} has no step {key!r}: `holdfast show {run.id}` lists them")
    return row


def _demand_settable(row: StepRow, run: RunRow) -> None:
    """Raise if no result can be set for this step."""
    if _is_undo(row) or row.kind not in (StepKind.CALL, StepKind.CHILD, StepKind.SIGNAL):
        what = "an undo" if _is_undo(row) else f"a {row.kind}"
        raise WrongState(f"step {row.key!r} of run {run.id!r} is {what}: it has no result that could be set")
    if row.kind is StepKind.SIGNAL and not row.delivered_seq:
        raise WrongState(
            f"step {row.key!r} of run {run.id!r} has got no signal yet: send the signal to the fork instead"
        )


def _is_undo(row: StepRow) -> bool:
    return row.key.startswith(UNDO_PREFIX)
