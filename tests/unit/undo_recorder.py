"""A run that is undone, without a store. Its rows are as a scheduler and its agents would write them."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from holdfast import codec
from holdfast.decider.commands import Finish, Turn
from holdfast.decider.undo_plan import Undoing
from holdfast.model import UNDO, Lane, Outcome, RunRow, RunState, SignalRow, StepKind, StepRow, StepState
from holdfast.workflow import registry
from holdfast.workflow.step import Step as AuthoredStep
from tests.unit.recorder import Recorder, row_of


class Lanes:
    """Numbers lanes as the store does."""

    def __init__(self) -> None:
        self.by_id: dict[int, Lane] = {}

    def number(self, step: AuthoredStep[Any, Any] | None) -> int:
        return 0 if step is None else self.of(step.name, step.undo_name, step.needs)

    def of(self, name: str, undo: str | None = None, needs: tuple[str, ...] = ()) -> int:
        for lane in self.by_id.values():
            if (lane.name, lane.needs, lane.undo) == (name, needs, undo):
                return lane.id
        lane = Lane(len(self.by_id) + 1, name, needs, undo)
        self.by_id[lane.id] = lane
        return lane.id


class UndoRecorder(Recorder):
    """Drives one run by its code, and keeps in its rows what a plan of its undos needs."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lanes = Lanes()
        self.kept_n = 0
        self.to_cancel: list[int] = []

    def begin(self) -> "UndoRecorder":
        super().begin()
        return self

    def commit(self) -> Turn:
        turn = super().commit()
        for issue in turn.issued:
            self.change(
                issue.n,
                after_seq=issue.after_seq,
                lane=self.lanes.number(issue.step),
                attempt=0,
                losses=0,
                excused=0,
            )
        self.to_cancel += turn.cancelled
        if turn.kept_n is not None:
            assert turn.kept_n >= self.kept_n
            self.kept_n = turn.kept_n
        return turn

    def change(self, n: int, **fields: Any) -> None:
        self.steps[n] = msgspec.structs.replace(self.steps[n], **fields)

    def start(self, key: str) -> None:
        """Let an agent begin a step."""
        self.change(self.n(key), attempt=1, state=StepState.RUNNING)

    def end(
        self, key: str, state: StepState, output: bytes | None, error: str | None, after: float = 1.0
    ) -> Turn:
        self.change(self.n(key), attempt=1)
        return super().end(key, state, output, error, after)

    def adopt(self, workflow: Any = None) -> "UndoRecorder":
        super().adopt(workflow)
        return self

    def undone(self, children: Collection[int] = ()) -> "UndoPlanned":
        """Go on with the run as one that is being undone."""
        assert self.finish is not None
        assert self.finish.how == "undoing", self.finish
        run = run_of(id=self.run_id, ending=self.finish.ending, error=self.finish.error, kept_n=self.kept_n)
        return UndoPlanned(run, self.steps.values(), self.lanes, children=children, signals=self.signals)


class UndoPlanned:
    """Drives one `Undoing`, and keeps its rows."""

    def __init__(
        self,
        run: RunRow,
        steps: Iterable[StepRow],
        lanes: Lanes,
        *,
        children: Collection[int] = (),
        signals: Iterable[SignalRow] = (),
        steps_known: Mapping[str, AuthoredStep[Any, Any]] | None = None,
    ) -> None:
        self.run, self.lanes = run, lanes
        self.steps = {row.n: row for row in steps}
        self.children = set(children)
        self.signals = list(signals)
        self.known = registry.steps if steps_known is None else steps_known
        self.asked: list[list[str]] = []
        """The keys of the undos of each turn."""
        self.after_stop: list[str] = []
        self.cancelled_children: list[int] = []
        self.finish: Finish | None = None
        self.undoing = self.made()

    def made(self) -> Undoing:
        """Return the plan as another node would make it from the rows."""
        made = Undoing(self.run, lanes=self.lanes.by_id, children=self.children, find=self.known.get)
        made.replay(
            sorted(self.steps.values(), key=lambda row: row.n), [s for s in self.signals if s.delivered_seq]
        )
        return made

    def rebuild(self) -> "UndoPlanned":
        """Make the plan again, as after a crash, or when the plan asks for it."""
        self.undoing = self.made()
        return self

    def commit(self) -> Turn:
        turn = self.undoing.take()
        for issue in turn.issued:
            assert issue.n not in self.steps
            assert issue.key not in {row.key for row in self.steps.values()}
            self.steps[issue.n] = msgspec.structs.replace(
                row_of(self.run.id, issue, 0.0),
                lane=self.lanes.number(issue.step),
                after_seq=issue.after_seq,
                attempt=0,
                losses=0,
                excused=0,
            )
            if issue.after_stop:
                self.after_stop.append(issue.key)
        if turn.issued:
            self.asked.append([issue.key for issue in turn.issued])
        for n in turn.dropped:
            row = self.steps[n]
            ended = row.state in (StepState.SUCCEEDED, StepState.FAILED)
            self.steps[n] = msgspec.structs.replace(
                row, state=row.state if ended else StepState.CANCELLED, delivered_seq=0
            )
        self.cancelled_children += turn.cancelled
        if turn.finish is not None:
            self.finish = turn.finish
            if turn.finish.how != "stuck":
                live = [
                    row.key for row in self.steps.values() if row.state in ("waiting", "ready", "running")
                ]
                assert live == [], "a run that has ended has no live step"
        return turn

    @property
    def how(self) -> str | None:
        """How it ended, or None."""
        return None if self.finish is None else self.finish.how

    @property
    def error(self) -> str:
        assert self.finish is not None
        assert self.finish.error is not None
        return self.finish.error

    @property
    def open(self) -> list[str]:
        """The keys of the undos and children it waits for."""
        return [op.key for op in self.undoing.waiting.values()]

    def n(self, key: str) -> int:
        return next(row.n for row in self.steps.values() if row.key == key)

    def end(self, key: str, state: StepState, error: str | None = None, output: bytes = b"null") -> Turn:
        n = self.n(key)
        seq = self.undoing.deliver(Outcome("", n, state, output, error, 1.0))
        self.steps[n] = msgspec.structs.replace(
            self.steps[n], state=state, attempt=1, error=error, output=output, delivered_seq=seq
        )
        return self.commit()

    def succeed(self, key: str) -> Turn:
        return self.end(key, StepState.SUCCEEDED)

    def fail(self, key: str, message: str = "no") -> Turn:
        return self.end(key, StepState.FAILED, codec.encode_error(ValueError(message), step=key))

    def say(self, act: str, n: int | None = None, name: str = UNDO) -> Turn:
        """Deliver what an operator asks for."""
        payload = msgspec.json.encode({"act": act, "n": n, "actor": "me", "note": ""})
        seq = self.undoing.deliver_signal(name, payload, 1.0)
        number = len(self.signals) + 1
        self.signals.append(SignalRow(number, self.run.id, name, str(number), payload, seq, 1.0))
        return self.commit()

    def all(self) -> list[list[str]]:
        """Let every undo succeed. Return the keys of each turn."""
        self.commit()
        while self.finish is None:
            for key in list(self.open):
                self.succeed(key)
        return self.asked


def run_of(**fields: Any) -> RunRow:
    row: dict[str, Any] = dict.fromkeys(RunRow.__struct_fields__)
    row |= {
        "id": "run-1",
        "state": RunState.UNDOING,
        "generation": 1,
        "base_n": 0,
        "kept_n": 0,
        "ending": "failed",
    }
    return RunRow(**row | fields)


def step_of(n: int, key: str, **fields: Any) -> StepRow:
    """Return the row of a call that succeeded, unless `fields` says otherwise."""
    row: dict[str, Any] = dict.fromkeys(StepRow.__struct_fields__)
    row |= {
        "run_id": "run-1",
        "n": n,
        "key": key,
        "kind": StepKind.CALL,
        "name": key,
        "lane": 0,
        "state": StepState.SUCCEEDED,
        "attempt": 1,
        "losses": 0,
        "excused": 0,
        "input": b'{"x":%d}' % n,
        "output": b"%d" % n,
        "after_seq": 0,
    }
    return StepRow(**row | fields)
