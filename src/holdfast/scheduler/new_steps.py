"""Makes the rows for what the code of a run asked for: the steps, waits and children of the next hop.

If this node's own agent has a place for a step, the step is issued with a lease for that agent. Then nobody needs to
claim it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast import codec
from holdfast.config import Config
from holdfast.decider.commands import Issue
from holdfast.environment import StoreClock
from holdfast.model import DEFAULT_NAMESPACE, PRIORITY_MAX, ChildUndo, NewAsk, NewRun, StepKind, StepState
from holdfast.namespaces import Namespaces, stored
from holdfast.questions import Question
from holdfast.queues import NO_QUEUE, LimitKey, Queue, QueueKey, under
from holdfast.scheduler.owned_run import Owned, Seat, SeatedStep
from holdfast.store.operations import Hop, NewStep
from holdfast.store.queues import QueueNumbers
from holdfast.store.schedulers import LaneKey, Schedulers
from holdfast.workflow import registry
from holdfast.workflow.step import Step
from holdfast.workflow.workflow import Workflow

# Looked up once, because every step needs them.
_CALL, _RUNNING, _READY = StepKind.CALL, StepState.RUNNING, StepState.READY


class LaneNumbers:
    """The numbers of the lanes that this node has asked the store for."""

    def __init__(self, store: Schedulers) -> None:
        self._store = store
        self.numbers: dict[LaneKey, int] = {}

    def know(self, issues: Sequence[Issue], namespace: str) -> bool:
        """True if the lanes of all these steps have a number here."""
        numbers = self.numbers
        for issue in issues:
            if issue.step is not None and lane_key(issue.step, namespace) not in numbers:
                return False
        return True

    async def learn(self, namespaces: Namespaces) -> None:
        """Get the numbers for the lanes of all declared steps, with the needs that they declare."""
        named = (DEFAULT_NAMESPACE,) if namespaces.is_all else namespaces.names
        await self.number((step, namespace) for namespace in named for step in registry.steps.values())

    async def number(self, steps: Iterable[tuple[Step[Any, Any], str]]) -> None:
        """Get the numbers for the lanes of these steps of runs of these namespaces. The store adds the lanes it does
        not have."""
        lanes = dict.fromkeys(lane_key(step, namespace) for step, namespace in steps)
        missing = [lane for lane in lanes if lane not in self.numbers]
        if missing:
            self.numbers.update(zip(missing, await self._store.number_lanes(missing), strict=True))


def lane_key(step: Step[Any, Any], namespace: str) -> LaneKey:
    """Return what the steps of one lane have in common. Lanes belong to a namespace, because their names do."""
    if namespace == DEFAULT_NAMESPACE:
        return step.name, step.needs, step.undo_name, step.depends
    return stored(namespace, step.name), step.needs, step.undo_name, stored(namespace, step.depends)


class NewSteps:
    def __init__(
        self,
        lanes: LaneNumbers,
        queues: QueueNumbers,
        seat: Seat | None,
        clock: StoreClock,
        config: Config,
        set_timer: Callable[[float, str, int], None],
        *,
        new_id: Callable[[], str],
    ) -> None:
        self.lanes, self.queues = lanes, queues
        self._new_id = new_id
        self._seat, self._clock, self._config, self._set_timer = seat, clock, config, set_timer
        self.unnumbered: list[tuple[NewStep, Step[Any, Any], str]] = []
        """Rows of the next hop whose lane has no number here yet, each with its step and the run's namespace."""
        self.unqueued: list[tuple[NewStep | NewRun, QueueKey]] = []
        """Steps and children of the next hop whose queue has no number here yet."""

    def issue(self, owned: Owned, hop: Hop, issues: list[Issue], seated: list[SeatedStep]) -> list[NewStep]:
        """Return the rows for these steps. Add child runs to the hop, and steps that this node's agent
        executes to `seated`."""
        rows: list[NewStep] = []
        seat, numbers, namespace = self._seat, self.lanes.numbers, owned.namespace
        is_default = namespace == DEFAULT_NAMESPACE
        fair = None if owned.fair is None else stored(namespace, owned.fair)
        if owned.landmarks is not None:
            now = self._clock.now()
            for issue in issues:
                if issue.kind is not StepKind.MARKER:
                    owned.landmarks.issued(issue.n, step_name(namespace, issue.kind, issue.name), now)
        for issue in issues:
            step = issue.step
            lane = 0 if step is None else numbers.get(lane_key(step, namespace), 0)
            if step is None or issue.kind is not _CALL:
                hop.is_plain = False
                row = self._wait(owned, hop, issue, lane)
            else:
                key = queue = None
                number, free_seat = 0, seat
                if fair is not None or step.limits is not None:
                    key = _queue_key(owned, fair or "", step, issue)
                    queue = self.queues.known.get(key)
                    number, free_seat = 0 if queue is None else queue.number, None if key.limits else seat
                ready_at, state = None, _READY
                if issue.after_stop:
                    ready_at = self._clock.now() + self._config.stop_grace_s
                elif (
                    free_seat is not None
                    and not step.callback  # the address of the callback is made of what the store recorded
                    and free_seat.reserve(issue, owned.workflow, namespace, number)
                ):
                    state = _RUNNING
                    seated.append(SeatedStep(owned.run_id, issue.n, issue, owned.workflow, namespace))
                    owned.mine.add(issue.n)
                priority = owned.priority + step.priority
                row = NewStep(
                    issue.n,
                    issue.key,
                    _CALL,
                    issue.name if is_default else stored(namespace, issue.name),
                    lane,
                    state,
                    priority if priority < PRIORITY_MAX else PRIORITY_MAX,  # noqa: FURB136  min() takes three times as long
                    ready_at,
                    step.retry.attempts,
                    step.timeout_s,
                    issue.input,
                    issue.digest,
                    step.retry_override,
                    issue.after_seq,
                    queue,
                )
                if key is not None and queue is None:
                    self.unqueued.append((row, key))
                if step.due_s is not None:
                    hop.is_plain = False
                    hop.promised = [*hop.promised, (issue.n, step.due_s)]
            if issue.effect is not None:
                hop.is_plain = False
                hop.effects = [*hop.effects, (issue.n, issue.effect)]
            rows.append(row)
            if lane == 0 and step is not None:
                self.unnumbered.append((row, step, namespace))
        return rows

    def _wait(self, owned: Owned, hop: Hop, issue: Issue, lane: int) -> NewStep:
        """Return the row for what no agent executes. Add to the hop what belongs to it."""
        row = NewStep(
            issue.n,
            issue.key,
            issue.kind,
            issue.name,
            lane,
            StepState.WAITING,
            owned.priority,
            issue.ready_at,
            # Pages may be many. Their input is in their own rows, and here the digest is enough.
            input=None if issue.child is not None and issue.child.workflow.is_page else issue.input,
            digest=issue.digest,
            after_seq=issue.after_seq,
        )
        if issue.kind is StepKind.CALLBACK:
            row.timeout_s, row.attempts_max = issue.arguments
        elif issue.kind is StepKind.TIMER and issue.ready_at is not None:
            self._set_timer(issue.ready_at, owned.run_id, issue.n)
        elif issue.child is not None:
            hop.children = [*hop.children, self._child(owned, issue)]
        elif issue.kind is StepKind.ASK:
            hop.asks = [*hop.asks, _new_ask(owned, issue, ask_id(self._new_id()))]
            owned.asks |= {issue.n}
        elif issue.child_undo is not None:
            hop.child_undos = [*hop.child_undos, _child_undo(owned, issue.n, issue.child_undo)]
        return row

    def _child(self, owned: Owned, issue: Issue) -> NewRun:
        child = _child_run(owned, issue)
        if child.fair is None and not child.limits and not owned.under:
            return child
        key = child.queue_key
        queue = self.queues.known.get(key) if child.fair is not None or child.limits else NO_QUEUE
        if queue is not None:
            return replace(child, queue=replace(queue, under=under(child.limits, owned.under)))
        self.unqueued.append((child, key))
        return child

    async def number_queues(
        self, hop: Hop, queued: Sequence[tuple[NewStep | NewRun, QueueKey]], above: frozenset[str]
    ) -> None:
        """Give these steps and children of a hop the numbers of their queues. `above` are the limits that the run is under."""
        numbered = await self.queues.number([key for _, key in queued])
        runs: dict[str, Queue] = {}
        for (one, _), queue in zip(queued, numbered, strict=True):
            if isinstance(one, NewStep):
                one.queue = queue
            else:
                runs[one.id] = replace(queue, under=under(one.limits, above))
        if runs:
            hop.children = [
                replace(child, queue=runs[child.id]) if child.id in runs else child for child in hop.children
            ]


def _limits_of(
    owned: Owned, workflow: Workflow[Any, Any], fair: str | None, raw: bytes | None
) -> tuple[LimitKey, ...]:
    """Return the limits of a child. Those that a run above it is under are left out: they would wait for each other."""
    if workflow.limits is None:
        return ()
    limits = workflow.limits.filled(owned.namespace, fair, raw)
    return tuple(one for one in limits if one.name not in owned.under)


def _queue_key(owned: Owned, fair: str, step: Step[Any, Any], issue: Issue) -> QueueKey:
    """Return what the queue of a step stands for. Limits that the run is under already are left out: run and step would
    wait for each other."""
    if step.limits is None:
        return QueueKey(fair)
    limits = step.limits.filled(owned.namespace, owned.fair, issue.input)
    if owned.under:
        limits = tuple(one for one in limits if one.name not in owned.under)
    return QueueKey(fair, limits)


def step_name(namespace: str, kind: StepKind, name: str) -> str:
    """Return the name that a step's row has. Calls have stored names: agents claim, count and hold them by these."""
    return stored(namespace, name) if kind is StepKind.CALL else name


def is_derived(child: NewRun) -> bool:
    """True if the child's id was made from its parent's id, and not chosen by the code. Hardly any other run has such
    an id."""
    return child.id.startswith(f"{child.parent_id}/")


def ask_id(made: str) -> str:
    """Return the id of an ask: the random half of a new id, which is short enough to be typed."""
    return made.replace("-", "")[-16:]


def _new_ask(owned: Owned, issue: Issue, made: str) -> NewAsk:
    asked: Question = issue.arguments
    return NewAsk(
        made,
        owned.namespace,
        owned.workflow,
        issue.n,
        asked.question,
        msgspec.json.encode(asked.form).decode(),
        msgspec.json.encode(asked.show).decode(),
        asked.of,
        msgspec.json.encode(asked.not_by).decode(),
        msgspec.json.encode(asked.plan).decode(),
        asked.plan.timeout_s,
        0.0,  # people are notified at once
        asked.who,
    )


def _child_undo(owned: Owned, n: int, asked: ChildUndo) -> ChildUndo:
    return replace(asked, n=n, error=codec.revoked_error(owned.run_id, n, asked.error))


def _child_run(owned: Owned, issue: Issue) -> NewRun:
    child = issue.child
    assert child is not None
    name = stored(owned.namespace, child.workflow.name)
    return NewRun(
        child.id,
        name,
        child.workflow.version,
        issue.input or b"",
        issue.digest or b"",
        namespace=owned.namespace,
        priority=min(PRIORITY_MAX, owned.priority + child.priority),
        timeout_s=child.timeout_s,
        tags=child.tags,
        parent_id=owned.run_id,
        parent_n=issue.n,
        joins=child.joins,
        retry_of=child.retry_of,
        detached=child.detached,
        begin_at=child.begin_at,
        begin_in_s=child.begin_in_s,
        due_at=child.workflow.due_at,
        due_in_s=child.workflow.due_s,
        # A child belongs to its parent. What is only started is a start like any other.
        gather=child.workflow.gathering(name, issue.input or b"") if child.detached else None,
        fair=(fair := child.workflow.fair or owned.fair),
        limits=_limits_of(owned, child.workflow, fair, issue.input),
    )
