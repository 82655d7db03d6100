"""What an agent and its node ask of a store, asked of a server. The same `Agent` and `Node` work with it.

Nothing that an agent asks often goes over the wire: claims wait in one long poll, reports go in batches, and the rest
rides on beats.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import asdict

from holdfast.environment import Environment
from holdfast.errors import LeaseLost, StoreError
from holdfast.model import Declaration, Lane, LogPart, Outcome, StepState, Twin, TwinState
from holdfast.remote.connection import AgentConnection
from holdfast.remote.sealed_steps import SealedSteps
from holdfast.store.answers import Answer, ClaimedRequest, ClaimedStep, Observation, ShutGates
from holdfast.store.bell import Bell
from holdfast.store.limits import LimitLoad
from holdfast.store.operations import HandBack, QuarantineStep, RetryStep, Save, StepOp
from holdfast.store.schedules import DeclaredSet
from holdfast.wire.agents import (
    PROTOCOL,
    About,
    Answers,
    Beat,
    Beaten,
    Claimed,
    Group,
    Left,
    Pulse,
    Ref,
    Register,
    Registered,
    Report,
    Reports,
    Seen,
    TwinAct,
    TwinSeen,
    given,
)

log = logging.getLogger("holdfast.remote")

LOOK_S = 5.0
"""How often an agent that has steps asks which of them it has lost, if the stream does not say that it should."""
REPORT_MAX_BYTES = 4 * 1024 * 1024
"""How large a request with reports becomes before the rest goes into another one."""
TRACES_MAX = 10_000
"""For how many runs an agent remembers the trace."""
LOOP, THREADS = "loop", "threads"
"""The groups of a Python agent: `async def` steps, and `def` steps."""


class RemoteStore:
    """The nouns that an agent and its node use."""

    def __init__(
        self, connection: AgentConnection, groups: Callable[[], list[Group]], environment: Environment
    ) -> None:
        self.connection = connection
        self.sealed_steps = SealedSteps(environment)
        self.nodes = RemoteNodes(connection, groups)
        self.batches = RemoteBatches(connection, self.sealed_steps)
        self.agents = RemoteAgents(connection, self.nodes)
        self.gates = RemoteAgentGates(connection, self.nodes)
        self.limits = RemoteAgentLimits(self.nodes)
        self.twins = RemoteTwins(connection, self.nodes, self.batches)
        self.durations = RemoteDurations(self.nodes)


class RemoteNodes:
    def __init__(self, connection: AgentConnection, groups: Callable[[], list[Group]]) -> None:
        self._connection, self._groups = connection, groups
        self.stop: set[tuple[str, int]] = set()
        self.durations: list[tuple[str, int, float]] = []

    @property
    def shared_url(self) -> str | None:
        """The address at which a heart renews this agent's lease. None if only this process reaches the server."""
        connection = self._connection
        return connection.transport.url + connection.path if connection.transport.is_usual else None

    @property
    def heart_headers(self) -> dict[str, str]:
        return self._connection.transport.headers()

    async def register(
        self,
        node: str,
        *,
        host: str,
        pid: int,
        roles: str,
        offers: str,
        capacity: int,
        lease_s: float,
        declared: Sequence[Declaration] = (),
        sets: Sequence[DeclaredSet] = (),
        triggers: Sequence[DeclaredSet] = (),
        composed: Sequence[DeclaredSet] = (),
    ) -> None:
        about = json.loads(offers)
        body = Register(
            protocol=[PROTOCOL],
            id=node,
            host=host,
            pid=pid,
            labels=about.pop("labels", []),
            groups=self._groups(),
            lease_s=lease_s,
            about=msgspec.convert(about, About),
        )
        transport = self._connection.transport
        await transport.ask("POST", "/v1/agents", Registered, body=body)

    async def renew(self, node: str, lease_s: float, pulse: str | None = None) -> float | None:
        try:
            found = await self.beat(pulse=None if pulse is None else msgspec.json.decode(pulse, type=Pulse))
        except LeaseLost:
            return None
        return found.now

    async def beat(
        self,
        *,
        pulse: Pulse | None = None,
        seen: Sequence[Observation] = (),
        loads: Sequence[LimitLoad] = (),
        twins: Sequence[Ref] = (),
    ) -> Beaten:
        connection = self._connection
        durations, self.durations = self.durations, []
        has = sorted(connection.node.known_steps())
        body = Beat(
            has=has,
            twins=list(twins),
            pulse=pulse,
            seen=[Seen(one.name, one.ok, one.failed, one.error, one.round) for one in seen],
            durations=durations,
            loads=[(one.id, one.ok, one.failed, one.seconds) for one in loads],
            gates=connection.gates_mark,
        )
        connection.wants_look = False
        found = await connection.ask("/beat", body, Beaten)
        self.stop |= {(run, n) for run, n in found.stop}
        if found.stop:
            connection.node.bells.ring_here(Bell.CANCELS)
        connection.learn(found.gates)
        return found

    async def retire(self, node: str) -> None:
        try:
            await self._connection.ask("/leave", {}, Left)
        except LeaseLost:
            pass  # it is gone already

    async def reconcile(
        self, node: str, runs: Sequence[tuple[str, int]], steps: Sequence[Ref]
    ) -> tuple[int, int]:
        """Let the next claim say what this agent has."""
        self._connection.doubt()
        return 0, 0

    async def ring(self, bells: set[Bell]) -> None:
        """Do nothing: the server rings for what it writes."""

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        async def unlisten() -> None: ...

        return unlisten


class RemoteBatches:
    def __init__(self, connection: AgentConnection, sealed_steps: SealedSteps) -> None:
        self._connection = connection
        self._sealed_steps = sealed_steps

    async def commit(self, node: str, ops: Sequence[StepOp]) -> list[Any]:
        """Report. What the writer gathers meanwhile is the next batch."""
        answers: list[Any] = []
        for part in _parts(ops):
            reports = [self.report(op) for op in part]
            found = await self._connection.ask("/report", Reports(reports), Answers, is_patient=False)
            answers += [Answer.FENCED if one == "refused" else Answer(one) for one in found.answers]
        for op in ops:
            self.forget(op)
        return answers

    def forget(self, op: StepOp) -> None:
        """Forget a step that was reported."""
        if type(op) is not Save and op.fence is not None:
            self._connection.secrets.pop((op.run_id, op.n, op.fence), None)
        self._sealed_steps.forget(op)

    def report(self, op: StepOp) -> Report:
        """Return what is said to the server about a step, sealed if the step came sealed."""
        op = self._sealed_steps.seal(op)
        assert op.fence is not None
        secret = self._connection.secrets.get((op.run_id, op.n, op.fence), "")
        made = Report(verb="", run=op.run_id, n=op.n, fence=op.fence, secret=secret, logs=list(op.logs))
        if isinstance(op, Outcome):
            if op.state is StepState.SUCCEEDED:
                made.verb, made.output = "succeed", Raw(op.output or b"null")
            else:
                made.verb, made.final, made.error = "fail", True, _raw(op.error)
        elif isinstance(op, RetryStep):
            made.verb, made.retry_in_s, made.ending, made.error = (
                "retry",
                op.delay_s,
                op.ending,
                _raw(op.error),
            )
            made.excused, made.failure = op.excused, op.failure
        elif isinstance(op, QuarantineStep):
            made.verb, made.ending, made.error, made.failure = (
                "quarantine",
                op.ending,
                _raw(op.error),
                op.failure,
            )
            made.fingerprint, made.step, made.kind, made.place = op.fingerprint, op.step, op.kind, op.place
        elif isinstance(op, HandBack):
            made.verb, made.hold = "hand_back", op.hold
        else:
            made.verb, made.progress = "save", op.progress
            if op.checkpoint is not None:
                made.checkpoint = Raw(op.checkpoint)
        return made


def _raw(error: str | None) -> Raw:
    return Raw(b"{}" if error is None else error.encode())


def _parts(ops: Sequence[StepOp]) -> list[list[StepOp]]:
    """Split operations so that each request is of bounded size."""
    parts: list[list[StepOp]] = [[]]
    size = 0
    for op in ops:
        own = len(getattr(op, "output", None) or b"") + len(getattr(op, "checkpoint", None) or b"")
        own += sum(len(part.body) * 2 for part in op.logs) + len(getattr(op, "error", None) or "") + 200
        if size + own > REPORT_MAX_BYTES and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(op)
        size += own
    return parts


class RemoteAgents:
    def __init__(self, connection: AgentConnection, nodes: RemoteNodes) -> None:
        self._connection, self._nodes = connection, nodes
        self._looked_at = 0.0
        self._traces: dict[str, str] = {}

    async def lanes(self) -> list[Lane]:
        """Return nothing: the server knows which lanes this agent serves."""
        return []

    async def run_traces(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the traces that came with what this agent has claimed."""
        return {run: self._traces[run] for run in run_ids if run in self._traces}

    def note_trace(self, run: str, trace: str) -> None:
        if len(self._traces) >= TRACES_MAX:
            self._traces.clear()
        self._traces[run] = trace

    async def next_ready(self, lanes: Sequence[int], runs: Sequence[str] | None = None) -> float | None:
        return None

    async def lost_steps(self, claimed: Sequence[Ref]) -> list[tuple[str, int]]:
        """Return those of these steps that this agent no longer has. The server is asked if its stream said so, and now
        and then."""
        environment = self._connection.transport.environment
        if self._connection.wants_look or environment.monotonic() > self._looked_at + LOOK_S:
            self._looked_at = environment.monotonic()
            await self._nodes.beat()
        known = {(run, n) for run, n, _ in claimed}
        lost, self._nodes.stop = self._nodes.stop & known, set()
        return sorted(lost)


class RemoteAgentGates:
    def __init__(self, connection: AgentConnection, nodes: RemoteNodes) -> None:
        self._connection, self._nodes = connection, nodes

    async def observe(self, tallies: Sequence[Observation], window_s: float) -> None:
        await self._nodes.beat(seen=tallies)

    async def gates(self, window_s: float) -> ShutGates:
        """Return what came with the last answer."""
        return self._connection.gates


class RemoteAgentLimits:
    def __init__(self, nodes: RemoteNodes) -> None:
        self._nodes = nodes

    async def observe_limits(self, loads: Sequence[LimitLoad], namespace: str | None = None) -> None:
        await self._nodes.beat(loads=loads)


class RemoteTwins:
    """The twins that this agent executes, and those that others execute of its steps."""

    def __init__(self, connection: AgentConnection, nodes: RemoteNodes, batches: RemoteBatches) -> None:
        self._connection, self._nodes, self._batches = connection, nodes, batches
        self._looked_at = 0.0
        self.ending: set[Ref] = set()
        """Twins that have ended here, and that are reported now."""

    async def lost_twins(self, node: str, claimed: Sequence[Ref]) -> list[tuple[str, int]]:
        """Return those of these twins that nobody needs any more. The server is asked as often as about steps."""
        connection, monotonic = self._connection, self._connection.transport.environment.monotonic
        if not connection.wants_twin_look and monotonic() <= self._looked_at + LOOK_S:
            return []
        connection.wants_twin_look, self._looked_at = False, monotonic()
        return [(run, n) for run, n in (await self._nodes.beat(twins=claimed)).stop_twins]

    async def end_twin(
        self,
        node: str,
        twin: Ref,
        state: TwinState,
        output: bytes | None,
        outran: str,
        *,
        logs: Sequence[LogPart] = (),
    ) -> Answer:
        """Report how a twin ended. The server itself records which attempt it outran."""
        run, n, fence = twin
        is_won = state is TwinState.WON
        how = StepState.SUCCEEDED if is_won else StepState.FAILED
        op = Outcome(run, n, how, output, None if is_won else "{}", 0.0, fence, logs=logs)
        made = self._batches.report(op)
        made.twin = True
        self.ending.add(twin)
        try:
            found = await self._connection.ask("/report", Reports([made]), Answers)
        finally:
            self.ending.discard(twin)
        self._batches.forget(op)
        return Answer.FENCED if found.answers[0] == "refused" else Answer(found.answers[0])

    async def bar_twin(self, run_id: str, n: int) -> Twin:
        return await self._ask("bar", run_id, n)

    async def stop_twin(self, run_id: str, n: int) -> None:
        await self._ask("stop", run_id, n)

    async def _ask(self, verb: str, run_id: str, n: int) -> Twin:
        for (run, number, fence), secret in self._connection.secrets.items():
            if (run, number) == (run_id, n):
                body = TwinAct(verb=verb, run=run, n=n, fence=fence, secret=secret)
                found = await self._connection.ask("/twin", body, TwinSeen)
                return Twin(
                    run,
                    n,
                    TwinState(found.state),
                    found.not_agent,
                    found.agent,
                    found.made_at,
                    found.started_at,
                    found.ended_at,
                )
        raise StoreError(f"step {n} of run {run_id} is not this agent's")


class RemoteDurations:
    def __init__(self, nodes: RemoteNodes) -> None:
        self._nodes = nodes

    async def add_durations(self, counts: Sequence[tuple[str, int, float]]) -> None:
        """Keep the counts until the next beat."""
        self._nodes.durations += [(name, bucket, count) for name, bucket, count in counts]
        del self._nodes.durations[:-5_000]


def claimed_step(found: Claimed) -> ClaimedStep:
    """Return a step as the agent knows it."""
    made = ClaimedStep(
        found.run,
        found.n,
        found.step,
        found.name,
        found.fence,
        found.attempt,
        found.losses,
        found.excused,
        found.attempts_max,
        found.timeout_s,
        bytes(found.input),
        found.retry,
        given(found.checkpoint) or None,
        found.issued_at,
        found.error,
        found.timeouts,
        found.throttled,
        found.key,
        tuple(found.adapts),
    )
    return made if found.callback is None else ClaimedRequest(**asdict(made), callback=found.callback)
