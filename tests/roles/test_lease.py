"""A node acts only while it has its lease, and it never believes to have the lease for longer than the store does."""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast, step, workflow
from holdfast.config import Config
from holdfast.environment import Environment, StoreClock
from holdfast.heartbeat import Heartbeat, HeartProcess
from holdfast.node import Node
from holdfast.store import open_store
from holdfast.store.heart import LAPSED, Heart, HeartMessage, Order
from holdfast.store.nodes import Nodes

LEASE_S = 3.0
QUICK = Config(lease_s=LEASE_S, renew_s=LEASE_S / 5, poll_s=0.1, beat_s=0.1, sweep_s=0.1, heart=False)

began: Counter[str] = Counter()
when_first_runs: list[Callable[[], None]] = []


@step
async def first() -> str:
    began["first"] += 1
    while when_first_runs:
        when_first_runs.pop()()
    return "first"


@step
async def second(before: str) -> str:
    began["second"] += 1
    return f"{before} second"


@workflow
async def both() -> str:
    return await second(await first())


def lose_lease(node: Node) -> None:
    """Let the node find that its lease has run out, as after a pause. The store gives it until the lease really ends."""
    node.heartbeat.until = -math.inf


@pytest.fixture(autouse=True)
def forget() -> None:
    began.clear()
    when_first_runs.clear()


async def test_without_its_lease_a_node_writes_nothing(store_url: str) -> None:
    """The step ended at a node whose lease had run out. Others may have reclaimed it, so its outcome is not written, and
    the step is executed again."""
    async with Holdfast(store_url, config=QUICK) as hf:
        node = hf.node
        when_first_runs.append(lambda: lose_lease(node))
        run = await hf.start(both)
        assert await run.result(60) == "first second"
        assert hf.node is not node
    assert began == {"first": 2, "second": 1}


async def test_without_its_lease_an_agent_begins_nothing(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease ran out between the commit that issued the step and its beginning. Another node may have the step."""
    async with Holdfast(store_url, config=QUICK) as hf:
        node = hf.node
        assert node.agent is not None
        begin = node.agent.begin_issued

        def begin_late(run_id: str, n: int, issue: Any, *more: Any) -> None:
            if issue.name.endswith("second"):
                lose_lease(node)
            begin(run_id, n, issue, *more)

        monkeypatch.setattr(node.agent, "begin_issued", begin_late)
        run = await hf.start(both)
        assert await run.result(60) == "first second"
        assert hf.node is not node
    assert began == {"first": 1, "second": 1}


class Slow(Environment):
    """A second passes whenever somebody looks at the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.looked: list[float] = []

    def monotonic(self) -> float:
        self.looked.append(100.0 + len(self.looked))
        return self.looked[-1]


async def test_a_lease_counts_from_when_its_renewal_was_sent(store_url: str) -> None:
    """The store may have renewed it long before the answer came. What the node believes ends no later than what the
    store wrote."""
    store = open_store(store_url, Environment(), QUICK)
    await store.open()
    await _register(store.nodes)
    environment = Slow()
    clock = StoreClock(environment)
    beat = Heartbeat(
        store.nodes,
        "n",
        environment=environment,
        clock=clock,
        config=QUICK,
        pulse=lambda: "{}",
        lost=pytest.fail,
    )
    environment.looked.clear()
    await beat.renew()
    sent, answered = environment.looked[0], environment.looked[-1]
    assert answered > sent
    assert (beat.sent, beat.until) == (sent, sent + LEASE_S)
    await store.close()


async def test_a_heart_counts_from_when_it_sent_the_renewal(
    store_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It says so to its node, and it goes by that itself when it looks whether the lease has run out."""
    store = open_store(store_url, Environment(), QUICK)
    await store.open()
    await _register(store.nodes)
    environment = Slow()
    url = store.nodes.shared_url
    assert url is not None
    heart = Heart(Order(url, "n", os.getpid(), LEASE_S, 0.2, 60.0, 0.0), environment)
    environment.looked.clear()
    assert await asyncio.to_thread(heart._renew, 0.0) is True
    message = HeartMessage(**json.loads(capfd.readouterr().out))
    assert message.store_now is not None
    assert (message.sent, message.answered) == (environment.looked[0], environment.looked[-1])
    assert message.answered > message.sent
    assert heart._sent == message.sent
    await asyncio.to_thread(heart.close)
    await store.close()


async def _register(nodes: Nodes) -> None:
    await nodes.register(
        "n", host="h", pid=os.getpid(), roles="agent", offers="{}", capacity=1, lease_s=LEASE_S
    )


@pytest.mark.parametrize("renews", [True, False])
async def test_a_node_that_renews_by_itself_keeps_its_lease_when_its_heart_could_not_renew(
    store_url: str, renews: bool
) -> None:
    """A heart that cannot reach the store ends when the last lease that it knows of has run out. Meanwhile the node may
    have renewed in its place. Only a node that has not renewed either has lost its lease."""
    store = open_store(store_url, Environment(), QUICK)
    await store.open()
    await _register(store.nodes)
    environment, lost = Environment(), list[str]()
    beat = HeartProcess(
        store.nodes,
        "n",
        environment=environment,
        clock=StoreClock(environment),
        config=QUICK,
        pulse=lambda: "{}",
        lost=lost.append,
    )
    if renews:
        await beat.renew()
    else:
        beat.until = environment.monotonic()
    beat._heard(HeartMessage(end=LAPSED))
    assert lost == ([] if renews else ["it could not renew in time"])
    await store.close()
