"""Code that has changed under open runs: it reads all of what is recorded, or the run is held, and `check` says so
before."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.commands.check import _fit
from holdfast.model import AlertKind, NewSignal, RunState
from holdfast.run import Run
from holdfast.scheduler.fit import Misfit
from holdfast.workflow import registry
from tests.roles.conftest import FAST

APP = """
import asyncio
from dataclasses import dataclass, field

from holdfast import Retry, Signal, Stop, continue_as_new, here, saga, step, undo_with, workflow


@dataclass
class Parcel:
    address: str
    weight: int = 1


@dataclass
class Receipt:
    id: str
    cents: int


paid = Signal("paid", int)
packed = Signal("packed", Parcel)


@dataclass
class Card:
    token: str


@step
async def verify(card: Card) -> None: ...


@step
async def charge(card: str, cents: int) -> Receipt:
    ledger.append(f"charge {card} {cents}")
    return Receipt("r1", cents)


@charge.undo
async def refund(done: Receipt | None, card: str, cents: int) -> None:
    ledger.append(f"refund {card} {cents} {done.id}")


@step
async def ship(parcel: Parcel, note: str) -> str:
    ledger.append(f"ship {parcel.address} {parcel.weight} {note}")
    return f"{parcel.address} {parcel.weight} {note}"


@step(needs=["slow"])
async def label(parcel: Parcel, size: int) -> str:
    ledger.append(f"label {parcel.address} {parcel.weight} {size}")
    return f"{parcel.address} {parcel.weight} {size}"


@step(retry=Retry(attempts=3, delay=0.01))
async def copies(pages: int) -> int:
    done = here.load(int) or 0
    if done == 0:
        await here.save(2)
        stopped.set()
        await asyncio.sleep(3600)
    return pages - done


@workflow
async def order(parcel: Parcel, note: str = "gift") -> str:
    await verify(Card("tok"))
    receipt = await charge("tok", 300)
    cents = await paid.wait()
    shipped = await ship(parcel, note)
    return f"{receipt.id} {receipt.cents} {cents} {shipped}"


@workflow
async def fails(parcel: Parcel) -> str:
    await charge("tok", 300)
    cents = await paid.wait()
    raise Stop("no")


@workflow
async def saved(parcel: Parcel) -> str:
    try:
        async with saga():
            await charge("tok", 300)
            await paid.wait()
            raise ValueError("no")
    except ValueError:
        return "saved"


@workflow
async def child(parcel: Parcel, size: int = 2) -> Receipt:
    await paid.wait()
    return Receipt(parcel.address, size)


@workflow
async def parent(parcel: Parcel) -> str:
    got = await child.using(id="the-child")(parcel)
    return f"{got.id} {got.cents}"


@workflow
async def labels(parcel: Parcel) -> str:
    return await label(parcel, 7)


@workflow
async def collects(parcel: Parcel) -> str:
    got = await packed.wait()
    cents = await paid.wait()
    return f"{got.address} {got.weight} {cents}"


@workflow
async def goes_round(parcel: Parcel, round: int = 1) -> str:
    cents = await paid.wait()
    if round == 1:
        continue_as_new(parcel, 2)
    return f"{parcel.address} {cents}"


@workflow
async def copying(parcel: Parcel) -> int:
    return await copies(10)
"""


class App:
    """The program as it is deployed now."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger: list[str] = []
        self.stopped = asyncio.Event()
        self.module: Any = None
        self._monkeypatch = monkeypatch
        self.deploy()

    def deploy(self, *changes: tuple[str, str]) -> Any:
        """Load the program, changed in these places, instead of the one before."""
        source = APP
        for old, new in changes:
            assert old in source, old
            source = source.replace(old, new)
        for known in (registry.steps, registry.workflows):
            for name in [
                name for name in known if (name if isinstance(name, str) else name[0]).startswith("app.")
            ]:
                del known[name]  # type: ignore[arg-type]  # of whichever it is
        module: Any = ModuleType("app")
        module.__file__ = "app.py"
        module.ledger, module.stopped = self.ledger, self.stopped
        self._monkeypatch.setitem(sys.modules, "app", module)
        exec(compile(source, "app.py", "exec"), module.__dict__)
        self.module = module
        return module


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    steps, workflows = dict(registry.steps), dict(registry.workflows)
    yield App(monkeypatch)
    for known, before in ((registry.steps, steps), (registry.workflows, workflows)):
        known.clear()
        known.update(before)  # type: ignore[arg-type]  # each with its own


def opened(url: str, **settings: Any) -> Holdfast:
    return Holdfast(url, config=FAST, **settings)


async def comes_to(true: Callable[[], Any], limit_s: float = 60.0) -> None:
    """Wait until something about a run is true."""
    async with asyncio.timeout(limit_s):
        while not await true():  # noqa: ASYNC110  a condition in the store has no event
            await asyncio.sleep(0.01)


async def is_in(run: Run[Any], state: RunState) -> None:
    async def now() -> bool:
        return await run.state() is state

    await comes_to(now)


async def waits_for(run: Run[Any], name: str) -> None:
    async def now() -> bool:
        return any(s.name == name and s.state in ("waiting", "ready") for s in await run.steps())

    await comes_to(now)


async def woken(run: Run[Any]) -> None:
    """Let a scheduler look at the run. A run that waits for a signal is in no scheduler's memory."""
    if await run.state() is RunState.RUNNING:
        await run.hold()
        await run.release()


async def checked(url: str, run_id: str) -> list[Misfit]:
    """Return what `holdfast check` finds in this run with the code that is deployed."""
    async with opened(url, roles=()) as hf:
        lanes = {lane.id: lane for lane in await hf.store.agents.lanes()}
        found = await _fit(hf, run_id, lanes)
        assert found is not None
        return found[1].misfits


async def send(hf: Holdfast, run_id: str, name: str, payload: bytes, key: str | None = None) -> None:
    """Send a signal without the checks that senders get: as another workflow does, or a program before the code was
    declared."""
    await hf.store.operators.send_signal(NewSignal(run_id, name, key or hf.environment.new_id(), payload))


async def held_and_back(
    app: App, url: str, run_id: str, changes: list[tuple[str, str]], *, kind: str, recorded: str, asked: str
) -> None:
    """Deploy changed code: `check` finds it, the run is held, `why` shows both sides, and nothing is executed. Then
    deploy the old code."""
    app.deploy(*changes)
    done = list(app.ledger)
    misfit = next(one for one in await checked(url, run_id) if not one.is_note)
    assert misfit.kind == kind
    assert recorded in str(misfit.recorded)
    assert asked in str(misfit.asked)
    async with opened(url) as hf:
        run: Run[Any] = hf.run(run_id)
        await woken(run)
        await is_in(run, RunState.HELD)
        why = await run.why()
        assert recorded in why, why
        assert asked in why, why
        assert f"`holdfast release {run_id}`" in why

        async def is_alerted() -> bool:
            return any(alert.kind == AlertKind.RUN_HELD for alert in await hf.store.alerts.alerts(10))

        await comes_to(is_alerted)
        assert app.ledger == done
        await run.release()  # with the same code, it is held again
        await is_in(run, RunState.HELD)
        assert app.ledger == done
    app.deploy()
    assert [one for one in await checked(url, run_id) if not one.is_note] == []
    async with opened(url) as hf:
        await hf.run(run_id).release()


CHANGED = {
    "a new required parameter": (
        [('note: str = "gift") -> str', "note: str, colour: int) -> str")],
        "input", '{"parcel":{"address":"Oslo","weight":2},"note":"gift"}', "order(): missing `colour`",
    ),
    "a removed parameter": (
        [(', note: str = "gift") -> str', ") -> str"), ("ship(parcel, note)", 'ship(parcel, "gift")')],
        "input", '"note":"gift"', 'note: "gift" is recorded, and nothing in this code takes it',
    ),
    "a renamed parameter with a default": (
        [('note: str = "gift") -> str', 'memo: str = "gift") -> str'), ("ship(parcel, note)", "ship(parcel, memo)")],
        "input", '"note":"gift"', 'note: "gift" is recorded, and nothing in this code takes it',
    ),
    "a field renamed with a default in an argument": (
        [("    weight: int = 1", "    kilos: int = 1"), ("parcel.weight", "parcel.kilos")],
        "input", '"weight":2', "order(): parcel.weight: 2 is recorded, and nothing in this code takes it",
    ),
    "another type of a result": (
        [("    cents: int\n", "    cents: str\n")],
        "result", '{"id":"r1","cents":300}', "charge() result: cents: expected `str`, got `int`",
    ),
    "a field of a result renamed with a default": (
        [("    cents: int\n", "    amount: int = 0\n"), ("receipt.cents", "receipt.amount"), ('Receipt("r1", cents)', 'Receipt("r1", cents)')],
        "result", '{"id":"r1","cents":300}', "cents: 300 is recorded, and nothing in this code takes it",
    ),
    "a signal renamed": (
        [('Signal("paid", int)', 'Signal("payment", int)')],
        "signal", "signal paid", "signal payment",
    ),
    "a bug": (
        [('    cents = await paid.wait()\n    shipped', '    cents = await paid.wait() if {}["gift"] else 0\n    shipped')],
        "fails", "", "KeyError: 'gift'",
    ),
    "another value for a step parameter that was added": (
        [("charge(card: str, cents: int)", "charge(card: str, cents: int, currency: str = 'EUR')"),
         ("card: str, cents: int) -> None", "card: str, cents: int, currency: str = 'EUR') -> None"),
         ('charge("tok", 300)', 'charge("tok", 300, "NOK")')],
        "drift", '{"card":"tok","cents":300}', '{"card":"tok","cents":300,"currency":"NOK"}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
async def test_what_the_code_cannot_read_whole_holds_the_run(app: App, store_url: str, case: str) -> None:
    """The code cannot read the input, a result or a signal, at any depth, or it fails at the place where the run is.
    Nothing is executed, failed or undone. With the old code, the released run goes on and succeeds."""
    changes, kind, recorded, asked = CHANGED[case]
    async with opened(store_url) as hf:
        await hf.start(app.module.order.using(id="o"), app.module.Parcel("Oslo", 2))
        await waits_for(hf.run("o"), "paid")
    await held_and_back(app, store_url, "o", changes, kind=kind, recorded=recorded, asked=asked)
    async with opened(store_url) as hf:
        await send(hf, "o", "paid", b"5")
        assert await hf.run("o").result(60) == "r1 300 5 Oslo 2 gift"
    assert app.ledger == ["charge tok 300", "ship Oslo 2 gift"]


FITTING = {
    "the same code": [],
    "a workflow parameter added with a default": [('note: str = "gift") -> str', 'note: str = "gift", colour: int = 0) -> str')],
    "a step parameter added with a default": [
        ("charge(card: str, cents: int)", "charge(card: str, cents: int, currency: str = 'EUR')"),
        ("card: str, cents: int) -> None", "card: str, cents: int, currency: str = 'EUR') -> None"),
    ],
    "step parameters in another order": [
        ("charge(card: str, cents: int)", "charge(cents: int, card: str)"),
        ("card: str, cents: int) -> None", "cents: int, card: str) -> None"),
        ('charge("tok", 300)', 'charge(card="tok", cents=300)'),
    ],
    "a field added with a default": [("    weight: int = 1", "    weight: int = 1\n    colour: str = 'red'")],
    "a field added to what the workflow makes": [
        ("class Card:\n    token: str", "class Card:\n    token: str\n    country: str = 'NO'")
    ],
    "a field of a result added with a default": [("    cents: int\n", "    cents: int\n    tax: int = 0\n")],
    "a wider type": [("    cents: int\n", "    cents: int | str | None\n"), ('Signal("paid", int)', 'Signal("paid", int | str)')],
    "another default": [('note: str = "gift") -> str', 'note: str = "none") -> str')],
}  # fmt: skip


@pytest.mark.parametrize("case", FITTING)
async def test_defaults_fill_what_was_not_recorded(app: App, store_url: str, case: str) -> None:
    """Only what was recorded is compared, and the code's defaults fill the rest. This is no drift, and the recorded
    values count."""
    async with opened(store_url) as hf:
        await hf.start(app.module.order.using(id="o"), app.module.Parcel("Oslo", 2))
        await waits_for(hf.run("o"), "paid")
    app.deploy(*FITTING[case])
    assert await checked(store_url, "o") == []
    async with opened(store_url) as hf:
        await send(hf, "o", "paid", b"5")
        assert await hf.run("o").result(60) == "r1 300 5 Oslo 2 gift"
    assert app.ledger == ["charge tok 300", "ship Oslo 2 gift"]


async def test_a_run_that_nobody_began_is_held_too(app: App, store_url: str) -> None:
    """A client with other code started it than the scheduler has that takes it up."""
    async with opened(store_url, roles=()) as hf:
        await hf.start(app.module.order.using(id="o"), app.module.Parcel("Oslo", 2))
    changes = [
        ('note: str = "gift") -> str', 'memo: str = "gift") -> str'),
        ("ship(parcel, note)", "ship(parcel, memo)"),
    ]
    await held_and_back(app, store_url, "o", changes, kind="input", recorded='"note":"gift"', asked="note")
    async with opened(store_url) as hf:
        await send(hf, "o", "paid", b"5")
        assert await hf.run("o").result(60) == "r1 300 5 Oslo 2 gift"


async def test_a_consumed_signal_that_the_code_cannot_read_holds_the_run(app: App, store_url: str) -> None:
    """`why` shows both what the wait took and the type that refuses it. A wait that was renamed afterwards is found,
    too."""
    async with opened(store_url) as hf:
        await hf.start(app.module.collects.using(id="c"), app.module.Parcel("Oslo", 2))
        await send(hf, "c", "packed", b'{"address":"Bergen","weight":3,"from":"a stranger"}')
        await waits_for(hf.run("c"), "paid")
    changed = [("    weight: int = 1", "    weight: str = ''"), ("parcel.weight", "parcel.weight")]
    app.deploy(*changed)
    kinds = {one.kind: one for one in await checked(store_url, "c")}
    assert set(kinds) == {
        "input"
    }  # the run's own input has a Parcel, too: `check` reports what it finds first
    app.deploy(
        ('Signal("packed", Parcel)', 'Signal("packed", Receipt)'),
        ("{got.address} {got.weight}", "{got.id} {got.cents}"),
    )
    (one,) = await checked(store_url, "c")
    assert (one.kind, one.step, one.recorded) == ("signal", "packed", '{"address":"Bergen","weight":3}')
    await held_and_back(
        app, store_url, "c", [('Signal("packed", Parcel)', 'Signal("wrapped", Parcel)')],
        kind="signal", recorded="signal packed", asked="signal wrapped",
    )  # fmt: skip
    await held_and_back(
        app, store_url, "c",
        [('Signal("packed", Parcel)', 'Signal("packed", Receipt)'), ("{got.address} {got.weight}", "{got.id} {got.cents}")],
        kind="signal", recorded='{"address":"Bergen","weight":3}', asked="signal packed: missing `id`",
    )  # fmt: skip
    async with opened(store_url) as hf:
        await send(hf, "c", "paid", b"5")
        assert await hf.run("c").result(60) == "Bergen 3 5"


@pytest.mark.parametrize("workflow", ["fails", "saved"])
async def test_an_undo_that_cannot_read_its_input_holds_the_run(
    app: App, store_url: str, workflow: str
) -> None:
    """Both when the run undoes itself and when a saga does, the undo is not called with only a part of what was
    recorded."""
    async with opened(store_url) as hf:
        await hf.start(getattr(app.module, workflow).using(id="u"), app.module.Parcel("Oslo"))
        await waits_for(hf.run("u"), "paid")
        await hf.run("u").hold()
        await send(hf, "u", "paid", b"5")
        await hf.run("u").release("to be taken up by the changed code")
        await hf.close()
    changes = [("async def refund(done: Receipt | None, card: str, cents: int)", "async def refund(done: str | None, card: str, cents: int)"),
               ("{done.id}", "{done}")]  # fmt: skip
    await held_and_back(
        app, store_url, "u", changes, kind="input",
        recorded='{"$done":{"id":"r1","cents":300},"$key":"u::charge"', asked="expected `str | null`, got `object`",
    )  # fmt: skip
    async with opened(store_url) as hf:
        await is_in(hf.run("u"), RunState.UNDONE if workflow == "fails" else RunState.SUCCEEDED)
    assert app.ledger == ["charge tok 300", "refund tok 300 r1"]


async def test_a_step_that_its_agent_cannot_read_holds_the_run(app: App, store_url: str) -> None:
    """In a rolling deploy the run's scheduler still has the old code. The agent hands the step back, and no attempt is
    spent."""
    async with opened(store_url) as hf:
        await hf.start(app.module.labels.using(id="l"), app.module.Parcel("Oslo", 2))
        await waits_for(hf.run("l"), "app.label")
    app.deploy(("label(parcel: Parcel, size: int)", "label(parcel: Parcel, height: int = 0)"), ("{size}", "{height}"),
               ("label(parcel, 7)", "asyncio.sleep(3600)"), ("async def labels(parcel: Parcel) -> str", "async def labels(parcel: Parcel) -> None"))  # fmt: skip
    (misfit,) = [one for one in await checked(store_url, "l") if not one.is_note]
    assert (misfit.kind, misfit.step) == ("input", "label")
    async with opened(store_url, roles=("agent", "supervisor"), labels=("slow",)) as hf:
        run: Run[Any] = hf.run("l")
        async with opened(store_url, roles=("scheduler",)):
            await is_in(run, RunState.HELD)
        why = await run.why()
        assert '{"parcel":{"address":"Oslo","weight":2},"size":7}' in why
        assert "label(): size: 7 is recorded, and nothing in this code takes it" in why
        (step,) = [row for row in await run.steps() if row.key == "label"]
        assert (step.state, step.spent, step.error) == ("ready", 0, None)
        assert app.ledger == []
    app.deploy()
    async with opened(store_url, labels=("slow",)) as hf:
        await hf.run("l").release()
        assert await hf.run("l").result(60) == "Oslo 2 7"
    assert app.ledger == ["label Oslo 2 7"]


async def test_a_childs_input_and_result_are_read_whole(app: App, store_url: str) -> None:
    """A new parameter of the child that has a default is no drift. A result that the parent cannot read holds the
    parent."""
    async with opened(store_url) as hf:
        await hf.start(app.module.parent.using(id="p"), app.module.Parcel("Oslo", 2))
        await waits_for(hf.run("p"), "app.child")
        await waits_for(hf.run("the-child"), "paid")
    app.deploy(
        ("child(parcel: Parcel, size: int = 2)", "child(parcel: Parcel, size: int = 2, colour: str = 'red')")
    )
    assert await checked(store_url, "p") == []
    async with opened(store_url) as hf:
        await send(hf, "the-child", "paid", b"1")
        await is_in(hf.run("the-child"), RunState.SUCCEEDED)
        assert await hf.run("p").result(60) == "Oslo 2"
        again = await hf.start(app.module.parent.using(id="p2"), app.module.Parcel("Oslo", 2))
        assert again.id == "p2"


async def test_the_input_of_the_next_generation_is_read_whole(app: App, store_url: str) -> None:
    """What `continue_as_new` recorded is an input like the first."""
    async with opened(store_url) as hf:
        await hf.start(app.module.goes_round.using(id="g"), app.module.Parcel("Oslo", 2))
        await send(hf, "g", "paid", b"1")

        async def second() -> bool:
            return (await hf.run("g").info()).generation == 2

        await comes_to(second)
        await waits_for(hf.run("g"), "paid")
    changes = [
        ("goes_round(parcel: Parcel, round: int = 1)", "goes_round(parcel: Parcel, turn: int = 1)"),
        ("if round == 1", "if turn == 1"),
    ]
    await held_and_back(
        app, store_url, "g", changes, kind="input", recorded='"round":2', asked="round: 2 is recorded"
    )
    async with opened(store_url) as hf:
        await send(hf, "g", "paid", b"7")
        assert await hf.run("g").result(60) == "Oslo 7"


async def test_a_checkpoint_that_the_code_cannot_read_holds_the_run(app: App, store_url: str) -> None:
    """The step is handed back with its checkpoint, and no attempt is spent. The old code goes on from it."""
    async with opened(store_url) as hf:
        await hf.start(app.module.copying.using(id="k"), app.module.Parcel("Oslo"))
        await app.stopped.wait()
        app.deploy(("here.load(int) or 0", "len(here.load(list[int]) or [])"))
    async with opened(store_url) as hf:
        await is_in(hf.run("k"), RunState.HELD)
        why = await hf.run("k").why()
        assert "the checkpoint of step 'copies' was recorded as 2" in why
        assert "expected `array`, got `int`" in why
    app.deploy()
    async with opened(store_url) as hf:
        await hf.run("k").release()
        assert await hf.run("k").result(60) == 8
        (step,) = [row for row in await hf.run("k").steps() if row.key == "copies"]
        assert step.spent == 1


@asynccontextmanager
async def held_by_a_deploy(app: App, store_url: str) -> AsyncIterator[Holdfast]:
    """Deploy code that does not fit run `o`, which has done something and is held now."""
    async with opened(store_url) as hf:
        await hf.start(app.module.order.using(id="o"), app.module.Parcel("Oslo", 2))
        await waits_for(hf.run("o"), "paid")
    app.deploy(('note: str = "gift") -> str', "note: str, colour: int) -> str"))
    async with opened(store_url) as hf:
        await woken(hf.run("o"))
        await is_in(hf.run("o"), RunState.HELD)
        yield hf


async def test_a_held_run_can_be_cancelled_without_its_code(app: App, store_url: str) -> None:
    """Its rows say what to undo. The code that does not fit is not needed."""
    async with held_by_a_deploy(app, store_url) as hf:
        await hf.run("o").cancel()
        await is_in(hf.run("o"), RunState.CANCELLED)
        assert [(name, broken) for name, _, broken in await hf.store.reads.doctor() if broken] == []
    assert app.ledger == ["charge tok 300", "refund tok 300 r1"]


async def test_a_node_keeps_a_run_until_its_cancel_without_code_is_written(
    app: App, store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The node compares what it has with the store before it writes the cancel. The run is not in memory then, and the
    node knows of it all the same."""
    async with held_by_a_deploy(app, store_url) as hf:

        class Doubt(logging.Filter):
            """Makes the node compare what it has with the store at the moment in which it cancels the run."""

            def filter(self, record: logging.LogRecord) -> bool:
                if "is cancelled without its code" in record.getMessage():
                    hf.node.writer.doubt()
                return True

        scheduler_log, doubt = logging.getLogger("holdfast.scheduler"), Doubt()
        scheduler_log.addFilter(doubt)
        try:
            await hf.run("o").cancel()
            await is_in(hf.run("o"), RunState.CANCELLED)
        finally:
            scheduler_log.removeFilter(doubt)
    said = [record.getMessage() for record in caplog.records]
    assert len([line for line in said if "is cancelled without its code" in line]) == 1
    assert not [line for line in said if "did not know of" in line]


async def test_a_client_whose_type_cannot_read_the_result_gets_an_error(app: App, store_url: str) -> None:
    """The error names the place in the type, what was recorded, and how to get it all the same."""
    async with opened(store_url) as hf:
        await hf.start(app.module.child.using(id="r"), app.module.Parcel("Oslo"))
        await send(hf, "r", "paid", b"1")
        assert (await hf.run("r", app.module.child).result(60)).id == "Oslo"
        app.deploy(
            ("    cents: int\n", "    amount: int = 0\n"),
            ("receipt.cents", "receipt.amount"),
            ("got.cents", "got.amount"),
        )
        with pytest.raises(Exception, match=r"Unreadable|cannot read all of it") as caught:
            await hf.run("r", app.module.child).result(60)
        said = str(caught.value)
        assert 'the result of run r, which succeeded, was recorded as {"id":"Oslo","cents":2}' in said
        assert "child() result: cents: 2 is recorded, and nothing in this code takes it" in said
        assert "`hf.run('r').result()` gives it as plain JSON" in said
        assert await hf.run("r").result(60) == {"id": "Oslo", "cents": 2}


async def aside(hf: Holdfast, run_id: str) -> list[tuple[str, bytes, str | None]]:
    return [(row.name, row.payload, row.set_aside) for row in await hf.store.reads.signals(run_id)]


async def test_a_signal_that_does_not_fit_is_set_aside_and_reported(app: App, store_url: str) -> None:
    """The run goes on waiting. `why` names the signal and what is wrong with it, an alert is raised, and the next
    signal fits."""
    async with opened(store_url) as hf:
        run = await hf.start(app.module.order.using(id="o"), app.module.Parcel("Oslo", 2))
        await waits_for(run, "paid")
        await send(hf, "o", "paid", b'"a lot"', "first")
        await send(hf, "o", "unheard of", b"5", "second")

        async def is_alerted() -> bool:
            return any(alert.kind == AlertKind.SIGNAL_SET_ASIDE for alert in await hf.store.alerts.alerts(10))

        await comes_to(is_alerted)
        (alert,) = [one for one in await hf.store.alerts.alerts(10) if one.kind == AlertKind.SIGNAL_SET_ASIDE]
        assert alert.message.startswith(
            "run o of app.order set a signal 'paid' aside: signal paid: expected `int`, got `str`"
        )
        why = await run.why()
        assert "(key first) did not fit and was set aside (signal paid: expected `int`, got `str`)" in why
        assert "`holdfast signal o paid" in why
        assert await aside(hf, "o") == [
            ("paid", b'"a lot"', "signal paid: expected `int`, got `str`"),
            ("unheard of", b"5", None),
        ]
        await send(hf, "o", "paid", b"5")
        assert await run.result(60) == "r1 300 5 Oslo 2 gift"
        assert [(name, broken) for name, _, broken in await hf.store.reads.doctor() if broken] == []


async def test_what_was_set_aside_stays_so_whatever_the_code_reads_later(app: App, store_url: str) -> None:
    """A wait keeps the signal it took, and takes none that was set aside, although the changed code could read that
    one."""
    async with opened(store_url) as hf:
        await hf.start(app.module.collects.using(id="c"), app.module.Parcel("Oslo", 2))
        await send(hf, "c", "packed", b'"nothing"')
        await send(hf, "c", "paid", b'"early"')  # before its wait
        await send(hf, "c", "packed", b'{"address":"Bergen"}')

        async def refused() -> bool:
            return len([why for *_, why in await aside(hf, "c") if why]) == 2

        await comes_to(refused)
    app.deploy(
        ('Signal("packed", Parcel)', 'Signal("packed", Parcel | str)'),
        ('Signal("paid", int)', 'Signal("paid", int | str)'),
    )
    assert await checked(store_url, "c") == []
    async with opened(store_url) as hf:
        await send(hf, "c", "paid", b'"late"')
        assert await hf.run("c").result(60) == "Bergen 1 late"


async def test_check_reports_signals_that_would_be_set_aside(app: App, store_url: str) -> None:
    """They are no reason not to deploy, but whoever sent them should know."""
    async with opened(store_url, roles=()) as hf:
        await hf.start(app.module.collects.using(id="c"), app.module.Parcel("Oslo", 2))
        await send(hf, "c", "packed", b"1")
    (one,) = await checked(store_url, "c")
    assert one.is_note
    assert (
        one.message == "the signal 'packed' would be set aside: signal packed: expected `object`, got `int`"
    )
