"""Runs, steps and hops for the tests of the store. Everything that does not matter for a test has a default."""

import asyncio
import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.model import NewAsk, NewRun, Outcome, RunState, StepKind, StepRow, StepState
from holdfast.store.answers import Answer, ClaimedRun, ClaimedStep, Reclaimed, SeenNode
from holdfast.store.database import Session, StoreCall
from holdfast.store.heart import Order, renewer
from holdfast.store.operations import Close, Hop, NewStep, Start
from holdfast.store.store import Store
from holdfast.store.verbs import Verb
from holdfast.supervisor import reclaim as verdicts

ENVIRONMENT = Environment()
WORKFLOW = "shop.order"
VERSION = "1"
SERVED = [(WORKFLOW, VERSION)]
A, B, C = "node-a", "node-b", "node-c"
"""Nodes that are registered in every store of these tests."""
D = "node-d"
"""A node that a test may register itself."""
LONG_S = 3600.0


async def number_lane(
    store: Store, name: str, needs: tuple[str, ...] = (), undo: str | None = None, depends: str | None = None
) -> int:
    """Return the number of one lane."""
    (lane,) = await store.schedulers.number_lanes([(name, needs, undo, depends or name)])
    return lane


def new_id() -> str:
    return ENVIRONMENT.new_id()


async def say_gone(url: str, node: str) -> None:
    """Do what the heart of a killed process does."""

    def say() -> None:
        heart = renewer(Order(url, node, 0, 10.0, 2.0, 60.0, 0.0))
        heart.say_gone()
        heart.close()

    await asyncio.to_thread(say)


def new_run(run_id: str | None = None, **more: Any) -> NewRun:
    values: dict[str, Any] = {
        "id": run_id or new_id(),
        "workflow": WORKFLOW,
        "version": VERSION,
        "input": b'{"item": 1}',
        "digest": b"0123456789abcdef",
    }
    return NewRun(**(values | more))


def call(n: int = 1, state: StepState = StepState.READY, **more: Any) -> NewStep:
    """A call step. It is ready unless the test wants another state."""
    values: dict[str, Any] = {
        "n": n,
        "key": f"charge#{n}",
        "kind": StepKind.CALL,
        "name": "shop.charge",
        "lane": 1,
        "state": state,
        "attempts_max": 3,
        "input": b"[1]",
        "digest": b"d",
    }
    return NewStep(**(values | more))


def running_call(n: int = 1, **more: Any) -> NewStep:
    """A call step that the agent of the issuing node has from the start."""
    return call(n, StepState.RUNNING, **more)


def timer(n: int, ready_at: float, key: str | None = None) -> NewStep:
    return NewStep(n, key or f"sleep#{n}", StepKind.TIMER, "sleep", 0, StepState.WAITING, ready_at=ready_at)


def wait(n: int) -> NewStep:
    return NewStep(n, f"signal#{n}", StepKind.SIGNAL, "paid", 0, StepState.WAITING)


def child(n: int) -> NewStep:
    return NewStep(n, f"child#{n}", StepKind.CHILD, WORKFLOW, 0, StepState.WAITING)


def succeeded(n: int, fence: int, seq: int, output: bytes = b'"ok"') -> Outcome:
    """An outcome that a hop records and delivers."""
    return Outcome("", n, StepState.SUCCEEDED, output, None, ENVIRONMENT.now(), fence, seq)


def delivered(n: int, seq: int) -> Outcome:
    """An outcome that a hop delivers, and that somebody else has recorded."""
    return Outcome("", n, StepState.SUCCEEDED, None, None, 0.0, None, seq)


def report(run_id: str, n: int, fence: int, output: bytes = b'"ok"') -> Outcome:
    """An outcome that an agent reports."""
    return Outcome(run_id, n, StepState.SUCCEEDED, output, None, ENVIRONMENT.now(), fence)


def report_of(step: ClaimedStep, output: bytes = b'"ok"') -> Outcome:
    return report(step.run_id, step.n, step.fence, output)


def closing(state: RunState = RunState.SUCCEEDED, **more: Any) -> Close:
    values: dict[str, Any] = {"state": state, "output": None, "error": None, "at": ENVIRONMENT.now()}
    return Close(**(values | more))


async def join(store: Store, node: str = A, *, lease_s: float = LONG_S, capacity: int = 100) -> None:
    await store.nodes.register(
        node, host="here", pid=1, roles="all", offers=json.dumps({}), capacity=capacity, lease_s=lease_s
    )


async def begin(store: Store, *steps: NewStep, node: str = A, run: NewRun | None = None) -> str:
    """Begin a run with these steps. `node` owns it, with fence 1. Return its id."""
    run = run or new_run()
    hop = Hop(run.id, 1, begin=run, begun_at=ENVIRONMENT.now(), issued=steps)
    assert await store.batches.commit(node, [hop]) == [Answer.ACCEPTED]
    return run.id


async def parked(store: Store, *steps: NewStep, node: str = A, run: NewRun | None = None) -> str:
    """Begin a run, and let its owner park it. Its fence is 2 then. Return its id."""
    run_id = await begin(store, *steps, node=node, run=run)
    assert await store.batches.commit(node, [Hop(run_id, 1, park=True)]) == [Answer.ACCEPTED]
    return run_id


async def start(store: Store, run: NewRun | None = None, node: str = A) -> str:
    run = run or new_run()
    assert await store.batches.commit(node, [Start(run)]) == [Answer.ACCEPTED]
    return run.id


async def ended(store: Store, *steps: NewStep, node: str = A) -> str:
    """Begin a run, and end it with success. Its steps are dropped. Return its id."""
    run_id = await begin(store, *steps, node=node)
    hop = Hop(run_id, 1, dropped=[step.n for step in steps], close=closing())
    assert await store.batches.commit(node, [hop]) == [Answer.ACCEPTED]
    return run_id


async def step(store: Store, run_id: str, n: int = 1) -> StepRow:
    found = [one for one in await store.reads.steps(run_id) if one.n == n]
    assert found, f"run {run_id} has no step {n}"
    return found[0]


async def broken(store: Store) -> set[str]:
    """Return the names of the invariants that are broken."""
    return {name for name, _, rows in await store.reads.doctor() if rows}


def ids(claimed: Sequence[ClaimedRun]) -> list[str]:
    return [one.run.id for one in claimed]


async def _seen(node: str, session: Session) -> Any:
    return await session.row(Verb.lock_node, node)


async def deaths(store: Store) -> dict[str, str]:
    """Return the nodes that a leader would find gone, and why."""
    found = {}
    for node in await store.leader.doubtful_nodes():
        row = await store.database.look(StoreCall("deaths", (), (), {}), partial(_seen, node))
        gone = store.database.processes.is_gone(node)
        death = verdicts.death_of(None if row is None else SeenNode(*row), await store.now())
        if gone or death is not None:
            found[node] = str(verdicts.Death.GONE if gone else death)
    return found


async def reclaim(
    store: Store, node: str, epoch: int, why: str | None = None, losses_max: int = 3, limit: int = 100
) -> Reclaimed | None:
    """Reclaim what the node has, if the test gives a reason or the node is found gone."""
    config = msgspec.structs.replace(DEFAULT, losses_max=losses_max)

    def judge(seen: SeenNode | None, now: float) -> str | None:
        return verdicts.death_of(seen, now) if why is None else why

    remedy = partial(verdicts._remedy_of, node, ENVIRONMENT.random, config)
    return await store.leader.reclaim(epoch, node, judge, remedy, verdicts.offline, limit)


async def end_overdue(store: Store, epoch: int, grace_s: float, limit: int = 100) -> int:
    remedy = partial(verdicts.remedy_of, verdicts.overdue(), ENVIRONMENT.random, DEFAULT)
    return await store.leader.end_overdue(epoch, grace_s, remedy, limit)


def asked(n: int = 1, **more: Any) -> NewAsk:
    """A question of the step `n`: a team is asked for a yes or no."""
    values: dict[str, Any] = {
        "id": new_id(),
        "namespace": "default",
        "workflow": WORKFLOW,
        "n": n,
        "question": "Ship it?",
        "form": '{"type": "boolean"}',
        "show": "null",
        "quorum": 1,
        "not_by": "[]",
        "plan": "{}",
        "timeout_s": None,
        "next_s": None,
        "who": ("team:finance",),
    }
    return NewAsk(**values | more)


def ask_step(n: int = 1) -> NewStep:
    return NewStep(n, f"ask-{n}", StepKind.ASK, "ask", 0, StepState.WAITING)


def callback_steps(n: int = 1, expires_s: float | None = None) -> list[NewStep]:
    """A request, which has been made, and its callback. The result is a whole number."""
    request = NewStep(n, f"request:pay-{n}", StepKind.CALL, "shop.pay", 1, StepState.READY)
    waits = NewStep(n + 1, f"pay-{n}", StepKind.CALLBACK, "shop.pay", 0, StepState.WAITING)
    waits.input, waits.timeout_s = b'{"type":"integer"}', expires_s
    return [request, waits]


async def calls_back(
    store: Store, *, run: NewRun | None = None, node: str = A, expires_s: float | None = None
) -> str:
    """Begin a run that waits for a callback, with the number 2. Return its id."""
    run = run or new_run()
    hop = Hop(
        run.id, 1, begin=run, begun_at=await store.now(), issued=callback_steps(1, expires_s), begun_waits=[2]
    )
    assert await store.batches.commit(node, [hop]) == [Answer.ACCEPTED]
    return run.id


async def asks_people(store: Store, *asks: NewAsk, run: NewRun | None = None, node: str = A) -> str:
    """Begin a run that asks people. Return its id."""
    run, asks = run or new_run(), asks or (asked(),)
    hop = Hop(
        run.id, 1, begin=run, begun_at=await store.now(), issued=[ask_step(one.n) for one in asks], asks=asks
    )
    assert await store.batches.commit(node, [hop]) == [Answer.ACCEPTED]
    return run.id
