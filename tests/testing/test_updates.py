"""Updates in `sim` and `crash_everywhere`."""

from __future__ import annotations

import pytest

from holdfast import Refused, Signal, Update, UpdateFailed, here, step, workflow
from holdfast.errors import Conflict
from holdfast.testing import NotEnded, Sim

add = Update("add", int, int)
enough = Signal("enough", bool)


@step
async def book(amount: int) -> str:
    return f"{amount} under {here.key}"


@workflow
async def collect() -> int:
    total = 0

    async def serve(amount: int) -> int:
        nonlocal total
        if amount < 0:
            raise Refused("only more")
        await book(amount)
        total += amount
        return total

    async with add.serve(serve):
        await enough.wait()
    return total


def test_a_call_gets_its_answer(sim: Sim) -> None:
    """`sim.update` returns the answer, the same one for the same key, also after a crash of the process."""
    run = sim.start(collect)
    assert sim.update(run, add, 3, key="k") == 3
    sim.kill_agent()
    assert sim.update(run, add, 3, key="k") == 3
    assert sim.update(run, add, 4) == 7
    with pytest.raises(Refused, match="only more"):
        sim.update(run, add, -1)
    with pytest.raises(Conflict):
        sim.update(run, add, 5, key="k")
    sim.stub(book, LookupError("closed"))
    with pytest.raises(UpdateFailed, match="closed"):
        sim.update(run, add, 5)
    sim.send(run, enough, True)
    assert run.result() == 7


def test_what_is_not_served_yet_has_no_answer(sim: Sim) -> None:
    """NotEnded says what the run waits for. A call that waits for nothing but a call says how to make one."""
    run = sim.start(collect)
    with pytest.raises(NotEnded, match=r"sim\.update\(run, update, value\)"):
        run.result()
    sim.stub(book, lambda amount: sim.stage.world.for_ever())
    assert "serving the update 'add'" in run.why()


def test_every_crash_leaves_one_effect_and_one_answer(sim: Sim) -> None:
    """Between any two commits, of the call, of its steps and of its answer."""
    sim.will_call(add, 3)
    sim.will_call(add, -1)
    sim.will_call(add, 4)
    sim.will_send(enough, True)
    report = sim.using(final=[book]).crash_everywhere(collect)
    assert report.ok, report
    assert report.effects(book) == {1}


def test_what_nobody_calls_is_not_tried(sim: Sim) -> None:
    """The report names the update that never came, and how to call it."""
    sim.will_send(enough, True)
    report = sim.using(final=[book], unreached=[book]).crash_everywhere(collect)
    assert not report.ok
    assert "the update add, which never came" in str(report)
    assert "sim.will_call(update, value)" in str(report)
