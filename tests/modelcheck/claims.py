"""The protocol of claims, leases, reclaiming and reports, in a world where processes die or stand still, and messages
get lost or arrive late or twice. The store is the executable specification with which both dialects are compared. After
a failed attempt, `holdfast.policy.decide` decides what follows.

A process that stands still takes no step while others do. The protocol must not rely on a node that notices the end of
its lease. So here it never does, and writes what it wanted to write at any later time.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from typing import NamedTuple

from holdfast.lifecycle import RUN_ENDED, STEP_ENDED, STEP_LIVE
from holdfast.model import Failure, NewRun, Outcome, RunState, StepKind, StepState
from holdfast.policy import GiveUp, Retry, decide
from holdfast.store.answers import Answer
from holdfast.store.operations import Close, HandBack, Hop, NewStep, Op, RetryStep, Start
from tests.differential.spec import NEVER, Node, Spec, Step
from tests.modelcheck.search import Move

RUN, LANE, LEASE = "r", 1, 1.0
POLICY = Retry(attempts=2, delay=0.0)
LOSSES_MAX = 1
SUPERVISOR, EPOCH = "s", 1
DICE = random.Random(0)


class Budget(NamedTuple):
    """How much may still go wrong."""

    crashes: int = 1
    losses: int = 1
    """Answers that get lost."""
    expiries: int = 1
    """Leases that end although their process is alive."""
    errors: int = 1
    """Attempts that fail."""
    hand_backs: int = 1


class Agent(NamedTuple):
    node: str
    phase: str = "idle"
    """idle, claiming, unsure (the answer to a claim got lost), working, reporting."""
    grant: tuple[str, int, int, int] | None = None
    op: tuple[str, ...] | None = None


class Scheduler(NamedTuple):
    node: str
    fence: int | None = None
    plan: Hashable = None
    """What it is about to write after what it has read: (fence, delivered, issues, closes, good)."""
    unsure: bool = False


class World:
    """The store, the processes, and the writes that are still on their way from processes that are gone."""

    __slots__ = ("agents", "budget", "ghosts", "schedulers", "spec", "steps")

    def __init__(
        self,
        spec: Spec,
        agents: tuple[Agent, ...],
        schedulers: tuple[Scheduler, ...],
        budget: Budget,
        steps: int,
        ghosts: frozenset[tuple[str, tuple[str, int, int, int], tuple[str, ...]]] = frozenset(),
    ) -> None:
        self.spec, self.agents, self.schedulers = spec, agents, schedulers
        self.budget, self.steps, self.ghosts = budget, steps, ghosts

    def key(self) -> Hashable:
        spec = self.spec
        return (
            frozenset(spec.runs.values()),
            frozenset(spec.steps.values()),
            frozenset(spec.nodes.items()),
            self.agents,
            self.schedulers,
            self.budget,
            self.ghosts,
        )

    def altered(self) -> World:
        spec = self.spec.copy()
        spec.attempts, spec.failures, spec.journal = [], [], []  # nothing here needs this history
        return World(spec, self.agents, self.schedulers, self.budget, self.steps, self.ghosts)


def beginning(
    spec: Spec, *, agents: int = 2, schedulers: int = 1, steps: int = 1, budget: Budget | None = None
) -> World:
    """Return a world with an accepted run, and processes that are about to claim it."""
    executors = tuple(Agent(f"a{i}") for i in range(agents))
    owners = tuple(Scheduler(f"o{i}") for i in range(schedulers))
    for node in [*(one.node for one in executors), *(one.node for one in owners)]:
        spec.register(node, LEASE)
    spec.register(SUPERVISOR, LEASE)
    assert spec.lead(SUPERVISOR, LEASE) == EPOCH
    assert spec.commit("o0", Start(NewRun(RUN, "w", "1", b"", b""))) is Answer.ACCEPTED
    return World(spec, executors, owners, budget or Budget(), steps)


def is_end(world: World) -> bool:
    """True if the run has ended, or a step of it is in quarantine."""
    waits = any(step.ready_at == NEVER for step in world.spec.steps.values())
    return waits or world.spec.runs[RUN].state in RUN_ENDED


# --- what can happen -------------------------------------------------------------------------------------------------


def moves(world: World) -> Iterator[Move[World]]:
    for i in range(len(world.agents)):
        yield from _agent_moves(world, i)
    for i in range(len(world.schedulers)):
        yield from _scheduler_moves(world, i)
    yield from _supervisor_moves(world)
    for ghost in world.ghosts:
        node, grant, op = ghost
        after = world.altered()
        after.ghosts = world.ghosts - {ghost}
        after.spec.commit(node, as_op(grant, op))
        yield Move(f"late {op[0]} of {node}", after)


def _set_agent(world: World, i: int, agent: Agent) -> World:
    after = world.altered()
    after.agents = (*world.agents[:i], agent, *world.agents[i + 1 :])
    return after


def as_op(grant: tuple[str, int, int, int], op: tuple[str, ...]) -> Op:
    run_id, n, fence, attempt = grant
    if op[0] == "report":
        good = op[1] == StepState.SUCCEEDED
        # Every attempt has its own result, so that a result which replaces another one is noticed.
        output = f"{attempt}/{fence}".encode() if good else None
        return Outcome(run_id, n, StepState(op[1]), output, None if good else "boom", 0.0, fence)
    if op[0] == "again":
        return RetryStep(run_id, n, fence, 0.0, "failed", "boom")
    return HandBack(run_id, n, fence)


def _agent_moves(world: World, i: int) -> Iterator[Move[World]]:
    agent, budget, name = world.agents[i], world.budget, world.agents[i].node
    if agent.phase == "idle" and world.spec.due((LANE,)):
        yield Move(f"{name} asks for a step", _set_agent(world, i, agent._replace(phase="claiming")))
    if agent.phase == "claiming":
        after = world.altered()
        claimed = after.spec.claim_steps(name, (LANE,), 1)
        answered = agent._replace(
            phase="working" if claimed else "idle", grant=claimed[0] if claimed else None
        )
        after.agents = (*world.agents[:i], answered, *world.agents[i + 1 :])
        yield Move(f"{name} claims", after)
        if claimed and budget.losses:
            lost = _set_agent(after, i, agent._replace(phase="unsure"))
            lost.budget = budget._replace(losses=budget.losses - 1)
            yield Move(f"{name} claims, the reply is lost", lost, heals=False)
    if agent.phase == "unsure":
        after = _set_agent(world, i, Agent(name))
        after.spec.reconcile(name, (), ())
        yield Move(f"{name} hands back what it does not know of", after)
    if agent.phase == "working" and agent.grant is not None:
        yield from _working(world, i, agent, agent.grant)
    if agent.phase == "reporting" and agent.grant is not None and agent.op is not None:
        after = _set_agent(world, i, Agent(name))
        after.spec.commit(name, as_op(agent.grant, agent.op))
        yield Move(f"{name} writes {agent.op[0]}", after)
        if budget.losses:
            lost = _set_agent(after, i, agent)
            lost.budget = budget._replace(losses=budget.losses - 1)
            yield Move(f"{name} writes {agent.op[0]}, the reply is lost", lost, heals=False)
    if budget.crashes:
        yield from _crash(world, i, agent)
    if budget.expiries and world.spec.is_live(name) and world.spec.nodes[name].lease_until > 0:
        after = world.altered()
        after.budget = budget._replace(expiries=budget.expiries - 1)
        after.spec.nodes[name] = Node(-1.0)
        yield Move(f"the lease of {name} ends", after, heals=False)
    if not world.spec.is_live(name):
        # The node learns that it was reclaimed, drops everything, and joins as another node.
        new_name = f"{name}'"
        after = _set_agent(world, i, Agent(new_name))
        after.spec.register(new_name, LEASE)
        if agent.op is not None and agent.grant is not None:
            after.ghosts = world.ghosts | {(name, agent.grant, agent.op)}
        yield Move(f"{name} joins as {new_name}", after)


def _working(world: World, i: int, agent: Agent, grant: tuple[str, int, int, int]) -> Iterator[Move[World]]:
    budget, name = world.budget, agent.node
    done = agent._replace(phase="reporting", op=("report", StepState.SUCCEEDED))
    yield Move(f"{name} succeeds", _set_agent(world, i, done))
    if budget.errors:
        step = world.spec.steps.get(grant[:2])
        counted = (step or Step(*grant[:2], "", StepKind.CALL, LANE, StepState.RUNNING))._replace(
            attempt=grant[3]
        )
        verdict = decide(POLICY, Failure.APPLICATION, counted, error=ValueError(), elapsed_s=0.0, random=DICE)
        gives_up = isinstance(verdict, GiveUp)
        op = ("report", StepState.FAILED) if gives_up else ("again",)
        after = _set_agent(world, i, agent._replace(phase="reporting", op=op))
        after.budget = budget._replace(errors=budget.errors - 1)
        yield Move(f"{name} fails", after, heals=False)
    if budget.hand_backs:
        after = _set_agent(world, i, agent._replace(phase="reporting", op=("back",)))
        after.budget = budget._replace(hand_backs=budget.hand_backs - 1)
        yield Move(f"{name} drains", after, heals=False)


def _crash(world: World, i: int, agent: Agent) -> Iterator[Move[World]]:
    """The process dies and another one starts. What it has sent may still arrive."""
    new_name = f"{agent.node}+"
    after = _set_agent(world, i, Agent(new_name))
    after.budget = world.budget._replace(crashes=world.budget.crashes - 1)
    after.spec.register(new_name, LEASE)
    after.spec.nodes[agent.node] = after.spec.nodes[agent.node]._replace(lease_until=-1.0)
    yield Move(f"{agent.node} dies", after, heals=False)
    if agent.op is not None and agent.grant is not None:
        late = _set_agent(after, i, Agent(new_name))
        late.ghosts = world.ghosts | {(agent.node, agent.grant, agent.op)}
        yield Move(f"{agent.node} dies, its {agent.op[0]} is on its way", late, heals=False)


def _set_scheduler(world: World, i: int, scheduler: Scheduler) -> World:
    after = world.altered()
    after.schedulers = (*world.schedulers[:i], scheduler, *world.schedulers[i + 1 :])
    return after


def _scheduler_moves(world: World, i: int) -> Iterator[Move[World]]:
    owner, budget, name = world.schedulers[i], world.budget, world.schedulers[i].node
    if owner.fence is None and not owner.unsure and world.spec.claimable():
        after = world.altered()
        claimed = after.spec.claim_run(name, RUN)
        if claimed is not None:
            yield Move(f"{name} claims the run", _set_scheduler(after, i, owner._replace(fence=claimed[1])))
            if budget.losses:
                lost = _set_scheduler(after, i, owner._replace(unsure=True))
                lost.budget = budget._replace(losses=budget.losses - 1)
                yield Move(f"{name} claims the run, the reply is lost", lost, heals=False)
    if owner.unsure:
        after = _set_scheduler(world, i, Scheduler(name))
        after.spec.reconcile(name, (), ())
        yield Move(f"{name} hands back the run", after)
    if owner.fence is not None and owner.plan is None:
        plan = _plan(world, owner.fence)
        if plan is not None:
            yield Move(f"{name} decides", _set_scheduler(world, i, owner._replace(plan=plan)))
    if owner.plan is not None:
        after = world.altered()
        answer = after.spec.commit(name, _hop(world.steps, owner.plan))
        # FENCED means that somebody else owns the run, or that this hop was written before and its answer got lost.
        kept = Scheduler(name, owner.fence) if answer is Answer.ACCEPTED else Scheduler(name, unsure=True)
        if after.spec.runs[RUN].state in RUN_ENDED:
            kept = Scheduler(name)
        yield Move(f"{name} hops", _set_scheduler(after, i, kept))
        if budget.losses:
            lost = _set_scheduler(after, i, owner)
            lost.budget = budget._replace(losses=budget.losses - 1)
            yield Move(f"{name} hops, the reply is lost", lost, heals=False)
    if budget.crashes:
        new_name = f"{name}+"
        after = _set_scheduler(world, i, Scheduler(new_name))
        after.budget = budget._replace(crashes=budget.crashes - 1)
        after.spec.register(new_name, LEASE)
        after.spec.nodes[name] = after.spec.nodes[name]._replace(lease_until=-1.0)
        yield Move(f"{name} dies", after, heals=False)
    if budget.expiries and world.spec.is_live(name) and world.spec.nodes[name].lease_until > 0:
        after = world.altered()
        after.budget = budget._replace(expiries=budget.expiries - 1)
        after.spec.nodes[name] = Node(-1.0)
        yield Move(f"the lease of {name} ends", after, heals=False)
    if not world.spec.is_live(name) and owner.plan is None:
        new_name = f"{name}'"
        after = _set_scheduler(world, i, Scheduler(new_name))
        after.spec.register(new_name, LEASE)
        yield Move(f"{name} joins as {new_name}", after)


def _plan(world: World, fence: int) -> Hashable:
    """Return what the owner would do after what it reads now: issue the steps, deliver those that ended, close when all
    have ended."""
    steps = {step.n: step for step in world.spec.steps_of(RUN)}
    if not steps:
        return fence, (), True, False, True
    fresh = tuple(
        n for n, step in sorted(steps.items()) if step.state in STEP_ENDED and step.delivered_seq is None
    )
    done = sum(step.delivered_seq is not None for step in steps.values())
    closes = done + len(fresh) == len(steps)
    if not fresh and not closes:
        return None
    good = all(step.state is StepState.SUCCEEDED for step in steps.values())
    return fence, tuple((n, done + 1 + at) for at, n in enumerate(fresh)), False, closes, good


def _hop(steps: int, plan: Hashable) -> Hop:
    assert isinstance(plan, tuple)
    fence, delivered, issues, closes, good = plan
    state = RunState.SUCCEEDED if good else RunState.FAILED
    issued = [
        NewStep(n, f"k{n}", StepKind.CALL, "x", LANE, StepState.READY, attempts_max=POLICY.attempts)
        for n in range(1, steps + 1)
    ]
    return Hop(
        RUN,
        fence,
        outcomes=[Outcome(RUN, n, StepState.SUCCEEDED, None, None, 0.0, None, seq) for n, seq in delivered],
        issued=issued if issues else (),
        close=Close(state, b"", None, 0.0) if closes else None,
    )


def _supervisor_moves(world: World) -> Iterator[Move[World]]:
    for node in sorted(world.spec.dead_nodes()):
        after = world.altered()
        after.spec.reclaim(node, EPOCH, LOSSES_MAX)
        yield Move(f"the leader reclaims {node}", after)


# --- what must be true -------------------------------------------------------------------------------------------------


def check(before: World, event: str, after: World) -> None:
    """Check the invariants for one move from one state to the next. Their names are those of the guarantees."""
    old, new = before.spec, after.spec
    reclaimed = event.removeprefix("the leader reclaims ") if "the leader reclaims" in event else None
    if reclaimed is not None:
        node = old.nodes.get(reclaimed)
        assert node is None or node.retired or node.lease_until <= old.now, "I3: a live lease was reclaimed"
    for name, run in old.runs.items():
        now = new.runs[name]
        assert now.fence >= run.fence, "I7: a run's fence fell"
        assert run.state not in RUN_ENDED or now == run, "I9: an ended run changed"
    ended = new.runs[RUN].state in RUN_ENDED
    for key, now_step in new.steps.items():
        _check_step(old.steps.get(key), now_step)
        assert not (ended and now_step.state in STEP_LIVE), "I12: an ended run has a live step"
    _check_answers(before, event, after)


def _check_step(old: Step | None, new: Step) -> None:
    assert new.state is not StepState.RUNNING or new.agent is not None, "I10: a running step without an agent"
    assert new.losses <= LOSSES_MAX + 1, "I8: lost more often than allowed"
    assert new.attempt - new.losses - new.excused <= POLICY.attempts, (
        "I8: more attempts than the budget allows"
    )
    if old is None:
        return
    assert new.fence >= old.fence, "I7: a step's fence fell"
    delivered = old._replace(delivered_seq=new.delivered_seq)
    assert delivered == new or new.fence > old.fence, "I7: a transition did not raise the fence"
    if old.state in STEP_ENDED:
        same = (old.state, old.output, old.error) == (new.state, new.output, new.error)
        assert same, "I1: a second outcome was accepted"
    if old.state is StepState.READY and new.state is StepState.RUNNING:
        assert new.attempt == old.attempt + 1, "I8: a claim was not counted"


def _check_answers(before: World, event: str, after: World) -> None:
    """Check that every accepted write had the current fence."""
    writers = [(agent.node, agent.grant, agent.op) for agent in before.agents] + list(before.ghosts)
    for node, grant, op in writers:
        if grant is None or op is None:
            continue
        wrote = event.startswith(f"{node} writes ") or event == f"late {op[0]} of {node}"
        old, new = before.spec.steps[grant[:2]], after.spec.steps[grant[:2]]
        if wrote and new != old:
            assert old.fence == grant[2], "I2: a write with a stale fence was accepted"
    for owner in before.schedulers:
        if isinstance(owner.plan, tuple) and event.startswith(f"{owner.node} hops"):
            same = before.spec.steps == after.spec.steps and before.spec.runs == after.spec.runs
            current = before.spec.runs[RUN].fence == owner.plan[0]
            assert same or current, "I2: a hop with a stale fence was accepted"
