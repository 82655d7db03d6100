"""The rows of a timeline: which there are, and what stands in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from holdfast.codec import describe_error
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    UNDO_PREFIX,
    Ending,
    RunRow,
    StepKind,
    StepRow,
    StepState,
    undone_key,
)
from holdfast.step_words import detail, step_state
from holdfast.timeline.bars import Scene, pictured, tried, works
from holdfast.timeline.picture import Bar, Density, Row, UndoPart
from holdfast.timeline.places import Branch, Place, base_of, components

HEADING_MIN = 3
"""A branch with at most this many rows has no heading: its rows name it."""
ROWS_MAX = 300
"""A run with more rows opens with its branches shut."""
PAGE = 500
FAILED_ALIKE_MAX = 5
"""How many failed steps of a group with the same error have a row each."""
RUNNING_MAX = 50
LOOP_BARS_MAX = 400
"""A row with more calls than this shows their density."""
SLICES = 200
KEPT_MAX = 8


def went_wrong(step: StepRow, scene: Scene) -> bool:
    return step.state is StepState.FAILED or step.quarantined or _wrong(step, scene) > 0


def _wrong(step: StepRow, scene: Scene) -> int:
    kept = sum(one.ending is not Ending.REFUSED for one in tried(step, scene))
    own = step.state is StepState.FAILED and all(one.attempt != step.attempt for one in tried(step, scene))
    return kept + own


class Rows:
    """Makes the rows of a run's picture."""

    def __init__(self, scene: Scene, ref: Callable[[str], str]) -> None:
        self.scene, self.ref = scene, ref
        self.row_of: dict[str, str] = {}
        """The id of the row of a step, by the step's key."""

    # --- which rows ---------------------------------------------------------------------------------------------------

    def page(self, root: Branch, group: str, after: int) -> tuple[list[Row], int | None]:
        if group:
            found = self._below(root, group)
        else:
            found = self._inside(root, 1, "", shut=False)
            if len(found) > ROWS_MAX:
                self.row_of.clear()
                found = self._inside(root, 1, "", shut=True)
        last = after + PAGE
        return found[after:last], last if len(found) > last else None

    def _below(self, branch: Branch, group: str) -> list[Row]:
        for item in branch.items:
            if isinstance(item, Branch):
                if group == f"b:{item.path}":
                    return self._inside(item, 2, "", shut=False)
                if (found := self._below(item, group)) or group.startswith(f"b:{item.path}"):
                    return found
            elif item.is_group:
                own = _group_id(branch, item)
                if group == own:
                    return self._outcomes(branch, item, 2)
                if group.startswith(f"{own}:"):
                    members = _by_outcome(item.steps, self.scene).get(group.removeprefix(f"{own}:"), [])
                    return [self._step_row(_last_part(step), [step], 3, "") for step in members]
        return []

    def _inside(self, branch: Branch, level: int, path: str, *, shut: bool) -> list[Row]:
        rows: list[Row] = []
        for item in branch.items:
            if isinstance(item, Branch):
                rows += self._branch(item, level, path, shut=shut)
            elif item.is_group:
                rows.append(self._group_row(branch, item, level, path))
                rows += self._outcomes(branch, item, level + 1)
            else:
                rows.append(self._step_row(item.name, item.steps, level, path, item.naps))
        if branch.undone:
            rows += self._saga(branch, level, path)
        return rows

    def _branch(self, branch: Branch, level: int, path: str, *, shut: bool) -> list[Row]:
        if shut:
            return [self._branch_row(branch, level, path, is_open=False)]
        inside = self._inside(branch, level, f"{path}{branch.name}/", shut=False)
        if len(inside) <= HEADING_MIN:
            return inside
        inside = self._inside(branch, level + 1, "", shut=False)
        return [self._branch_row(branch, level, path, is_open=True), *inside]

    def _saga(self, branch: Branch, level: int, path: str) -> list[Row]:
        newest = sorted(branch.undone, key=lambda step: -step.n)
        done = sum(step.state is StepState.SUCCEEDED for step in newest)
        head = Row(
            id=f"saga:{branch.path}",
            kind="undone",
            level=level,
            name="Undone, newest first",
            small=f"{done} of {len(newest)} done",
            steps=len(newest),
        )
        return [head, *(self._undo_row([step], level, path) for step in newest)]

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _step_row(
        self,
        name: str,
        steps: Sequence[StepRow],
        level: int,
        path: str,
        naps: Sequence[StepRow] = (),
        *,
        kind: Literal["step", "undo"] = "step",
        row_id: str = "",
    ) -> Row:
        scene, last = self.scene, steps[-1]
        row = Row(id=row_id or f"s{steps[0].n}", kind=kind, level=level, name=name, path=path)
        for step in steps:
            self.row_of[step.key] = row.id
        if len(steps) > LOOP_BARS_MAX:
            row.density = density(steps, scene)
        else:
            for step in steps:
                bars, marks, says = pictured(step, scene, quiet=step is not last)
                row.bars += bars
                row.marks += marks
                row.says += says
            row.bars += _naps(naps, scene)
        asleep = next((nap for nap in naps if nap.state not in STEP_ENDED), None)
        row.state = step_state(asleep or last, scene.now)
        row.small = (
            f"× {len(steps):,}" if len(steps) > 1 else "child run" if last.kind is StepKind.CHILD else ""
        )
        row.n, row.steps = last.n, len(steps)
        row.attempts = sum(step.attempt for step in steps)
        row.wrong = sum(_wrong(step, scene) for step in steps)
        row.begun = scene.s(steps[0].issued_at)
        row.ended = None if asleep or last.finished_at is None else scene.s(last.finished_at)
        row.took_s = _took(steps, scene)
        row.words = detail(asleep or last, tried(last, scene), scene.now)
        if last.n in scene.children:
            row.child = scene.children[last.n]
            row.child_ref = self.ref(row.child)
        return row

    def _branch_row(self, branch: Branch, level: int, path: str, *, is_open: bool) -> Row:
        scene, steps = self.scene, list(branch.all_steps())
        begun, ended = min(step.issued_at for step in steps), _ended(steps)
        for step in steps if not is_open else ():
            self.row_of[step.key] = f"b:{branch.path}"
        open_, failed = (
            sum(step.state not in STEP_ENDED for step in steps),
            sum(went_wrong(step, scene) for step in steps),
        )
        words = [f"{open_:,} open"] if open_ else []
        words += [f"{failed:,} went wrong"] if failed else []
        return Row(
            id=f"b:{branch.path}",
            kind="branch",
            level=level,
            name=branch.name,
            path=path,
            small="" if is_open else f"× {len(steps):,}",
            steps=len(steps),
            wrong=sum(_wrong(step, scene) for step in steps),
            begun=scene.s(begun),
            ended=None if ended is None else scene.s(ended),
            took_s=round((ended or scene.now) - begun, 3),
            words=", ".join(words),
            is_open=is_open,
        )

    def _group_row(self, branch: Branch, place: Place, level: int, path: str) -> Row:
        scene, steps = self.scene, place.steps
        begun, ended = min(step.issued_at for step in steps), _ended(steps)
        own = _group_id(branch, place)
        for step in steps:
            self.row_of[step.key] = own
        counts = [f"{len(members):,} {word}" for word, members in _by_outcome(steps, scene).items()]
        return Row(
            id=own,
            kind="group",
            level=level,
            name=place.name,
            path=path,
            small=f"× {len(steps):,}",
            steps=len(steps),
            attempts=sum(step.attempt for step in steps),
            wrong=sum(_wrong(step, scene) for step in steps),
            begun=scene.s(begun),
            ended=None if ended is None else scene.s(ended),
            took_s=round((ended or scene.now) - begun, 3),
            words=", ".join(counts),
            is_open=True,
            density=density(steps, scene),
        )

    def _outcomes(self, branch: Branch, place: Place, level: int) -> list[Row]:
        """Return what is below a group: failed and running steps singly, up to a number, and the rest by outcome."""
        own, rows, singles = _group_id(branch, place), [], []
        for word, members in _by_outcome(place.steps, self.scene).items():
            left = members
            if word == "failed":
                chosen, left = [], []
                for alike in _by_error(members).values():
                    chosen += alike[:FAILED_ALIKE_MAX]
                    left += alike[FAILED_ALIKE_MAX:]
                chosen.sort(key=lambda step: step.n)
                singles += [self._step_row(_last_part(step), [step], level, "") for step in chosen]
            elif word == "running":
                longest = sorted(members, key=lambda step: (step.started_at or 0.0, step.n))
                singles += [
                    self._step_row(_last_part(step), [step], level, "") for step in longest[:RUNNING_MAX]
                ]
                left = longest[RUNNING_MAX:]
            if left:
                more = "more " if len(left) < len(members) else ""
                rows.append(self._rest_row(f"{own}:{word}", f"{len(left):,} {more}{word}", left, level))
        return (
            [row for row in rows if "more" not in row.name]
            + singles
            + [row for row in rows if "more" in row.name]
        )

    def _rest_row(self, row_id: str, name: str, steps: Sequence[StepRow], level: int) -> Row:
        scene = self.scene
        begun, ended = min(step.issued_at for step in steps), _ended(steps)
        errors = {_error(step) for step in steps} - {""}
        state = step_state(steps[0], scene.now)
        return Row(
            id=row_id,
            kind="rest",
            level=level,
            name=name,
            state=state,
            small=f"as {_last_part(steps[0])}"
            if "more failed" in name
            else errors.pop()
            if len(errors) == 1
            else "",
            steps=len(steps),
            begun=scene.s(begun),
            ended=None if ended is None else scene.s(ended),
            is_open=False,
        )

    # --- undos --------------------------------------------------------------------------------------------------------

    def undo_part(
        self, run: RunRow, forward: Sequence[StepRow], undos: Sequence[StepRow], to_come: Sequence[StepRow]
    ) -> UndoPart:
        """Return what stands below the fold, newest effect first."""
        n_of = {step.key: step.n for step in forward}
        tries: dict[str, list[StepRow]] = {}
        for step in undos:
            tries.setdefault(undone_key(step.key)[0], []).append(step)
        tries = {key: rows for key, rows in tries.items() if not _was_void(rows[-1])}
        ghosts = {step.key: step for step in to_come if step.key not in tries}
        n_of |= {step.key: step.n for step in to_come}
        newest = sorted([*tries, *ghosts], key=lambda key: (-n_of.get(key, 0), key))
        done = sum(rows[-1].state is StepState.SUCCEEDED for rows in tries.values())
        chosen = _chosen(newest, tries)
        rows = [
            self._undo_row(tries[key], 1, "", n_of.get(key, 0))
            if key in tries
            else self._ghost_row(ghosts[key])
            for key in chosen
        ]
        kept = kept_keys(run, forward, {*tries, *ghosts})
        return UndoPart(
            done=done,
            total=len(newest),
            kept=kept[:KEPT_MAX],
            kept_more=max(0, len(kept) - KEPT_MAX),
            rows=rows,
            more=len(newest) - len(chosen),
        )

    def _undo_row(self, steps: Sequence[StepRow], level: int, path: str, undoes: int = 0) -> Row:
        row = self._step_row(
            f"{UNDO_PREFIX}{undone_key(steps[-1].key)[0]}", steps, level, path, kind="undo",
            row_id=f"u{undoes or steps[0].n}",
        )  # fmt: skip
        row.small = f"{len(steps)} tries" if len(steps) > 1 else ""
        row.pair = self.row_of.get(undone_key(steps[-1].key)[0], "")
        return row

    def _ghost_row(self, step: StepRow) -> Row:
        now = self.scene.s(self.scene.now)
        return Row(
            id=f"u{step.n}",
            kind="undo",
            level=1,
            name=f"{UNDO_PREFIX}{step.key}",
            state="planned",
            begun=now,
            bars=[Bar(kind="ghost", begun=now, ended=now, fill="idle")],
            words="to come",
            pair=self.row_of.get(step.key, ""),
        )


def _chosen(newest: list[str], tries: Mapping[str, Sequence[StepRow]]) -> list[str]:
    """Return the undos that get a row: those that need somebody first, if there are too many."""
    if len(newest) <= PAGE:
        return newest
    order = {StepState.FAILED: 0, StepState.READY: 1, StepState.RUNNING: 1, StepState.WAITING: 1}
    weight = {key: order.get(tries[key][-1].state, 3) if key in tries else 2 for key in newest}
    kept = set(sorted(newest, key=lambda key: weight[key])[:PAGE])
    return [key for key in newest if key in kept]


def _was_void(step: StepRow) -> bool:
    """True for the undo of a child that turned out to have nothing to undo."""
    return step.kind is StepKind.CHILD and step.output == b"false"


def kept_keys(run: RunRow, steps: Sequence[StepRow], undone: Iterable[str]) -> list[str]:
    """Return the keys of steps whose effects stay although the run undoes what it did: steps that may have done something
    and have no undo. Calls of one name count once."""
    seen = set(undone)
    found = {
        base_of(step.key): None
        for step in steps
        if step.kind is StepKind.CALL
        and step.key not in seen
        and (step.state is StepState.SUCCEEDED or (step.state is StepState.CANCELLED and step.attempt > 0))
    }
    return list(found)


# --- parts of rows ----------------------------------------------------------------------------------------------------


def _last_part(step: StepRow) -> str:
    return components(step.key)[-1]


def _group_id(branch: Branch, place: Place) -> str:
    return f"g:{branch.path}{place.name}"


def _by_outcome(steps: Sequence[StepRow], scene: Scene) -> dict[str, list[StepRow]]:
    """Return steps by the word for their state, in an order that does not change while the run goes on."""
    order = ("succeeded", "cancelled", "waiting", "ready", "backing off", "quarantined", "failed", "running")
    found: dict[str, list[StepRow]] = {word: [] for word in order}
    for step in steps:
        found.setdefault(step_state(step, scene.now), []).append(step)
    return {word: members for word, members in found.items() if members}


def _by_error(steps: Sequence[StepRow]) -> dict[str, list[StepRow]]:
    found: dict[str, list[StepRow]] = {}
    for step in steps:
        found.setdefault(_error(step), []).append(step)
    return found


def _error(step: StepRow) -> str:
    """Return the class of a step's error."""
    return describe_error(step.error).partition(":")[0] if step.error else ""


def _ended(steps: Iterable[StepRow]) -> float | None:
    last = 0.0
    for step in steps:
        if step.finished_at is None:
            return None
        last = max(last, step.finished_at)
    return last


def _took(steps: Sequence[StepRow], scene: Scene) -> float | None:
    first, last = steps[0], steps[-1]
    if len(steps) == 1 and (last.state in STEP_ENDED or last.state is StepState.RUNNING):
        begun = last.started_at or last.issued_at
    else:
        begun = (first.started_at or first.issued_at) if len(steps) > 1 else last.issued_at
    return round(max(0.0, (last.finished_at or scene.now) - begun), 3)


def _naps(naps: Sequence[StepRow], scene: Scene) -> list[Bar]:
    return [
        Bar(
            kind="nap",
            begun=scene.s(nap.issued_at),
            ended=scene.s(nap.finished_at or scene.now),
            live=nap.finished_at is None,
        )
        for nap in naps
    ]


def density(steps: Sequence[StepRow], scene: Scene) -> Density:
    """Return how much these steps worked in each of equal slices of their time."""
    found = [one for step in steps for one in works(step, scene)]
    begun = min((one[0] for one in found), default=steps[0].issued_at)
    ended = max((one[1] for one in found), default=begun)
    width = max(ended - begun, 1e-3) / SLICES
    total, wrong = [0.0] * SLICES, [0.0] * SLICES
    for start, end, is_wrong in found:
        first = min(SLICES - 1, int((start - begun) / width))
        last = min(SLICES - 1, int((end - begun) / width))
        for slice_ in range(first, last + 1):
            low = begun + slice_ * width
            share = max(min(end, low + width) - max(start, low), 0.0) + width * 1e-6
            total[slice_] += share
            if is_wrong:
                wrong[slice_] += share
    most = max(total) or 1.0
    return Density(
        scene.s(begun),
        scene.s(ended),
        [round(one / most, 3) for one in total],
        [round(bad / one, 3) if one else 0.0 for bad, one in zip(wrong, total, strict=True)],
    )
