"""A run as a picture of time: from its rows in the store to the picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from holdfast.codec import describe_error, end_of
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.model import (
    DEADLINE,
    UNDO_PREFIX,
    Attempt,
    RunRow,
    RunState,
    StepKind,
    StepRow,
    StepState,
    Twin,
    undone_key,
)
from holdfast.step_words import attempts_of
from holdfast.timeline.bars import Gated, Scene, works
from holdfast.timeline.picture import Bar, Row, Timeline, Turn
from holdfast.timeline.places import grown
from holdfast.timeline.quiet import FOLDED_SHARE, folds, gaps
from holdfast.timeline.rows import Rows, went_wrong

Only = Literal["all", "open", "wrong"]

AHEAD_MAX = 1.0
"""What is foretold for later than this share of the time so far is not in the picture."""
MARGIN = 0.06
SCHEDULER_SHARE, SCHEDULER_S = 0.01, 0.1
"""A wait for a scheduler that is shorter than this share of the whole, or than this many seconds, is not drawn."""


class Sources(NamedTuple):
    """What a picture is made from."""

    run: RunRow
    steps: Sequence[StepRow]
    """In the order of their numbers. Payloads are not needed."""
    attempts: Sequence[Attempt]
    now: float
    twins: Mapping[int, Twin] = {}
    bounds: Mapping[str, float] = {}
    eta_s: float | None = None
    children: Mapping[int, str] = {}
    """The ids of child runs, by the number of the step that waits for each."""
    to_undo: Sequence[StepRow] = ()
    """Steps whose undos are still to come, in the order in which those come."""
    gate: Callable[[StepRow], Gated | None] = lambda _: None
    ref: Callable[[str], str] = str
    """Returns an id as it stands in a path."""


def drawn(given: Sources, mark: str = "", *, only: Only = "all", group: str = "", after: int = 0) -> Timeline:
    """Return the timeline of a run. With `group`, its rows are those below that row."""
    run = given.run
    begun, end = run.created_at, run.finished_at or given.now
    now = max(given.now, begun)
    scene = Scene(
        begun, end if run.finished_at else now, attempts_of(given.attempts), given.twins, given.bounds,
        given.children, given.gate,
    )  # fmt: skip
    forward, backward, in_sagas = _parted(run, given.steps)
    shown = [step for step in forward if _fits(step, scene, only)]
    undos = [(undone_key(step.key)[0], step) for step in in_sagas if _fits(step, scene, only)]
    maker = Rows(scene, given.ref)
    root = grown(shown, undos)
    rows, more = maker.page(root, group, after)
    working = [
        (begun_at - begun, ended_at - begun)
        for step in [*forward, *in_sagas, *backward]
        for begun_at, ended_at, _ in works(step, scene)
    ]
    until, eta_at = _until(given, scene)
    found, is_folded = folds(working, scene.s(end) if run.finished_at else scene.s(now))
    waits = [] if group or after or only != "all" else _waits(run, given, scene, until)
    undo = None
    if run.ending is not None and not group:
        undo = maker.undo_part(run, forward, backward, given.to_undo)
        _pair(rows, undo.rows, maker.row_of)
        undo = undo if undo.total or undo.kept else None
    return Timeline(
        mark=mark,
        run=run.id,
        ref=given.ref(run.id),
        state=str(run.state),
        begun=datetime.fromtimestamp(begun, UTC),
        now=scene.s(now),
        ended=None if run.finished_at is None else scene.s(end),
        until=until,
        eta_at=eta_at,
        kept_at=_kept_at(run, forward, scene),
        turn=_turn(run, forward, backward, scene),
        folds=found,
        fold_share=FOLDED_SHARE,
        is_folded=is_folded,
        steps=len(given.steps),
        rows=waits + rows,
        next=more,
        undo=undo,
    )


def _parted(run: RunRow, steps: Sequence[StepRow]) -> tuple[list[StepRow], list[StepRow], list[StepRow]]:
    """Return what the run did, the undos of the run, and the undos of sagas in it."""
    forward, undos = [], []
    for step in steps:
        if step.key.startswith(UNDO_PREFIX):
            undos.append(step)
        elif step.key != DEADLINE and step.kind not in {StepKind.MARKER, StepKind.UNDO}:
            is_limit = step.kind is StepKind.TIMER and step.name != "sleep"
            if not is_limit or step.state is StepState.SUCCEEDED:
                forward.append(step)
    if run.ending is None:
        return forward, [], undos
    turned = end_of(run.error).seq
    last = forward[-1].n if forward else 0
    of_run = [step for step in undos if step.n > last and (turned is None or step.after_seq >= turned)]
    return forward, of_run, [step for step in undos if step not in of_run] if len(of_run) < len(undos) else []


def _fits(step: StepRow, scene: Scene, only: Only) -> bool:
    if only == "open":
        return step.state not in STEP_ENDED
    return only == "all" or went_wrong(step, scene)


def _pair(above: Iterable[Row], below: Iterable[Row], row_of: Mapping[str, str]) -> None:
    undone_by = {row.pair: row.id for row in below if row.pair}
    for row in above:
        row.pair = row.pair or undone_by.get(row.id, "")


def _turn(run: RunRow, forward: Sequence[StepRow], undos: Sequence[StepRow], scene: Scene) -> Turn | None:
    if run.ending is None:
        return None
    if undos:
        at = min(step.issued_at for step in undos)
    else:
        at = max(
            (step.finished_at or run.created_at for step in forward), default=run.finished_at or scene.now
        )
    end = end_of(run.error)
    if end.by_n is not None:
        return Turn(scene.s(at), "revoked")
    if run.ending == RunState.CANCELLED:
        return Turn(scene.s(at), "cancelled")
    is_late = run.error is not None and describe_error(run.error).startswith("RunTimeout")
    return Turn(scene.s(at), "deadline" if is_late else "failed")


def _kept_at(run: RunRow, forward: Sequence[StepRow], scene: Scene) -> float | None:
    if run.kept_n <= run.base_n or run.goes_on_from is not None:
        return None
    kept = [step.finished_at or step.issued_at for step in forward if step.n <= run.kept_n]
    return scene.s(max(kept)) if kept else None


def _until(given: Sources, scene: Scene) -> tuple[float, float | None]:
    """Return the right edge of the picture, and where the run probably ends."""
    if given.run.finished_at is not None:
        return max(scene.s(given.run.finished_at), 0.001), None
    now = max(scene.s(given.now), 0.001)
    ahead = now * (1 + AHEAD_MAX)
    eta_at = None if given.eta_s is None else round(now + given.eta_s, 3)
    known = [
        scene.s(step.ready_at)
        for step in given.steps
        if step.kind is StepKind.CALL and step.state is StepState.READY and not step.quarantined
    ]
    edge = max([now, *(at for at in [*known, *([eta_at] if eta_at is not None else [])] if at <= ahead)])
    return round(edge * (1 + MARGIN), 3), eta_at if eta_at is not None and eta_at <= ahead else None


def _waits(run: RunRow, given: Sources, scene: Scene, until: float) -> list[Row]:
    """Return the row of the run itself, if it waited for a scheduler for a while."""
    end = run.finished_at or scene.now
    open_ = [
        (step.issued_at - scene.begun, (step.finished_at or scene.now) - scene.begun) for step in given.steps
    ]
    if run.state in {RunState.HELD, RunState.STUCK}:
        return []
    waited = [
        (begun, ended)
        for begun, ended in gaps(open_, 0.0, end - scene.begun)
        if ended - begun > max(SCHEDULER_SHARE * until, SCHEDULER_S)
    ]
    if not waited:
        return []
    is_open = run.state not in RUN_ENDED and waited[-1][1] >= end - scene.begun
    bars = [
        Bar(
            kind="queued",
            begun=round(begun, 3),
            ended=round(ended, 3),
            fill="idle",
            words="waits for a scheduler",
        )
        for begun, ended in waited
    ]
    bars[-1].live = is_open
    return [
        Row(
            id="run",
            kind="run",
            level=1,
            name="scheduler",
            state="pending" if is_open else "succeeded",
            steps=0,
            begun=0.0,
            ended=None if is_open else round(waited[-1][1], 3),
            took_s=round(sum(ended - begun for begun, ended in waited), 3),
            bars=bars,
            words="waits for a scheduler" if is_open else "waited for a scheduler",
        )
    ]
