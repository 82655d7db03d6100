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
from holdfast.errors import Conflict, InvalidInput, UnknownStep, WrongState
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    CANCEL,
    DEADLINE,
    MARKER_PREFIX,
    REQUEST_PREFIX,
    UNDO_PREFIX,
    Inherited,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    request_key,
    undone_key,
)
from holdfast.store.database import Session
from holdfast.store.gathers import whole_input
from holdfast.store.retries import MADE, CopiedStep, RunCopy, copy_history, ended_at, inherited, pairs
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
    digest: bytes | None = None
    """The digest of that input."""
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
    ahead: list[Inherited]
    """The results that are set from the point on, and the ways of the markers that lead there."""


class Forked(NamedTuple):
    """A fork that was made."""

    id: str
    kept: int
    """How many steps it took over."""
    undone: list[str]


async def fork(session: Session, run: RunRow, request: ForkRequest) -> Forked:
    """Start a run that keeps what the plan says. Raise, and change nothing, if there can be none."""
    before = (await inherited(session, [run.id])).get(run.id, [])
    plan = plan_fork(
        run,
        [step_of(row) for row in await session.rows(Verb.history_steps, [run.id])],
        [SignalRow(*row) for row in await session.rows(Verb.signals, run.id)],
        request,
        before,
    )
    whole = None if request.input is not None else await whole_input(session, run)
    copied = RunCopy(
        kept_n=plan.kept_n,
        forked_from=run.id,
        input=request.input if whole is None else whole,
        digest=request.digest if whole is None else codec.digest(whole),
        is_anew=request.is_anew,
    )
    new_id = await copied.write(session, run.id, fork_ids(run, request.id))
    if new_id is None:
        raise Conflict(f"run {request.id!r} exists: choose another id, or leave it out")
    first = next((one for one in before if not one.key), None)
    identity = run.id if first is None or first.effect is None else first.effect
    kept = Inherited("", new_id if request.is_anew else identity, kept_n=plan.kept_n, sender=new_id)
    entries = [] if request.is_anew and not plan.steps else [kept, *plan.ahead]
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
    run: RunRow,
    steps: Sequence[StepRow],
    signals: Sequence[SignalRow],
    request: ForkRequest,
    inherited: Sequence[Inherited] = (),
) -> ForkPlan:
    """Return what a fork keeps. Raise if it names a step that is not there, or cannot be named. `inherited` is what the run
    itself takes over."""
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
        elif row.n == point.start_n and row.kind is StepKind.MARKER and not request.results:
            # It is decided anew, and this run is the first to arrive there: it goes the new way.
            kept[row.n] = CopiedStep(row.n, 0, b"true", is_compared)
    undone_in_sagas = {undone_key(row.key)[0] for row in steps if row.n in kept and _is_undo(row)}
    for row in steps:
        # A call that a saga gave up and undid: the replayed saga asks for both again.
        if row.key in undone_in_sagas and row.delivered_seq == 0:
            kept[row.n] = CopiedStep(row.n, 0, None, is_compared)
    made, apart = pairs(steps, kept, undone_in_sagas, request.results)
    kept |= {n: CopiedStep(n, None, MADE, is_compared) for n in made}
    for n in apart:
        kept.pop(n, None)
    undone = set(codec.end_of(run.error).undone)
    set_keys = {*request.results, *(one.key for one in inherited if one.is_set)}
    ahead = [
        Inherited(row.key) for row in steps if row.key in set_keys and point.is_ahead(row, kept.get(row.n))
    ]
    ways = {one.key: one for one in inherited if one.key.startswith(MARKER_PREFIX)}
    for row in steps:
        if row.kind is StepKind.MARKER and row.n not in kept:
            ways[row.key] = Inherited(row.key, (row.output or b"").decode())
    return ForkPlan(
        [kept[n] for n in sorted(kept)],
        [] if request.is_anew else [(one.id, seq) for one in signals if (seq := point.heard(one)) != 0],
        max(kept, default=0),
        [
            row.key
            for row in steps
            if row.n in kept and row.n in undone and row.key not in {*request.results, *undone_in_sagas}
        ],
        [*ahead, *ways.values()] if ahead else [],
    )


KEPT_BESIDE = (StepKind.CALL, StepKind.CHILD, StepKind.CALLBACK, StepKind.ASK, StepKind.START)
"""What did something outside of the run, or what somebody outside did: it is not repeated."""
NOT_DELIVERED = -1
"""The place of a step whose outcome is recorded and still to be delivered."""


class _Point(NamedTuple):
    """Where the fork begins to execute."""

    seq: float
    """The last place in the history that is kept."""
    before_n: float
    after_seq: float
    """The code had asked for a step by then if the step's n is smaller than `before_n`, and its `after_seq` smaller than
    the one here."""
    is_end: bool
    """True if everything that is recorded is kept."""
    is_cancelled: bool
    """True if the run ended because somebody cancelled it."""
    is_delivery: bool = False
    """True if the point is the delivery of a result that is set. What the code does with it is the fork's own doing."""
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
        if row.kind is StepKind.MARKER:
            return 0 if is_asked or (row.after_seq == self.seq and not self.is_delivery) else None
        if row.kind is StepKind.UNDO:
            return 0 if is_asked else None
        if heard and row.state in STEP_ENDED:
            return heard
        # What was asked for before does not depend on what comes after, and its effect is there.
        has_result = row.kind in KEPT_BESIDE and row.state is StepState.SUCCEEDED
        return NOT_DELIVERED if has_result and is_asked and not _is_undo(row) else None

    def is_ahead(self, row: StepRow, kept: CopiedStep | None) -> bool:
        """True if the code of the fork has still to get the result of this step, which is kept."""
        if kept is None:
            return False
        return kept.seq is None or (self.is_delivery and row.delivered_seq == self.seq)

    def heard(self, signal: SignalRow) -> int | None:
        """Return the place of a signal in the kept history, None if it is still to be delivered, 0 if it is not
        kept."""
        if signal.update is not None:
            # An update that the code got is a part of its history. Who calls waits for the other run's answer.
            return signal.delivered_seq if signal.delivered_seq and signal.delivered_seq <= self.seq else 0
        if signal.delivered_seq is None:
            return None if self.is_end and signal.is_for_code else 0
        if signal.delivered_seq > self.seq or not (signal.is_for_code or signal.name == CANCEL):
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
        row = by_key.get(request_key(row.key), row)  # a callback is asked for again, too
        if _is_undo(row) or row.kind is StepKind.UNDO:
            raise WrongState(
                f"step {row.key!r} of run {run.id!r} is an undo: fork from a step of the workflow itself"
            )
        return _Point(min(row.after_seq, ends), *_order(row), False, is_cancelled, start_n=row.n)
    if request.is_anew:
        return _Point(-1, 0, 0, False, is_cancelled)
    got = [row for key in request.results if (row := by_key[key]).delivered_seq and row.delivered_seq <= ends]
    if got:
        first = min(got, key=_got_at)
        seq = first.delivered_seq or 0
        if _is_early(first):
            return _Point(min(first.after_seq, ends), *_order(first), False, is_cancelled)
        return _Point(seq, math.inf, seq, False, is_cancelled, is_delivery=True)
    return _Point(ends, math.inf, math.inf, True, is_cancelled)


def _is_early(row: StepRow) -> bool:
    """True if the outcome of a step was there when the code asked for it: a signal that came early, or a result that an
    earlier fork was given. The code got it where it asked."""
    return bool(row.delivered_seq) and (row.delivered_seq or 0) <= row.after_seq


def _got_at(row: StepRow) -> float:
    """Return what orders steps by where the code got their outcomes. What it got where it asked comes before the next
    delivery."""
    return row.after_seq + 0.5 if _is_early(row) else row.delivered_seq or 0


def _order(row: StepRow) -> tuple[float, float]:
    """Return `before_n` and `after_seq` of the point where the code asked for this step. The number of a step whose result
    was set says nothing about that: it is from the run before. Nor does that of a marker with the old way: it was decided
    in a replay, after the steps that the code asks for after it."""
    is_late = row.kind is StepKind.MARKER and row.output != b"true"
    if is_late or (_is_early(row) and row.kind is not StepKind.SIGNAL):
        return math.inf, row.after_seq
    return row.n, math.inf


def _named(by_key: Mapping[str, StepRow], run: RunRow, key: str) -> StepRow:
    row = by_key.get(key)
    if row is None:
        raise UnknownStep.named(run.id, key)
    return row


def _demand_settable(row: StepRow, run: RunRow) -> None:
    """Raise if no result can be set for this step."""
    if row.key.startswith(REQUEST_PREFIX):
        raise WrongState(
            f"step {row.key!r} of run {run.id!r} is the request for a callback: set the result of "
            f"{row.key.removeprefix(REQUEST_PREFIX)!r}"
        )
    if _is_undo(row) or row.kind not in _SETTABLE:
        what = "an undo" if _is_undo(row) else f"a {row.kind}"
        raise WrongState(f"step {row.key!r} of run {run.id!r} is {what}: it has no result that could be set")
    if row.kind is StepKind.SIGNAL and not row.delivered_seq:
        raise WrongState(
            f"step {row.key!r} of run {run.id!r} has got no signal yet: send the signal to the fork instead"
        )


_SETTABLE = (StepKind.CALL, StepKind.CHILD, StepKind.SIGNAL, StepKind.CALLBACK)


def _is_undo(row: StepRow) -> bool:
    return row.key.startswith(UNDO_PREFIX)
