"""Traces attempts: each is a span under the span that started its run, current while the step's code runs."""

from __future__ import annotations

from holdfast.agent.assignment import Assignment
from holdfast.agent.executor import ExecutingAgent
from holdfast.agent.outcome import Raised
from holdfast.errors import StoreError
from holdfast.spans import Spans, attempt_attributes, current
from holdfast.store.roles import AgentStore

KNOWN_MAX = 10_000
"""For how many runs an agent remembers the trace. It never changes."""


class AttemptSpans:
    """Begins the spans of attempts."""

    def __init__(self, spans: Spans, store: AgentStore, node: str) -> None:
        self._spans, self._store, self._node = spans, store, node
        self._known: dict[str, str | None] = {}

    async def begin(self, assignment: Assignment) -> None:
        parent = await self._trace_of(assignment.run_id)
        assignment.span = self._spans.attempt(
            parent,
            assignment.step.bare_name,
            attempt_attributes(
                run=assignment.run_id,
                key=assignment.key,
                step=assignment.step.bare_name,
                attempt=assignment.attempt,
                agent=self._node,
                undoes=assignment.undoes,
                twin=assignment.twin or None,
            ),
        )
        if assignment.here is not None:
            assignment.here.trace = current()

    async def _trace_of(self, run_id: str) -> str | None:
        """Return the trace of a run. If the store cannot say it now, the attempt has a trace of its own."""
        if run_id not in self._known:
            try:
                found = await self._store.agents.run_traces([run_id])
            except StoreError:
                return None
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[run_id] = found.get(run_id)
        return self._known[run_id]


class TracedAgent:
    """Ends the span of an attempt, before the agent reports how the attempt ended."""

    def __init__(self, agent: ExecutingAgent) -> None:
        self._agent = agent

    def succeed(self, assignment: Assignment, output: bytes) -> None:
        _end(assignment, "succeeded")
        self._agent.succeed(assignment, output)

    def fail(self, assignment: Assignment, failure: Raised) -> None:
        _end(assignment, str(failure.ending), failure.error)
        self._agent.fail(assignment, failure)

    def cancelled(self, assignment: Assignment, error: BaseException) -> None:
        _end(assignment, "timed_out" if assignment.timed_out else "stopped", error)
        self._agent.cancelled(assignment, error)

    def put_off(self, assignment: Assignment, error: Exception) -> None:
        _end(assignment, "put off", error)
        self._agent.put_off(assignment, error)

    def leave(self, assignment: Assignment) -> None:
        _end(assignment, "left")
        self._agent.leave(assignment)


def _end(assignment: Assignment, outcome: str, error: BaseException | None = None) -> None:
    span, assignment.span = assignment.span, None
    if span is not None:
        span.end(outcome, error)
