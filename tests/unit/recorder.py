"""A run without a store. What a scheduler would write is kept as rows, so that the run can be replayed from them."""

from typing import Any

import msgspec

from holdfast import codec
from holdfast.decider.commands import Finish, Issue, Turn
from holdfast.decider.decider import Decider
from holdfast.errors import Drift
from holdfast.model import CANCEL, NewSignal, Outcome, SignalRow, StepKind, StepRow, StepState
from holdfast.workflow.workflow import Workflow


class Recorder:
    """Drives one run and keeps its history."""

    def __init__(
        self,
        workflow: Workflow[Any, Any],
        *args: Any,
        run_id: str = "run-1",
        deadline: float | None = None,
        generation: int = 1,
        base_n: int = 0,
        **kwargs: Any,
    ) -> None:
        self.workflow = workflow
        self.input, _ = workflow.shape.checked(args, kwargs)
        self.settings: dict[str, Any] = {
            "begun_at": 1000.0,
            "deadline": deadline,
            "generation": generation,
            "base_n": base_n,
        }
        self.run_id = run_id
        self.at = 1000.0
        self.steps: dict[int, StepRow] = {}
        self.signals: list[SignalRow] = []
        self.turns: list[Turn] = []
        self.sends: list[NewSignal] = []
        self.progress: list[str] = []
        self.published: dict[str, bytes] = {}
        self.finish: Finish | None = None
        self.decider = Decider(workflow, run_id, self.input, **self.settings)

    def __del__(self) -> None:
        """Close the decider, so that a test that leaves a run half-way prints no warnings."""
        self.decider.close()

    def begin(self) -> "Recorder":
        self.decider.begin()
        self.commit()
        return self

    def commit(self) -> Turn:
        """Write what the code did, as a store would."""
        turn = self.decider.take()
        self.turns.append(turn)
        for issue in turn.issued:
            assert issue.n not in self.steps
            assert issue.key not in {row.key for row in self.steps.values()}
            self.steps[issue.n] = row_of(self.run_id, issue, self.at)
        for n in turn.dropped:
            assert self.steps[n].delivered_seq is None
            self.steps[n] = msgspec.structs.replace(self.steps[n], state=StepState.CANCELLED, delivered_seq=0)
        for n, seq, payload in turn.ended:
            self.steps[n] = msgspec.structs.replace(
                self.steps[n],
                state=StepState.SUCCEEDED,
                output=payload,
                delivered_seq=seq,
                finished_at=self.at,
            )
        for seq, why in turn.set_aside:
            (at,) = [i for i, row in enumerate(self.signals) if row.delivered_seq == seq]
            assert self.signals[at].set_aside is None
            self.signals[at] = msgspec.structs.replace(self.signals[at], set_aside=why)
        for seq, answer, reply in turn.replies:
            (at,) = [i for i, row in enumerate(self.signals) if row.delivered_seq == seq]
            assert self.signals[at].answer is None
            self.signals[at] = msgspec.structs.replace(self.signals[at], answer=answer, reply=reply)
        self.sends += turn.sends
        self.published |= turn.published or {}
        if turn.progress is not None:
            self.progress.append(turn.progress)
        if turn.finish is not None:
            assert self.finish is None
            self.finish = turn.finish
        return turn

    @property
    def open(self) -> dict[str, int]:
        """What the run waits for, by key."""
        return {op.key: n for n, op in self.decider.waiting.items()}

    @property
    def keys(self) -> list[str]:
        """The keys of all that the run ever asked for, in order."""
        return [row.key for _, row in sorted(self.steps.items())]

    def n(self, key: str) -> int:
        return next(row.n for row in self.steps.values() if row.key == key)

    def end(
        self, key: str, state: StepState, output: bytes | None, error: str | None, after: float = 1.0
    ) -> Turn:
        n = self.n(key)
        self.at += after
        seq = self.decider.deliver(Outcome("", n, state, output, error, self.at))
        self.steps[n] = msgspec.structs.replace(
            self.steps[n], state=state, output=output, error=error, delivered_seq=seq, finished_at=self.at
        )
        return self.commit()

    def succeed(self, key: str, value: Any = None, after: float = 1.0) -> Turn:
        return self.end(key, StepState.SUCCEEDED, msgspec.json.encode(value), None, after)

    def fail(self, key: str, error: Exception, ending: str = "failed") -> Turn:
        return self.end(key, StepState.FAILED, None, codec.encode_error(error, step=key, ending=ending))

    def fire(self, key: str) -> Turn:
        row = self.steps[self.n(key)]
        assert row.kind is StepKind.TIMER
        return self.end(key, StepState.SUCCEEDED, None, None, after=max(0.0, row.ready_at - self.at))

    def signal(self, name: str, value: Any = None) -> Turn:
        payload = msgspec.json.encode(value)
        self.at += 1.0
        seq = self.decider.deliver_signal(name, payload, self.at)
        number = len(self.signals) + 1
        self.signals.append(SignalRow(number, self.run_id, name, str(number), payload, seq, self.at))
        return self.commit()

    def cancel(self) -> Turn:
        return self.signal(CANCEL)

    def result(self) -> Any:
        assert self.finish is not None, f"the run still waits for {self.open}"
        assert self.finish.how == "succeeded", self.finish
        assert self.finish.output is not None
        return msgspec.json.decode(self.finish.output)

    def failure(self) -> str:
        assert self.finish is not None, f"the run still waits for {self.open}"
        assert self.finish.how == "failed", self.finish
        assert self.finish.error is not None
        return codec.describe_error(self.finish.error)

    def replayed(self, workflow: Workflow[Any, Any] | None = None) -> Decider:
        """Return the run as another node would find it, possibly with other code."""
        other = Decider(workflow or self.workflow, self.run_id, self.input, **self.settings)
        try:
            other.replay(sorted(self.steps.values(), key=lambda row: row.n), self.signals)
        except Drift:
            other.close()
            raise
        return other

    def adopt(self, workflow: Workflow[Any, Any] | None = None) -> "Recorder":
        """Go on with the replayed run, as after a crash."""
        other = self.replayed(workflow)
        self.decider.close()
        self.decider = other
        self.commit()
        return self


def row_of(run_id: str, issue: Issue, at: float) -> StepRow:
    """Return a step's row as `issue` writes it. Columns that the decider does not read stay empty."""
    row: dict[str, Any] = dict.fromkeys(StepRow.__struct_fields__)
    row |= {
        "run_id": run_id,
        "n": issue.n,
        "key": issue.key,
        "kind": issue.kind,
        "name": issue.name,
        "state": StepState.READY if issue.kind is StepKind.CALL else StepState.WAITING,
        "ready_at": issue.ready_at if issue.ready_at is not None else at,
        "input": issue.input,
        "digest": issue.digest,
        "issued_at": at,
        "after_seq": issue.after_seq,
    }
    return StepRow(**row)
