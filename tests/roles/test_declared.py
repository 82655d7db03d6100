"""What code declares, and what a sender gets from it: a wrong signal is refused where it is sent, and nothing is
written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, InvalidInput, Signal
from holdfast.errors import UnknownRun, WrongState
from holdfast.workflow.declaration import TakenSignals, signals_of
from tests.roles.declarations import BY_NAME, Desk, Payment, chooses, forwards, order, paid, rings
from tests.store.conftest import run_sql


async def sent(hf: Holdfast, run_id: str) -> list[str]:
    return [row.name for row in await hf.store.reads.signals(run_id)]


@pytest.fixture
def outside(store_url: str) -> Holdfast:
    """A process that hosts no role, like the command line."""
    return Holdfast(store_url, roles=())


async def test_workflows_are_declared_when_a_node_starts(hf: Holdfast) -> None:
    """The rows have the schemas of their inputs and results, and where they come from."""
    (row,) = [row for row in await hf.store.workflows.workflows(1000) if row.name == order.name]
    assert (row.version, row.code, row.origin) == ("1", f"{order.name}@1", "holdfast")
    given = json.loads(row.input)
    assert given["$defs"]["order"]["properties"] == {"wanted": {"type": "integer"}}
    assert json.loads(row.result) == {"type": "integer"}
    taken = TakenSignals.read(row)
    assert taken.named == ["paid-declared"]
    assert taken.signals["paid-declared"]["$defs"]["Payment"]["required"] == ["cents"]


async def test_a_signal_that_fits_is_taken(hf: Holdfast, outside: Holdfast) -> None:
    """It is sent by name and value, from a process with the code and from one without."""
    run = await hf.start(order, 10)
    await paid.send(run.id, Payment(4))
    async with outside:
        await outside.send_signal(run.id, "paid-declared", b'{"cents": 6}', None)
    assert await run.result(60) == 10


@pytest.mark.parametrize(
    ("name", "payload", "error", "said"),
    [
        ("paid-declared", b"null", InvalidInput, "expected `object`, got `null`"),
        ("paid-declared", b'{"cents": "9"}', InvalidInput, "cents: expected `int`, got `str`"),
        ("paid-declared", b"{}", InvalidInput, "missing `cents`"),
        ("paid-declared", b"{", InvalidInput, "the value is not JSON"),
        ("$cancel", b"null", InvalidInput, "do not begin with $"),
        ("", b"null", InvalidInput, "printable characters"),
    ],
)
async def test_a_wrong_signal_is_refused_where_it_is_sent(
    hf: Holdfast, outside: Holdfast, name: str, payload: bytes, error: type[Exception], said: str
) -> None:
    """The error names the workflow and a command that would be right. Nothing is written, and the run goes on."""
    run = await hf.start(order, 5)
    async with outside:
        with pytest.raises(error) as refused:
            await outside.send_signal(run.id, name, payload, "k")
        assert said in str(refused.value)
        if "$" not in said and "printable" not in said and "not JSON" not in said:
            assert order.name in str(refused.value)
            assert f"`holdfast signal {run.id} paid-declared --data '{{\"cents\": 0}}'`" in str(refused.value)
        assert await sent(hf, run.id) == []
        await outside.send_signal(run.id, "paid-declared", b'{"cents": 5}', "k")
    assert await run.result(60) == 5


async def test_a_process_with_other_code_gets_the_error_too(hf: Holdfast, outside: Holdfast) -> None:
    """Its own type is not the one that the run's workflow reads."""
    run = await hf.start(order, 5)
    async with outside:
        theirs: Signal[str] = Signal("paid-declared", str)
        with pytest.raises(InvalidInput, match="expected `object`, got `str`"):
            await theirs.send(run.id, "five")
    assert await sent(hf, run.id) == []


async def test_signals_are_found_wherever_code_names_them(hf: Holdfast) -> None:
    """They are found through helpers, inner functions and classes. If a name is only known at run time, any signal of
    the application is taken."""
    assert signals_of(rings).named == ["rung"]
    run = await hf.start(rings)
    with pytest.raises(InvalidInput, match="expected `str`, got `int`"):
        await hf.send_signal(run.id, "rung", b"1", None)
    await Desk.rung.send(run.id, "twice")
    assert await run.result(60) == "twice"
    chosen = await hf.start(chooses, "left")
    with pytest.raises(InvalidInput, match="expected `int`, got `str`"):
        await hf.send_signal(chosen.id, "left-by-name", b'"x"', None)
    await BY_NAME["left"].send(chosen.id, 7)
    assert await chosen.result(60) == 7


async def test_a_signal_between_runs_arrives(hf: Holdfast) -> None:
    """What a workflow sends cannot be refused where it is sent, because it would not be in a replay. The run that gets
    it checks it."""
    run = await hf.start(order, 3)
    await (await hf.start(forwards, run.id)).result(60)
    assert await run.result(60) == 3


async def test_unknown_and_ended_runs_keep_their_errors(hf: Holdfast) -> None:
    """This holds whatever is sent."""
    with pytest.raises(UnknownRun):
        await hf.send_signal("no-such-run", "payed", b"1", None)
    run = await hf.start(order, 0)
    await run.result(60)
    with pytest.raises(WrongState, match="has ended"):
        await hf.send_signal(run.id, "payed", b"1", None)


async def test_in_a_store_where_nobody_declared_anything_all_is_taken(
    hf: Holdfast, outside: Holdfast, store_url: str
) -> None:
    """The rows are as an older version made them."""
    run = await hf.start(order, 5)
    await hf.close()
    run_sql(store_url, "DELETE FROM workflows")
    async with outside:
        await outside.send_signal(run.id, "whatever", b"1", None)
        assert [row.name for row in await outside.store.reads.signals(run.id)] == ["whatever"]


async def test_what_is_declared_later_is_taken_at_once(hf: Holdfast) -> None:
    """A notebook declares while its node is running."""
    names: dict[str, object] = {"__name__": "__main__"}
    cell = """
from holdfast import Signal, workflow
late = Signal("late", int)

@workflow
async def waits_late() -> int:
    return await late.wait()
"""
    exec(compile(cell, "/tmp/ipykernel_1/1.py", "exec"), names)
    run = await hf.start(names["waits_late"])  # type: ignore[arg-type,var-annotated]  # made by the cell
    with pytest.raises(InvalidInput, match="expected `int`"):
        await hf.send_signal(run.id, "late", b'"x"', None)
    edited = cell.replace('Signal("late", int)', 'Signal("later", str)').replace("-> int", "-> str")
    exec(compile(edited, "/tmp/ipykernel_1/2.py", "exec"), names)
    with pytest.raises(InvalidInput, match="expected `str`"):
        await hf.send_signal(run.id, "later", b"1", None)
    await hf.send_signal(run.id, "later", b'"x"', None)


async def test_why_suggests_what_can_be_sent(hf: Holdfast) -> None:
    """The command that `why` prints has a value that fits."""
    run = await hf.start(order, 5)
    while not await run.steps():
        await hf.environment.sleep(0.01)
    assert f"`holdfast signal {run.id} paid-declared --data '{{\"cents\": 0}}'`" in await run.why()


def test_a_name_that_no_code_declares_is_refused(store_url: str, tmp_path: Path) -> None:
    """The error names the signal that was probably meant, and how to send it. Nothing is written. A signal that is
    declared while the process runs is known from then on. (This is a program of its own, because code among these tests
    makes signals up.)"""
    program = tmp_path / "program.py"
    program.write_text(
        """
import asyncio, sys
from holdfast import Holdfast, Signal, workflow
from holdfast.errors import UnknownSignal

paid = Signal("paid", int)
other = Signal("other", str)

@workflow
async def order() -> int:
    return await paid.wait()

@workflow
async def silent() -> None:
    await asyncio.sleep(60)

async def main() -> None:
    async with Holdfast(sys.argv[1]) as hf:
        run = await hf.start(order.using(id="r"))
        try:
            await hf.send_signal("r", "payed", b"9", None)
        except UnknownSignal as error:
            print(error)
        print(len(await hf.store.reads.signals("r")))
        exec("from holdfast import Signal; kept = Signal('late', int)", globals())
        await hf.send_signal("r", "late", b"9", None)
        await paid.send("r", 9)
        assert await run.result(60) == 9
        await hf.start(silent.using(id="s"))
        await hf.send_signal("s", "other", b'"of the same application"', None)

asyncio.run(main())
"""
    )
    done = subprocess.run(
        [sys.executable, str(program), store_url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said, count = done.stdout.splitlines()
    assert said == (
        "run 'r' takes no signal 'payed': its workflow program.order takes paid: try `holdfast signal r paid --data 0`"
    )
    assert count == "0"


def test_names_that_are_made_up_are_all_taken(store_url: str, tmp_path: Path) -> None:
    """In an application whose code makes signals at run time, it is unknown which there are. Those that are known are
    still checked."""
    program = tmp_path / "program.py"
    program.write_text(
        """
import asyncio, sys
from holdfast import Holdfast, Signal, workflow

known = Signal("known", int)

@workflow
async def collects(names: list[str]) -> int:
    return sum([await Signal(f"from-{name}", int).wait() for name in names])

async def main() -> None:
    async with Holdfast(sys.argv[1]) as hf:
        run = await hf.start(collects, ["ada", "bob"])
        await hf.send_signal(run.id, "from-ada", b"1", None)
        await hf.send_signal(run.id, "from-bob", b"2", None)
        assert await run.result(60) == 3
        run = await hf.start(collects, ["x"])
        try:
            await hf.send_signal(run.id, "known", b'"x"', None)
        except Exception as error:
            print(type(error).__name__)

asyncio.run(main())
"""
    )
    done = subprocess.run(
        [sys.executable, str(program), store_url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "InvalidInput\n"), done.stderr


def test_a_name_that_is_written_inside_a_function_is_known(tmp_path: Path) -> None:
    """A web application may write `Signal("paid", int)` where it sends it."""
    (tmp_path / "web.py").write_text(
        """
from holdfast import Signal, workflow
from holdfast.workflow.declaration import signals_of

async def place(run_id: str) -> None:
    await Signal("placed", int).send(run_id, 1)

@workflow
async def flow() -> None: ...

taken = signals_of(flow)
print(sorted(taken.signals), taken.open)
"""
    )
    done = subprocess.run(
        [sys.executable, "web.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['placed'] False\n"


def test_objects_that_stand_for_others_are_not_asked_anything(tmp_path: Path) -> None:
    """`request` of a web framework raises whenever it is touched outside a request."""
    (tmp_path / "web.py").write_text(
        """
from holdfast import Signal, workflow
from holdfast.workflow.declaration import signals_of

class Proxy:
    def __getattribute__(self, name):
        raise RuntimeError("working outside of a request")
    __class__ = property(__getattribute__)

request = Proxy()
paid = Signal("paid", int)

@workflow
async def flow() -> None:
    request, [request]
    await paid.wait()

print(signals_of(flow).named)
"""
    )
    done = subprocess.run(
        [sys.executable, "web.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "['paid']\n", done.stderr


def test_two_declarations_of_one_name_are_distinguished_by_the_workflow(tmp_path: Path) -> None:
    """Each workflow takes the signal that its code names. One that names neither takes either."""
    (tmp_path / "one.py").write_text('from holdfast import Signal\npaid = Signal("paid", int)\n')
    (tmp_path / "two.py").write_text('from holdfast import Signal\npaid = Signal("paid", str)\n')
    (tmp_path / "flows.py").write_text(
        """
import one, two
from holdfast import workflow
from holdfast.workflow.declaration import signals_of

@workflow
async def first() -> None:
    await one.paid.wait()

@workflow
async def second() -> None:
    await two.paid.wait()

@workflow
async def neither() -> None: ...

print(*[signals_of(flow).signals["paid"] for flow in (first, second, neither)])
"""
    )
    done = subprocess.run(
        [sys.executable, "flows.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "{'type': 'integer'} {'type': 'string'} {}\n"
