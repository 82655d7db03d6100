"""A retry: a run that goes on from where another run ended.

It keeps everything that was recorded, including failures that the code handled. It does not keep what ended the run and
what was undone: that is done again. A step that may have had its effect, and was not undone, keeps its `here.key`. A
step that was undone gets a new one. A child that succeeded belongs to the new run from then on. A child that did not
succeed is retried itself, when the code asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

import msgspec
from msgspec.structs import astuple

from holdfast import codec
from holdfast.errors import WrongState
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    DEADLINE,
    REQUEST_PREFIX,
    UNDO,
    UNDO_PREFIX,
    Inherited,
    NewRun,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    UpdateAnswer,
    in_words,
    request_key,
    undone_key,
)
from holdfast.store.database import Session
from holdfast.store.gathers import whole_input
from holdfast.store.rows import run_of, step_of
from holdfast.store.verbs import Verb

_SUCCEEDED, _FAILED = StepState.SUCCEEDED, StepState.FAILED


class Way(Enum):
    """How the child of a step in a retried run begins, if the step had a child in the run before."""

    ANEW = "anew"
    """The previous child is gone, or had another workflow or input. The new one is started like any other child."""
    TAKE_OVER = "take over"
    """The previous child succeeded, but its parent did not get that outcome. It becomes the child of the new run."""
    RETRY = "retry"
    """The previous child ended without success. The new one is its retry."""
    WAIT = "wait"
    """The previous child has not ended, so nothing can go on from it yet."""


def way_of(child: NewRun, known: RunRow | None) -> Way:
    if known is None or (known.workflow, known.digest) != (child.workflow, child.digest):
        return Way.ANEW
    if known.state is RunState.SUCCEEDED:
        return Way.TAKE_OVER
    return Way.RETRY if known.state in RUN_ENDED else Way.WAIT


class CopiedStep(NamedTuple):
    """A step that another run takes over."""

    n: int
    seq: int | None
    """Its place in the history: None if its outcome is still to be delivered, 0 if the code gave it up."""
    result: bytes | None = None
    """What it returned, if somebody changed that."""
    is_compared: bool = True
    """Whether a replay compares its input with what the code passes."""


MADE = b"null"
"""The result of a request that counts as made. No code reads it."""


class RetryPlan(NamedTuple):
    """What a retry keeps."""

    steps: list[CopiedStep]
    signals: list[tuple[int, int | None]]
    """(id, place in the history) of all signals that were ever sent to the run, and of the updates that it keeps."""
    taken_over: list[tuple[str, int]]
    """(id, n of the step that asked for it) of the children that belong to the new run from now on."""
    inherited: list[Inherited]
    kept_n: int


async def retried_as(session: Session, run: RunRow) -> RunRow | None:
    """Return the retry of the run, if there is one."""
    row = await session.row(Verb.retried_as, run.id)
    return None if row is None else run_of(row)


async def newest(session: Session, run_id: str | None) -> RunRow | None:
    """Return the newest run in the chain of retries that begins with this run."""
    row = None if run_id is None else await session.row(Verb.run, run_id)
    run = None if row is None else run_of(row)
    while run is not None and (later := await retried_as(session, run)) is not None:
        run = later
    return run


async def inherited(session: Session, run_ids: Sequence[str]) -> dict[str, list[Inherited]]:
    """Return what each of these runs takes over from the run that it is the retry of."""
    found: dict[str, list[Inherited]] = {}
    for run_id, *rest in await session.rows(Verb.inherited, list(run_ids)):
        found.setdefault(run_id, []).append(Inherited(*rest))
    return found


async def retry(
    session: Session,
    run: RunRow,
    *,
    wanted_id: str | None = None,
    parent: tuple[str | None, int | None] = (None, None),
) -> str:
    """Start a run that goes on from where this one ended, and keeps what the plan says. Return its id."""
    children = [run_of(row) for row in await session.rows(Verb.children, run.id)]
    kept = plan(
        run,
        [step_of(row) for row in await session.rows(Verb.history_steps, [run.id])],
        [SignalRow(*row) for row in await session.rows(Verb.signals, run.id)],
        {child.parent_n or 0: child for child in children},
        (await inherited(session, [run.id])).get(run.id, []),
    )
    whole = await whole_input(session, run)
    copied = RunCopy(
        kept_n=kept.kept_n,
        retry_of=run.id,
        parent_id=parent[0],
        parent_n=parent[1],
        input=whole,
        digest=None if whole is None else codec.digest(whole),
    )
    new_id = await copied.write(session, run.id, next_ids(run, wanted_id))
    assert new_id is not None, "next_ids() never ends"
    await copy_history(session, run.id, new_id, kept.steps, kept.signals, kept.inherited)
    await session.each(Verb.take_over, [(new_id, n, child_id) for child_id, n in kept.taken_over])
    return new_id


class RunCopy(NamedTuple):
    """How the row of a run that goes on from another one differs from that one's."""

    kept_n: int
    parent_id: str | None = None
    parent_n: int | None = None
    retry_of: str | None = None
    forked_from: str | None = None
    input: bytes | None = None
    digest: bytes | None = None
    is_anew: bool = False
    """True if its code begins at the beginning, and not in a history."""

    async def write(self, session: Session, run_id: str, ids: Iterable[str]) -> str | None:
        """Copy the run's row under the first of these ids that is free. Return that id, or None if there is none."""
        for new_id in ids:
            if await session.row(Verb.copy_run, run_id, new_id, *self) is not None:
                return new_id
        return None


async def copy_history(
    session: Session,
    run_id: str,
    new_id: str,
    steps: Sequence[CopiedStep],
    signals: Sequence[tuple[int, int | None]],
    inherited: Sequence[Inherited],
) -> None:
    """Give a new run a part of the history of another one."""
    await session.each(Verb.copy_steps, steps, run_id, new_id)
    await session.each(Verb.copy_signals, signals, new_id)
    await session.each(Verb.inherit, [(new_id, *astuple(one)) for one in inherited])


def demand_retryable(run: RunRow, again: RunRow | None, newest: RunRow | None) -> None:
    """Raise unless the run can be retried, or was retried as `again` and `again` was not retried itself. `newest` is
    the newest run in the chain of retries."""
    if run.state not in RUN_ENDED:
        raise WrongState(f"run {run.id!r} is {run.state}: only a run that has ended can be retried")
    if run.state is RunState.SUCCEEDED:
        raise WrongState(f"run {run.id!r} succeeded: there is nothing to retry")
    if again is not None and newest is not None and again.id != newest.id:
        raise WrongState(
            f"run {run.id!r} was retried as {again.id!r}, which was retried since: the newest is {newest.id!r}, which "
            f"{in_words(newest.state)}; only that one can be retried"
        )


async def demand_whole(session: Session, run: RunRow) -> None:
    """Raise if retention removes the run, or removed a run below it."""
    if await session.value(Verb.is_removing, run.id):
        raise WrongState(
            f"run {run.id!r} ended long ago and is being removed: a part of what it did is gone, so nothing can go on from "
            "it; start a new run, and see keep_days in the configuration"
        )


def demand_alone(run: RunRow, parent: RunRow | None, live: str | None) -> None:
    """Raise if the parent must be retried instead, or if the run `live` below this one has not ended. `parent` is the
    newest run in the parent's chain of retries."""
    if parent is not None and parent.state is not RunState.SUCCEEDED:
        move = (
            f"`holdfast retry {parent.id}` goes on with it"
            if parent.state in RUN_ENDED
            else "that one decides what becomes of it"
        )
        raise WrongState(
            f"run {run.id!r} is a child of {parent.id!r}, which {in_words(parent.state)}: {move}"
        )
    if live is not None:
        raise WrongState(
            f"run {run.id!r} has a child that has not ended yet: retry it when `holdfast show {live}` says that it has"
        )


def next_ids(run: RunRow, wanted: str | None) -> Iterator[str]:
    """Yield ids for the retry of a run, best first: the wanted one, then `id~2`, `id~3` and so on. If the run is not a
    retry itself, a `~2` at the end of its id is part of the id."""
    if wanted is not None:
        yield wanted
    stem, number = run.id, 2
    if run.retry_of is not None:
        head, _, tail = run.id.rpartition("~")
        if head and tail.isascii() and tail.isdigit():
            stem, number = head, int(tail) + 1
    while True:
        yield f"{stem}~{number}"
        number += 1


def plan(
    run: RunRow,
    steps: Sequence[StepRow],
    signals: Sequence[SignalRow],
    children: Mapping[int, RunRow],
    inherited: Sequence[Inherited],
) -> RetryPlan:
    """Return what the retry of an ended run keeps. `children` are the run's children, by the n of the step that asked
    for each."""
    end = _end(run, steps, signals)
    undos = [row for row in steps if row.key.startswith(UNDO_PREFIX) and row.state is _SUCCEEDED]
    # What sagas undid because of what ended the run is done again, like what the run undid. If the code went another way
    # instead, it stays undone.
    undone_by_run = set(end.undone)
    undone_at_end = {undone_key(row.key)[0] for row in undos if row.after_seq >= end.since}
    by_saga = {
        undone_key(row.key)[0]: row
        for row in undos
        if row.after_seq < end.since and _heard(row.delivered_seq, end)
    }
    kept: dict[str, CopiedStep] = {}
    left = {one.key: one for one in inherited}
    first = left.pop("", Inherited("", run.id))
    forked: list[CopiedStep] = []
    taken_over: list[tuple[str, int]] = []
    gone, made = _gone(steps, end, by_saga, undone_at_end)
    undone_before = {
        undone_key(row.key)[0] for row in steps if row.n <= first.kept_n and row.key.startswith(UNDO_PREFIX)
    }
    for row in steps:
        if row.kind is StepKind.MARKER:
            continue
        is_undo = row.kind is StepKind.UNDO or row.key.startswith(UNDO_PREFIX)
        if row.n <= first.kept_n and row.delivered_seq == 0 and (is_undo or row.key in undone_before):
            forked.append(CopiedStep(row.n, 0))  # it belongs to what the run was forked from
            continue
        if is_undo:
            continue
        if row.key in left and not left[row.key].is_set:
            del left[row.key]
        undone = row.key in undone_at_end or (row.n in undone_by_run and row.key not in by_saga)
        child = children.get(row.n)
        if child is not None and row.key in by_saga:
            place: int | None = (
                _heard(row.delivered_seq, end) or None
            )  # the saga undid it, and the code knows
        elif row.n <= first.kept_n and row.state is _SUCCEEDED and row.n not in gone:
            # The child, if it is one, belongs to what the run was forked from, and its result was taken over.
            place = _heard(row.delivered_seq, end)
        else:
            place = None if row.n in gone else _place(row, child, end)
        if row.n in made:
            kept[row.key] = CopiedStep(row.n, None, MADE)
        elif place is not None:
            kept[row.key] = CopiedStep(row.n, place or None)
            if child is not None and child.state is RunState.SUCCEEDED:
                taken_over.append((child.id, row.n))
        elif child is not None:
            left[row.key] = Inherited(row.key, child=child.id)
        elif row.n <= first.kept_n:
            pass  # its attempts were made by the run that this one was forked from, and that one undoes them
        elif row.kind is StepKind.CALL and not undone and (row.attempt or row.effect):
            left[row.key] = Inherited(row.key, row.effect_key)
    given_up = {row.key for row in steps if row.n <= first.kept_n and row.delivered_seq == 0}
    rows = [*kept.values(), *forked]
    rows += [
        CopiedStep(row.n, row.delivered_seq) for key, row in by_saga.items() if key in kept or key in given_up
    ]
    # Markers have no place in the history. The retry goes the same ways.
    rows += [CopiedStep(row.n, 0) for row in steps if row.kind is StepKind.MARKER]
    rows.sort(key=lambda one: one.n)

    def last_kept(most: int) -> int:
        """Return the last kept step up to this one. The retry gives the numbers after its last step to steps of its own."""
        return max((one.n for one in rows if one.n <= most), default=0)

    return RetryPlan(
        rows,
        [(one.id, place) for one in signals for place in _signal_places(one, end)],
        taken_over,
        [msgspec.structs.replace(first, kept_n=last_kept(first.kept_n)), *left.values()],
        last_kept(run.kept_n),
    )


def _gone(
    steps: Sequence[StepRow], end: _Ended, by_saga: Collection[str], undone_at_end: Collection[str]
) -> tuple[set[int], set[int]]:
    """Return n of the steps that are not kept, whatever is recorded of them, and of the requests that count as made."""
    undone = {row.key for row in steps if row.n in end.undone and row.key not in by_saga}
    gone = {row.n for row in steps if row.n in end.steps or row.key in undone}
    # The answer to a request that was undone is undone with it.
    requests = {*undone, *undone_at_end}
    gone |= {row.n for row in steps if row.kind is StepKind.CALLBACK and request_key(row.key) in requests}
    kept = {row.n for row in steps if row.n not in gone and _place(row, None, end) is not None}
    made, apart = pairs(steps, kept, by_saga)
    return gone | apart, made


class Pairs(NamedTuple):
    """What becomes of requests and callbacks, each of which needs the other."""

    made: set[int]
    """n of the requests that count as made, whatever became of their code, because the answers are kept: the other system
    has got them, and need not answer again."""
    apart: set[int]
    """n of the steps that are not kept: nobody would answer a callback if its request were not made again."""


def pairs(
    steps: Sequence[StepRow], kept: Collection[int], undone: Collection[str], answered: Collection[str] = ()
) -> Pairs:
    """Return what becomes of requests and callbacks. `kept` are n of the steps that would be kept by themselves, `undone` the
    keys of those that a saga undid, and `answered` the keys of callbacks whose results are set."""
    callbacks = {row.key: row for row in steps if row.kind is StepKind.CALLBACK}
    found = Pairs(set(), set())
    for row in steps if callbacks else ():
        callback = callbacks.get(row.key.removeprefix(REQUEST_PREFIX))
        if row.kind is not StepKind.CALL or callback is None:
            continue
        if row.n in kept:
            if callback.n not in kept and row.state is _SUCCEEDED and row.key not in undone:
                found.apart.add(row.n)
        elif callback.n in kept and (callback.state is _SUCCEEDED or callback.key in answered):
            found.made.add(row.n)
        else:
            found.apart.add(callback.n)
    return found


class _Ended(NamedTuple):
    """Where a run ended."""

    seq: float
    """The place in the history where the run's code ended. Infinite if the code got everything that was delivered."""
    steps: Sequence[int]
    """n of the steps that ended the run."""
    undone: Sequence[int]
    """n of the steps that were undone."""
    since: float = math.inf
    """The place in the history of what ended the run. What sagas undid from then on, they undid because of it."""


def _end(run: RunRow, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> _Ended:
    end = codec.end_of(run.error)
    if end.by:
        # It had succeeded. Its history is what was delivered before its parent wanted it undone, and woke it for that.
        woken = [one.delivered_seq for one in signals if one.name == UNDO and one.delivered_seq]
        return _Ended(min(woken, default=math.inf) - 1, (), end.undone)
    if end.seq is not None:
        failed_at = [row.delivered_seq for row in steps if row.n in end.steps and row.delivered_seq]
        since = min(failed_at, default=math.inf if end.since is None else end.since)
        return _Ended(end.seq, end.steps, end.undone, since)
    # An older version did not record how the run ended. A step that has an undo was undone, and the step that failed
    # last ended the run.
    own = [row for row in steps if not row.key.startswith(UNDO_PREFIX) and row.delivered_seq]
    failed = [row for row in own if row.state is _FAILED and run.state is not RunState.CANCELLED]
    last = max(failed, key=lambda row: row.delivered_seq or 0).n if failed else None
    undone = {undone_key(row.key)[0] for row in steps if row.key.startswith(UNDO_PREFIX)}
    seq = max((row.delivered_seq or 0 for row in own), default=0) if run.ending is not None else math.inf
    return _Ended(seq, () if last is None else (last,), [row.n for row in own if row.key in undone])


def ended_at(run: RunRow, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> float:
    """Return the place in the history where the code of a run that did not succeed ended."""
    return _end(run, steps, signals).seq


def _heard(seq: int | None, end: _Ended) -> int:
    """Return the place in the history, or 0 for what the code had not got when the run ended."""
    return seq if seq and seq <= end.seq else 0


def _signal_places(row: SignalRow, end: _Ended) -> Iterator[int | None]:
    """Yield the place of a signal in the history that is kept, if it is kept. None: it is still to be delivered.

    An update that the code got stays in the history, with its answer. What nobody served is gone: its caller got an
    error, so nothing may happen for it later. An answer from an earlier generation is kept for its key alone.
    """
    if row.update is not None:
        if row.answer is not None and row.answer != UpdateAnswer.UNSERVED:
            if row.delivered_seq == 0:
                yield 0
            elif heard := _heard(row.delivered_seq, end):
                yield heard
    elif row.is_for_code:
        yield _heard(row.delivered_seq, end) or None


def _place(row: StepRow, child: RunRow | None, end: _Ended) -> int | None:
    """Return the place of a step in the history that is kept. 0: its outcome is recorded and not delivered yet. None:
    the step is not kept, and the code asks for it again if it still needs it."""
    if row.kind is StepKind.TIMER and row.name == "deadline" and row.key.endswith(DEADLINE):
        return None
    if child is not None and row.state is _SUCCEEDED and child.state is not RunState.SUCCEEDED:
        return None  # the child was undone
    heard = _heard(row.delivered_seq, end)
    if heard and row.state in (_SUCCEEDED, _FAILED):
        return heard
    is_kept = row.kind in (StepKind.CALL, StepKind.START, StepKind.CALLBACK, StepKind.ASK)
    return 0 if is_kept and row.state is _SUCCEEDED else None
