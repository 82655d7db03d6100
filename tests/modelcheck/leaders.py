"""How leaders take over from each other: supervisors stand still, lose their lease and write late, and nodes die
meanwhile.

A supervisor reads which nodes are gone, and writes later, with the epoch that it once got. The store must accept or
refuse that write whenever it comes. A paused leader is one that does not move while its lease ends and others lead.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import NamedTuple

from holdfast.model import NewRun, Outcome, StepKind, StepState
from holdfast.store.answers import Answer
from holdfast.store.operations import Hop, NewStep
from tests.differential.spec import Lease, Node, Spec
from tests.modelcheck.search import Move

RUN, LANE, LEASE = "r", 1, 1.0
LOSSES_MAX = 2
AGENTS = ("a0", "a1")


class Supervisor(NamedTuple):
    node: str
    epoch: int | None = None
    verdict: str | None = None
    """The node that it is about to reclaim."""


class World:
    __slots__ = (
        "accepted",
        "claims_left",
        "deaths_left",
        "expiries_left",
        "open_claims",
        "spec",
        "supervisors",
    )

    def __init__(self, spec: Spec, supervisors: tuple[Supervisor, ...], deaths: int, expiries: int) -> None:
        self.spec, self.supervisors = spec, supervisors
        self.deaths_left, self.expiries_left, self.claims_left = deaths, expiries, 3
        self.open_claims: frozenset[tuple[str, int]] = frozenset()
        """(agent, fence) of claims that nobody has ended yet."""
        self.accepted: tuple[str, int] | None = None
        """(supervisor, epoch) of a leader's write that was accepted. Set only in the state right after it."""

    def altered(self) -> World:
        spec = self.spec.copy()
        spec.attempts, spec.failures, spec.journal = [], [], []
        after = World(spec, self.supervisors, self.deaths_left, self.expiries_left)
        after.open_claims, after.claims_left = self.open_claims, self.claims_left
        return after

    def key(self) -> Hashable:
        spec = self.spec
        return (
            frozenset(spec.runs.values()),
            frozenset(spec.steps.values()),
            frozenset(spec.nodes.items()),
            frozenset(spec.leases.items()),
            self.supervisors,
            self.deaths_left,
            self.expiries_left,
            self.claims_left,
            self.open_claims,
            self.accepted,
        )


def beginning(spec: Spec, supervisors: int = 3, deaths: int = 1, expiries: int = 2) -> World:
    candidates = tuple(Supervisor(f"s{i}") for i in range(supervisors))
    for node in (*AGENTS, "o", *(one.node for one in candidates)):
        spec.register(node, LEASE)
    step = NewStep(1, "k", StepKind.CALL, "x", LANE, StepState.READY, attempts_max=9)
    begin = Hop(RUN, 1, begin=NewRun(RUN, "w", "1", b"", b""), issued=[step])
    assert spec.commit("o", begin) is Answer.ACCEPTED
    return World(spec, candidates, deaths, expiries)


def is_end(world: World) -> bool:
    return world.spec.steps[RUN, 1].state in {StepState.SUCCEEDED, StepState.FAILED}


def moves(world: World) -> Iterator[Move[World]]:
    for i, one in enumerate(world.supervisors):
        yield from _supervisor_moves(world, i, one)
    yield from _agent_moves(world)
    lease = world.spec.leases.get("leader")
    if lease is not None and lease.expires_at > 0 and world.expiries_left:
        after = world.altered()
        after.expiries_left -= 1
        after.spec.leases["leader"] = Lease(lease.holder, lease.epoch, -1.0)
        yield Move("the leader's lease ends", after)


def _with(world: World, i: int, one: Supervisor) -> World:
    after = world.altered()
    after.supervisors = (*world.supervisors[:i], one, *world.supervisors[i + 1 :])
    return after


def _supervisor_moves(world: World, i: int, one: Supervisor) -> Iterator[Move[World]]:
    if world.spec.is_live(one.node):
        after = world.altered()
        epoch = after.spec.lead(one.node, LEASE)
        if epoch != one.epoch and one.verdict is None:
            yield Move(f"{one.node} asks to lead", _with(after, i, one._replace(epoch=epoch)))
        if one.epoch is not None and one.verdict is None and world.expiries_left:
            yield Move(f"{one.node} resigns", _resigned(world, i, one), heals=False)
    if one.epoch is not None and one.verdict is None:
        for node in sorted(world.spec.dead_nodes()):
            yield Move(f"{one.node} finds {node} dead", _with(world, i, one._replace(verdict=node)))
    if one.verdict is not None and one.epoch is not None:
        after = _with(world, i, one._replace(verdict=None))
        done = after.spec.reclaim(one.verdict, one.epoch, LOSSES_MAX)
        if done is None:  # it is no longer the leader
            after.supervisors = (*after.supervisors[:i], Supervisor(one.node), *after.supervisors[i + 1 :])
        else:
            after.accepted = one.node, one.epoch
        yield Move(f"{one.node} reclaims {one.verdict}", after)


def _resigned(world: World, i: int, one: Supervisor) -> World:
    after = _with(world, i, one._replace(epoch=None))
    after.expiries_left -= 1
    after.spec.resign(one.node)
    return after


def _agent_moves(world: World) -> Iterator[Move[World]]:
    for agent in AGENTS:
        if world.claims_left and world.spec.due((LANE,)) and world.spec.is_live(agent):
            after = world.altered()
            for _, _, fence, _ in after.spec.claim_steps(agent, (LANE,), 1):
                after.open_claims = world.open_claims | {(agent, fence)}
            after.claims_left -= 1
            yield Move(f"{agent} claims", after)
        if world.deaths_left and world.spec.nodes[agent].lease_until > 0:
            after = world.altered()
            after.deaths_left -= 1
            after.spec.nodes[agent] = Node(-1.0, world.spec.nodes[agent].retired)
            yield Move(f"{agent} stands still for longer than its lease", after, heals=False)
    for agent, fence in world.open_claims:
        after = world.altered()
        after.open_claims = world.open_claims - {(agent, fence)}
        report = Outcome(RUN, 1, StepState.SUCCEEDED, f"{agent}/{fence}".encode(), None, 0.0, fence)
        after.spec.commit(agent, report)
        yield Move(f"{agent} reports", after)


def check(before: World, event: str, after: World) -> None:
    old, new = before.spec, after.spec
    was, now = old.leases.get("leader"), new.leases.get("leader")
    if was is not None and now is not None:
        assert now.epoch >= was.epoch, "I7: the epoch fell"
        live = was.holder is not None and was.expires_at > old.now
        if live and now.holder not in {was.holder, None}:
            assert old.nodes[was.holder or ""].retired, "I5: a live leader was deposed"
        if now.holder != was.holder and now.holder is not None:
            assert now.epoch > was.epoch, "I5: a new leader has the old one's epoch"
    if after.accepted is not None:
        who, epoch = after.accepted
        current = was is not None and was.epoch == epoch and was.expires_at > old.now
        assert current, f"I5: a write of {who}, which does not lead any more, was accepted"
        assert was is not None
        assert was.holder == who, "I5: two leaders in one epoch"
    step, then = old.steps[RUN, 1], new.steps[RUN, 1]
    assert then.fence >= step.fence, "I7: a fence fell"
    if step.state in {StepState.SUCCEEDED, StepState.FAILED}:
        assert (then.state, then.output) == (step.state, step.output), "I1: a second outcome was accepted"
    if step.state is StepState.RUNNING and then.state is StepState.READY:
        agent = old.nodes[step.agent or ""]
        assert agent.lease_until <= old.now or agent.retired, "I3: a live lease was reclaimed"
    assert then.state is not StepState.RUNNING or then.agent is not None, (
        "I10: a running step without an agent"
    )
