"""A run that undoes itself, driven by its rows.

No workflow code is replayed: the rows say what may have had an effect, what undoes it, and in which order. The plan is
a pure function of the rows, which include the operators' signals. So whichever scheduler claims the run after a crash
goes on with the same undos. `Undoing` has the interface of `Decider`, and the same scheduler drives both.

A child that succeeded undoes itself, as a run of its own: the step that undoes it only asks for that, and ends when the
child does. So each plan is about the steps of one run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from holdfast import codec
from holdfast.decider.commands import Finish, Issue, Turn, Wait
from holdfast.decider.effect import undo_input
from holdfast.decider.history import unreadable
from holdfast.decider.undo_order import Extent, Reverse, extent_of, instant
from holdfast.decider.updates import UpdateReply, unserved
from holdfast.errors import InvalidInput, UndoMissing, WorkflowError
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    REQUEST_PREFIX,
    UNDO,
    UNDO_PREFIX,
    UPDATE_PREFIX,
    ChildUndo,
    Lane,
    Outcome,
    RunRow,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    undo_key,
    undone_key,
)

if TYPE_CHECKING:
    from holdfast.workflow.step import Step as AuthoredStep


class _UndoState(Enum):
    LIVE = "live"
    """The effect is that of a child which has not ended. Nobody knows yet whether there is anything to undo."""
    PENDING = "pending"
    ISSUED = "issued"
    DONE = "done"
    SKIPPED = "skipped"
    GAVE_UP = "gave up"
    VOID = "void"
    """There is nothing to undo: the child had done nothing, or has undone itself."""


_RESOLVED = frozenset({_UndoState.DONE, _UndoState.SKIPPED, _UndoState.GAVE_UP, _UndoState.VOID})


class _Leaf:
    """One effect, and how far its undo is. All that a child did is one effect."""

    __slots__ = (
        "after_stop",
        "error",
        "extent",
        "gave_up_seq",
        "input",
        "is_certain",
        "is_child",
        "key",
        "needs",
        "own_n",
        "rows",
        "state",
        "step",
        "tries",
        "undo",
    )  # fmt: skip

    def __init__(self, row: StepRow, *, undo: str, extent: Extent) -> None:
        self.key, self.extent, self.undo = row.key, extent, undo
        self.step, self.own_n, self.input = row.name, row.n, row.input or b"{}"
        self.is_child = row.kind is StepKind.CHILD
        self.needs: tuple[str, ...] | None = None
        self.after_stop = False
        self.is_certain = row.state is StepState.SUCCEEDED or row.kind is StepKind.UNDO
        self.rows: set[int] = set()
        """n of the undo's steps. There is one for each try."""
        self.tries = 0
        self.state = _UndoState.PENDING
        self.gave_up_seq = 0
        self.error: str | None = None

    @property
    def resolved(self) -> bool:
        return self.state in _RESOLVED

    def is_meant_by(self, n: int | None) -> bool:
        """True if an operator who names step `n` means this effect. `n` can be a step of the undo, or the step to be
        undone. None means every effect."""
        return n is None or n in self.rows or n == self.own_n


class PlannedUndo(NamedTuple):
    """Something that a run would undo."""

    n: int
    """The number of the step that would be undone."""
    key: str
    undo: str
    """The name of the step that undoes it. Of a child: the name of its workflow."""
    is_child: bool
    """A child run, which undoes itself."""
    is_certain: bool
    """False if nobody knows whether the step did anything. Its undo finds out."""
    wave: int


def undo_plan(
    run: RunRow,
    steps: Sequence[StepRow],
    signals: Sequence[SignalRow],
    *,
    lanes: Mapping[int, Lane],
    children: Collection[int],
) -> list[PlannedUndo]:
    """Return what a run has still to undo, or would undo if it were cancelled now. What runs now is stopped then, and may
    have had its effect."""
    if run.finished_at is not None:
        return []
    rows = [
        msgspec.structs.replace(step, state=StepState.CANCELLED, finished_at=step.issued_at)
        if step.kind is StepKind.CALL
        and step.state not in STEP_ENDED
        and not step.key.startswith(UNDO_PREFIX)
        else step
        for step in steps
    ]
    plan = Undoing(run, lanes=lanes, find=lambda _: None, children=children)
    plan.replay(rows, signals)
    return plan.planned()


class _Instruction(msgspec.Struct):
    """What an operator wants a run that undoes itself to do."""

    act: str
    n: int | None = None


class Undoing:
    """A run that undoes itself. Between two deliveries it is at rest."""

    deadline: float | None = None

    def __init__(
        self,
        run: RunRow,
        *,
        lanes: Mapping[int, Lane],
        find: Callable[[str], AuthoredStep[Any, Any] | None],
        children: Collection[int] = (),
    ) -> None:
        """`children` are n of the steps that have a child of this run."""
        self.run, self.run_id, self.generation, self.tags = run, run.id, run.generation, run.tags
        self.seq = 0
        self.done = False
        self.needs_reload = False
        """The rows say more than this plan knows. After this turn, another plan must be made from them."""
        self.waiting: dict[int, Wait] = {}
        self.last_n = run.base_n
        self._lanes, self._find = lanes, find
        self._children = children
        self._is_revoked = codec.end_of(run.error).by_n is not None
        """The run had succeeded, and its parent wants it undone."""
        self._revoked_seq = math.inf
        """Where in the history it began to undo itself. What a saga undid before does not count."""
        self._ending: Literal["failed", "cancelled"] = "cancelled" if run.ending == "cancelled" else "failed"
        self._leaves: list[_Leaf] = []
        self._order: Reverse[_Leaf] = Reverse(())
        self._left = 0
        """How many effects are not resolved yet."""
        self._issued: dict[int, _Leaf] = {}
        self._live: dict[int, _Leaf] = {}
        self._missing: list[tuple[_Leaf, WorkflowError]] = []
        """What the loaded code cannot undo, and why."""
        self._idle: set[int] = set()
        """n of steps that nobody waits for and that end with the run: registered undos, kept children, joined runs."""
        self._stale: list[int] = []
        """n of steps that are still open because the run was cancelled without its code, which would end them."""
        self._dropped: list[int] = []
        self._to_cancel: list[int] = []
        self._replies: list[UpdateReply] = []
        self._abandoned = False
        self._undone = self._void = 0
        self._progress = run.progress

    # What the owner of the run calls.

    def replay(self, steps: Sequence[StepRow], signals: Sequence[SignalRow]) -> None:
        """Make the plan from the rows."""
        instructions = [
            (signal.delivered_seq, instruction)
            for signal in signals
            if signal.delivered_seq
            and signal.name == UNDO
            and (instruction := _parsed(signal.payload)) is not None
        ]
        instructions.sort(key=lambda entry: entry[0])
        if self._is_revoked and instructions:
            self._revoked_seq = instructions[0][0]
        self.last_n = max((step.n for step in steps), default=self.last_n)
        self.seq = max(
            [step.delivered_seq or 0 for step in steps] + [signal.delivered_seq or 0 for signal in signals],
            default=0,
        )
        for signal in signals:
            if signal.delivered_seq and signal.update is not None and signal.answer is None:
                self._refuse_update(signal.delivered_seq)  # the run was cancelled without its code
        self._plan(steps)
        by_key = {leaf.key: leaf for leaf in self._leaves}
        for row in sorted(steps, key=lambda row: row.n):
            if row.n <= self.run.base_n:
                continue
            if row.key.startswith(UNDO_PREFIX):
                key, number = undone_key(row.key)
                self._recall_try(row, by_key.get(key), number)
            elif row.kind is StepKind.CHILD:
                self._recall_child(row)
            elif row.state not in STEP_ENDED:
                if row.kind is StepKind.UNDO:
                    self._idle.add(row.n)
                else:
                    self._stale.append(row.n)
        for leaf in self._leaves:
            self._apply(leaf, instructions)
        self._undone = sum(map(_is_undone, self._leaves))
        self._void = sum(leaf.state is _UndoState.VOID for leaf in self._leaves)
        self._restart()

    def deliver(self, outcome: Outcome, *, whole: bool = False) -> int:
        """Note how an undo or a child ended, and return the outcome's number in the history. Nobody reads the result,
        so `whole` changes nothing."""
        n, state = outcome.n, outcome.state
        self.seq += 1
        self._idle.discard(n)
        if self.waiting.pop(n, None) is None:
            return self.seq
        leaf, live = self._issued.pop(n, None), self._live.pop(n, None)
        if leaf is not None:
            if state is StepState.SUCCEEDED:
                self._resolve(leaf, _undo_state(leaf, outcome.output))
            else:
                leaf.error = outcome.error
                self._resolve(leaf, _UndoState.GAVE_UP)
        elif live is not None:
            if state is StepState.SUCCEEDED:
                live.state = _UndoState.PENDING
                self._restart()
            else:
                self._resolve(live, _UndoState.VOID)  # the child has undone itself
        return self.seq

    def deliver_signal(self, name: str, payload: bytes, at: float) -> int:
        """Do what an operator asks for, and return the signal's number in the history. Another cancel, or a signal that
        the code would have waited for, changes nothing."""
        self.seq += 1
        if name.startswith(UPDATE_PREFIX):
            self._refuse_update(self.seq)
        instruction = _parsed(payload) if name == UNDO else None
        if instruction is None or self.done:
            return self.seq
        match instruction.act:
            case "retry":
                for leaf in self._leaves:
                    if leaf.state is _UndoState.GAVE_UP and leaf.is_meant_by(instruction.n):
                        leaf.state, leaf.error = _UndoState.PENDING, None
                self._missing.clear()
                self._restart()
            case "skip":
                for leaf in self._leaves:
                    if leaf.is_meant_by(instruction.n) and (
                        instruction.n is not None or leaf.state is _UndoState.GAVE_UP
                    ):
                        self._skip(leaf)
            case "abandon":
                self._abandoned = True
        return self.seq

    def _refuse_update(self, seq: int) -> None:
        self._replies.append(
            unserved(seq, f"run {self.run_id!r} undoes itself, and serves no updates any more")
        )

    def expects(self, n: int) -> bool:
        """True if the outcome of this step is still to be delivered."""
        return n in self.waiting

    def left(self) -> list[tuple[str, str, bytes]]:
        """Return what is not undone yet: (key of the step, name of its undo, input of the undo). A child undoes itself,
        and is left out."""
        return [
            (leaf.key, leaf.undo, leaf.input)
            for leaf in self._leaves
            if not leaf.is_child and not _is_undone(leaf)
        ]

    def planned(self) -> list[PlannedUndo]:
        """Return what is still to be undone, in the order in which that happens. What has the same wave is undone side by
        side."""
        found: list[PlannedUndo] = []
        order = Reverse((leaf.extent, leaf) for leaf in self._leaves if not leaf.resolved)
        wave = 0
        while ready := order.ready():
            wave += 1
            for leaf in ready:
                is_certain = leaf.state is not _UndoState.LIVE and leaf.is_certain
                found.append(PlannedUndo(leaf.own_n, leaf.key, leaf.undo, leaf.is_child, is_certain, wave))
            for leaf in ready:
                order.resolve(leaf)
        return found

    def take(self) -> Turn:
        """Return the undos that come next, or the end of the run. Raise UndoMissing or Unreadable if the loaded code
        cannot go on."""
        issued: list[Issue] = []
        finish: Finish | None = None
        if not self.done:
            if self._abandoned:
                finish = Finish(self._ending, error=self._error())
                self._dropped += [*self.waiting, *self._stale]
                self.waiting.clear()
            elif self._stale:
                self._dropped += self._stale
                self._stale = []
                self.needs_reload = True  # an agent may have begun one of these steps after its row was read
            elif not self.needs_reload:
                issued = self._issue()
                if self._missing and not self.waiting:
                    raise self._missing[0][1]
                if not self.waiting:
                    finish = self._finish()
        if finish is not None:
            self.done = True
            if finish.how != "stuck":
                self._dropped += sorted(self._idle)
        turn = Turn(
            issued, finish, dropped=self._dropped, cancelled=self._to_cancel, progress=self._progress_made()
        )
        turn.replies, self._replies = self._replies, []
        self._dropped, self._to_cancel = [], []
        return turn

    def close(self) -> None:
        """Leave memory."""
        self.done = True
        self.waiting.clear()

    # Planning.

    def _plan(self, steps: Sequence[StepRow]) -> None:
        """Note what the run may have done. `_restart` puts it in order."""
        kept = max(self.run.kept_n, self.run.base_n)
        tried = {undone_key(row.key)[0] for row in steps if row.key.startswith(UNDO_PREFIX)}
        answers = {row.key: row for row in steps if row.kind is StepKind.CALLBACK}
        for row in steps:
            if row.n <= kept or row.key.startswith(UNDO_PREFIX):
                continue
            if row.kind is not StepKind.CHILD:
                answer = answers.get(row.key.removeprefix(REQUEST_PREFIX))
                leaf = self._leaf(row, answer, tried=row.key in tried)
            elif row.n in self._children or row.key in tried:
                leaf = self._child_leaf(row)
            else:
                leaf = None  # it was only joined: it has another owner, and is neither undone nor waited for here
            if leaf is not None:
                self._leaves.append(leaf)

    def _child_leaf(self, row: StepRow) -> _Leaf | None:
        """Return what a child did. None if it did not succeed: then it has undone itself. If the code gave the step up,
        the store knows how the child ended."""
        leaf = _Leaf(row, undo=row.name, extent=extent_of(row.after_seq, row.n, row.delivered_seq))
        if row.delivered_seq is None:
            leaf.state = _UndoState.LIVE
            self._live[row.n] = leaf
            if row.state not in STEP_ENDED:
                self._to_cancel.append(row.n)
            return leaf
        return leaf if row.state is StepState.SUCCEEDED or row.delivered_seq == 0 else None

    def _leaf(self, row: StepRow, answer: StepRow | None, *, tried: bool) -> _Leaf | None:
        """Return the effect that a step may have had. None if it had none, or if there is no undo for it. `answer` is the
        callback, if the step is the request for one: what it said counts, if it said anything. What was `tried` to be undone
        counts, however the step ended: a saga gave the step up before its failure came, and what is older waits for that undo.
        """
        lane = self._lanes.get(row.lane)
        if row.kind is StepKind.UNDO:
            leaf = _Leaf(row, undo=row.name, extent=instant(row.after_seq, row.n))
            leaf.needs = None if lane is None else lane.needs
            return leaf
        if (
            row.kind is not StepKind.CALL
            or lane is None
            or lane.undo is None
            or not (tried or _may_have_been_done(row, lane.undo, answer))
        ):
            return None
        said = row if answer is None else answer
        leaf = _Leaf(
            row,
            undo=lane.undo.removesuffix("!"),
            extent=extent_of(row.after_seq, row.n, said.delivered_seq),
        )
        output = said.output if said.state is StepState.SUCCEEDED else None
        leaf.is_certain = said.state is StepState.SUCCEEDED
        leaf.input = undo_input(row.input, output, row.effect_key)
        leaf.after_stop = row.state is StepState.CANCELLED
        return leaf

    def _restart(self) -> None:
        """Put what is not resolved in order again."""
        left = [(leaf.extent, leaf) for leaf in self._leaves if not leaf.resolved]
        self._order, self._left = Reverse(left), len(left)

    def _recall_try(self, row: StepRow, leaf: _Leaf | None, number: int) -> None:
        """Note a recorded try to undo something. The tries come in their order, so the last one decides."""
        open_ = row.delivered_seq is None
        if open_:
            self.waiting[row.n] = Wait(row.key, row.kind, row.name, n=row.n)
        if leaf is None:
            return
        leaf.rows.add(row.n)
        leaf.tries, leaf.error = max(leaf.tries, number), None
        if open_:
            self._issued[row.n] = leaf
            leaf.state = _UndoState.ISSUED
        elif row.state is StepState.SUCCEEDED:
            is_earlier = self._is_revoked and row.after_seq < self._revoked_seq
            leaf.state = _UndoState.VOID if is_earlier else _undo_state(leaf, row.output)
        elif row.delivered_seq == 0:
            leaf.state = _UndoState.PENDING  # this try was given up, so there is another one
        else:
            leaf.state, leaf.error, leaf.gave_up_seq = _UndoState.GAVE_UP, row.error, row.delivered_seq or 0

    def _recall_child(self, row: StepRow) -> None:
        """Wait for a child whose outcome is not delivered, unless it is kept or only joined."""
        if row.n in self._live:
            self.waiting[row.n] = Wait(row.key, row.kind, row.name, n=row.n)
        elif row.delivered_seq is None and row.state not in STEP_ENDED:
            self._idle.add(row.n)

    def _apply(self, leaf: _Leaf, instructions: Sequence[tuple[int, _Instruction]]) -> None:
        """Apply the recorded instructions of operators to one effect."""
        for seq, instruction in instructions:
            if not leaf.is_meant_by(instruction.n):
                continue
            gave_up = leaf.state is _UndoState.GAVE_UP and seq > leaf.gave_up_seq
            if (
                instruction.act == "skip"
                and (gave_up or instruction.n is not None)
                and leaf.state not in (_UndoState.DONE, _UndoState.VOID)
            ):
                leaf.state = _UndoState.SKIPPED
            elif instruction.act == "retry" and gave_up:
                leaf.state, leaf.error = _UndoState.PENDING, None

    # Issuing undos, and ending.

    def _issue(self) -> list[Issue]:
        issued: list[Issue] = []
        for leaf in self._order.ready():
            if leaf.state is not _UndoState.PENDING:
                continue
            if leaf.is_child:
                issue = self._issued_as(leaf, Issue(0, "", StepKind.CHILD, leaf.undo))
                issue.child_undo = ChildUndo(0, leaf.own_n, self.run.error)
                issued.append(issue)
                continue
            step = self._find(leaf.undo)
            if step is None:
                self._missing.append((leaf, UndoMissing(leaf.undo, leaf.step)))
                continue
            try:
                arguments = step.shape.decode_whole(leaf.input)
            except InvalidInput as wrong:
                what = f"what {leaf.undo} gets to undo step {leaf.key!r}"
                self._missing.append((leaf, unreadable(leaf.key, "input", what, leaf.input, wrong)))
                continue
            if leaf.needs is not None and leaf.needs != step.needs:
                step = step.using(needs=leaf.needs)
            issue = self._issued_as(leaf, Issue(0, "", StepKind.CALL, leaf.undo, leaf.input))
            issue.digest = codec.digest(leaf.input)
            issue.step, issue.arguments, issue.after_stop = step, arguments, leaf.after_stop
            issued.append(issue)
        return issued

    def _issued_as(self, leaf: _Leaf, issue: Issue) -> Issue:
        """Number the next try to undo this effect, and wait for it."""
        self.last_n = n = self.last_n + 1
        leaf.tries += 1
        leaf.rows.add(n)
        leaf.state = _UndoState.ISSUED
        issue.n, issue.key, issue.after_seq = n, undo_key(leaf.key, leaf.tries), self.seq
        self._issued[n] = leaf
        self.waiting[n] = Wait(issue.key, issue.kind, issue.name, n=n)
        return issue

    def _resolve(self, leaf: _Leaf, state: _UndoState) -> None:
        if state is _UndoState.VOID:
            self._void += 1
        elif state is not _UndoState.GAVE_UP:
            self._undone += 1
        was_open = not leaf.resolved
        leaf.state = state
        if was_open:
            self._order.resolve(leaf)
            self._left -= 1

    def _skip(self, leaf: _Leaf) -> None:
        if leaf.state in (_UndoState.DONE, _UndoState.SKIPPED, _UndoState.VOID):
            return
        if self._live.pop(leaf.own_n, None) is not None:
            del self.waiting[leaf.own_n]
            self._dropped.append(leaf.own_n)
        for n in leaf.rows & self._issued.keys():
            del self._issued[n], self.waiting[n]
            self._dropped.append(n)
        self._missing = [missing for missing in self._missing if missing[0] is not leaf]
        self._resolve(leaf, _UndoState.SKIPPED)

    def _finish(self) -> Finish | None:
        """Return how the run ends. None if something is not resolved yet."""
        if self._left:
            return None
        stuck = [leaf for leaf in self._leaves if leaf.state is _UndoState.GAVE_UP]
        if stuck:
            undos = [(leaf.undo, leaf.key, leaf.error) for leaf in stuck]
            return Finish("stuck", error=codec.gave_up_error(undos, self.run.error))
        how: Literal["undone", "failed", "cancelled"] = self._ending
        if how == "failed" and any(map(_is_undone, self._leaves)):
            how = "undone"
        elif self._is_revoked:
            return Finish("succeeded", output=self.run.output)  # there was nothing to undo
        return Finish(how, error=self._error())

    def _error(self) -> str | None:
        """Return the error that ended the code, with n of the steps that were undone. A retry of the run needs them. The
        rows of children say what became of those."""
        undone = [leaf.own_n for leaf in self._leaves if not leaf.is_child and _is_undone(leaf)]
        return codec.with_undone(self.run.error, undone)

    def _progress_made(self) -> str | None:
        """Return the run's progress as JSON if it has changed, else None."""
        done, total = self._undone, len(self._leaves) - self._void
        if not total:
            return None
        note = f"{done} of {total} undone"
        progress = msgspec.json.encode({"fraction": done / total, "note": note}).decode()
        if progress == self._progress:
            return None
        self._progress = progress
        return progress


def _may_have_been_done(row: StepRow, undo: str, answer: StepRow | None) -> bool:
    """True if this call may have had an effect. What its callback said counts: it has none if the callback said that it failed,
    unless `undo` ends with `!`. If it said nothing, nobody knows more than of any other call."""
    if answer is not None and answer.state is StepState.SUCCEEDED:
        return True
    if answer is not None and answer.state is StepState.FAILED and not codec.is_unsure(0, answer.error):
        return undo.endswith("!")
    return _may_have_happened(row, undo)


def _may_have_happened(row: StepRow, undo: str) -> bool:
    """True if this call may have had an effect. It has none if it never began. Nor has it one if all its attempts
    ended in errors of their own, unless `undo` ends with `!`: then the step declares `undo_failed`."""
    if row.state is StepState.SUCCEEDED:
        return True
    if row.attempt == 0:
        return False
    if row.state is StepState.FAILED:
        return undo.endswith("!") or codec.is_unsure(row.losses, row.error)
    return row.state is StepState.CANCELLED


def _is_undone(leaf: _Leaf) -> bool:
    """True if the effect is undone, or an operator skipped its undo."""
    return leaf.state in (_UndoState.DONE, _UndoState.SKIPPED)


def _undo_state(leaf: _Leaf, output: bytes | None) -> _UndoState:
    """Return the state of an effect whose undo succeeded. The undo of a child returns whether there was anything to
    undo."""
    return _UndoState.VOID if leaf.is_child and output == b"false" else _UndoState.DONE


def _parsed(payload: bytes) -> _Instruction | None:
    try:
        return _decoder.decode(payload)
    except msgspec.MsgspecError:
        return None


_decoder = msgspec.json.Decoder(_Instruction)
