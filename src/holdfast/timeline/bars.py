"""The bars of one step: each attempt, and what it waited for before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.codec import describe_error
from holdfast.durations import span
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import UNDO_PREFIX, Attempt, Ending, StepKind, StepRow, StepState, Twin, TwinState
from holdfast.step_words import ending
from holdfast.timeline.picture import Bar, Fill, Mark, Say

SAID_MAX = 120
"""How many characters of an error stand in the picture."""
FILLS: Mapping[StepState, Fill] = {
    StepState.SUCCEEDED: "ok",
    StepState.FAILED: "fail",
    StepState.CANCELLED: "idle",
    StepState.RUNNING: "run",
    StepState.READY: "idle",
    StepState.WAITING: "wait",
}
_TWIN_FILLS: Mapping[TwinState, Fill] = {
    TwinState.RUNNING: "run",
    TwinState.WON: "ok",
    TwinState.OUTRUN: "idle",
    TwinState.FAILED: "fail",
}


class Gated(NamedTuple):
    """What keeps a ready step from beginning."""

    fill: Fill
    """`held` for a hold, `fail` for a breaker."""
    words: str
    since: float


class Scene(NamedTuple):
    """What all rows of a picture have in common."""

    begun: float
    now: float
    attempts: Mapping[int, Sequence[Attempt]]
    twins: Mapping[int, Twin] = {}
    bounds: Mapping[str, float] = {}
    children: Mapping[int, str] = {}
    gate: Callable[[StepRow], Gated | None] = lambda _: None

    def s(self, at: float) -> float:
        """Return a moment as seconds after the beginning."""
        return round(max(0.0, at - self.begun), 3)


class Pictured(NamedTuple):
    bars: list[Bar]
    marks: list[Mark]
    says: list[Say]


def tried(step: StepRow, scene: Scene) -> Sequence[Attempt]:
    return scene.attempts.get(step.n, ())


def has_own_attempt(step: StepRow, attempts: Sequence[Attempt]) -> bool:
    """True if the step's row itself has an attempt that worked or works, beside those that were kept apart."""
    if step.started_at is None or step.state is StepState.READY:
        return False
    return all(one.attempt != step.attempt or one.ending is Ending.REFUSED for one in attempts)


def works(step: StepRow, scene: Scene) -> list[tuple[float, float, bool]]:
    """Return when something worked at the step, and whether that went wrong."""
    if step.kind is StepKind.CHILD:
        return [(step.issued_at, step.finished_at or scene.now, step.state is StepState.FAILED)]
    if step.kind is not StepKind.CALL:
        return []
    attempts = tried(step, scene)
    found = [(one.started_at, one.finished_at, True) for one in attempts if one.started_at is not None]
    if step.started_at is not None and has_own_attempt(step, attempts):
        found.append((step.started_at, step.finished_at or scene.now, step.state is StepState.FAILED))
    return found


def pictured(step: StepRow, scene: Scene, *, quiet: bool = False) -> Pictured:
    """Return the bars of a step. `quiet` leaves out words, for rows that have many steps."""
    found = _call(step, scene) if step.kind is StepKind.CALL else _wait(step, scene)
    return found._replace(says=[]) if quiet else found


def _wait(step: StepRow, scene: Scene) -> Pictured:
    end = step.finished_at or scene.now
    is_open = step.state not in STEP_ENDED
    if step.kind in {StepKind.CHILD, StepKind.START}:
        fill = FILLS[step.state] if step.state is not StepState.WAITING else "run"
        is_undo = step.key.startswith(UNDO_PREFIX)
        bar = Bar(
            kind="child",
            begun=scene.s(step.issued_at),
            ended=scene.s(end),
            fill=fill,
            live=is_open,
            hatch=is_undo,
        )
        marks = [Mark(scene.s(end), "fail")] if step.state is StepState.FAILED else []
        return Pictured([bar], marks, _error_said(step, scene))
    bar = Bar(kind="sleep", begun=scene.s(step.issued_at), ended=scene.s(end), fill="wait", live=is_open)
    return Pictured([bar], [Mark(scene.s(end), "open", "wait")] if is_open else [], _error_said(step, scene))


def _error_said(step: StepRow, scene: Scene) -> list[Say]:
    if step.state is not StepState.FAILED or not step.error:
        return []
    return [Say(scene.s(step.finished_at or scene.now), describe_error(step.error)[:SAID_MAX], "fail")]


class _Calls:
    """Collects the bars of a call, from its first moment to its last."""

    def __init__(self, step: StepRow, scene: Scene) -> None:
        self.step, self.scene = step, scene
        self.at, self.is_first = step.issued_at, True
        self.is_undo = step.key.startswith(UNDO_PREFIX)
        self.bars: list[Bar] = []
        self.marks: list[Mark] = []

    def waited(self, ready_at: float | None, until: float, gated: Gated | None = None) -> None:
        """The step backed off until `ready_at`, and then waited for an agent."""
        ready = self.at if ready_at is None else min(max(ready_at, self.at), until)
        if not self.is_first and ready > self.at:
            self._add("off", self.at, ready, "back")
        elif self.is_first:
            ready = self.at
        if until > ready:
            if gated is not None and gated.since < until:
                parked = max(ready, gated.since)
                if parked > ready:
                    self._add("queued", ready, parked, "idle")
                self._add("queued", parked, until, gated.fill, words=gated.words)
            else:
                self._add("queued", ready, until, "idle")
        self.at, self.is_first = until, False

    def worked(
        self, begun: float, ended: float, fill: Fill, *, attempt: int, words: str = "", live: bool = False
    ) -> None:
        twin = self.scene.twins.get(self.step.n)
        half = "above" if twin is not None and twin.started_at is not None else ""
        shown: Fill = "back" if self.is_undo and fill in {"ok", "run"} else fill
        self._add("work", begun, ended, shown, attempt=attempt, words=words, live=live, half=half)
        self.at, self.is_first = ended, False

    def _add(self, kind: str, begun: float, ended: float, fill: Fill, **more: object) -> None:
        hatch = kind == "work" and (self.is_undo or fill == "lost")
        s = self.scene.s
        self.bars.append(
            Bar(kind=kind, begun=s(begun), ended=s(ended), fill=fill, hatch=hatch, **more)  # type: ignore[arg-type]
        )


def _call(step: StepRow, scene: Scene) -> Pictured:
    calls, attempts, now = _Calls(step, scene), tried(step, scene), scene.now
    says: list[Say] = []
    for one in attempts:
        is_lost = one.ending is Ending.LOST
        if one.started_at is not None and one.started_at >= calls.at:
            calls.waited(one.ready_at, one.started_at)
            fill: Fill = "lost" if is_lost else "fail"
            calls.worked(one.started_at, one.finished_at, fill, attempt=one.attempt, words=ending(one))
            calls.marks.append(Mark(scene.s(one.finished_at), "lost" if is_lost else "fail"))
    if step.started_at is not None and has_own_attempt(step, attempts):
        end = step.finished_at or now
        calls.waited(step.ready_at, max(step.started_at, calls.at))
        live = step.state is StepState.RUNNING
        words = describe_error(step.error)[:SAID_MAX] if step.state is StepState.FAILED and step.error else ""
        calls.worked(
            max(step.started_at, calls.at if not live else 0.0),
            end,
            FILLS[step.state],
            attempt=step.attempt,
            words=words,
            live=live,
        )
        if step.state is StepState.FAILED:
            calls.marks.append(Mark(scene.s(end), "fail"))
        bound = scene.bounds.get(step.name)
        if live and bound is not None and now - step.started_at > bound:
            took = f"{span(now - step.started_at)}, at most {span(bound)} as a rule"
            says.append(Say(scene.s(step.started_at), took, "back", before=True))
    elif step.state is StepState.READY:
        _ready(step, calls, says)
    elif step.finished_at is not None and step.finished_at > calls.at:
        calls.waited(step.ready_at, step.finished_at)
    says += _error_said(step, scene)
    _twin(step, scene, calls.bars)
    return Pictured(calls.bars, calls.marks, says)


def _ready(step: StepRow, calls: _Calls, says: list[Say]) -> None:
    scene, now = calls.scene, calls.scene.now
    if step.quarantined:
        calls.waited(calls.at, now, Gated("fail", "in quarantine", calls.at))
        says.append(Say(scene.s(now), "in quarantine", "fail"))
    elif step.ready_at > now:
        words = f"attempt {step.spent + 1} in {span(step.ready_at - now)}"
        calls.is_first = False
        calls.waited(step.ready_at, step.ready_at)
        if calls.bars:
            calls.bars[-1].words, calls.bars[-1].live = words, True
        says.append(Say(scene.s(step.ready_at), words, "back"))
    else:
        gated = scene.gate(step)
        calls.waited(step.ready_at, now, gated)
        if calls.bars and calls.bars[-1].kind == "queued":
            calls.bars[-1].live = True
        if gated is not None:
            says.append(Say(scene.s(now), gated.words, gated.fill))


def _twin(step: StepRow, scene: Scene, bars: list[Bar]) -> None:
    twin = scene.twins.get(step.n)
    if twin is None or twin.started_at is None or twin.state not in _TWIN_FILLS:
        return
    bars.append(
        Bar(
            kind="work",
            begun=scene.s(twin.started_at),
            ended=scene.s(twin.ended_at or scene.now),
            fill=_TWIN_FILLS[twin.state],
            words="twin",
            live=twin.state is TwinState.RUNNING,
            half="below",
        )
    )
