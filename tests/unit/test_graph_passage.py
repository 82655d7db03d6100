"""The way a run took, drawn into the graph of its workflow."""

import gc
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Signal, Update, patched, saga, step, workflow
from holdfast.graph import Graph, Kind, Node, graph_of, to_mermaid, to_svg, to_text, with_run
from holdfast.graph.passage import Found, without_numbers
from holdfast.model import DEADLINE, UNDO_PREFIX, RunRow, RunState, StepKind, StepRow, StepState, undo_key
from tests.unit.recorder import Recorder
from tests.unit.test_graph import declared


@step
async def s0(x: str) -> bool:
    return True


@step
async def s1(x: str) -> bool:
    return True


@s1.undo
async def unmake(done: bool | None, x: str) -> None: ...


@workflow
async def night() -> None: ...


paid = Signal("paid", bool)
change = Update("change", bool, bool)
NAMES = {"s0": s0, "s1": s1, "paid": paid, "saga": saga, "change": change, "night": night, "patched": patched}


def run_of(source: str, *ends: str) -> Recorder:
    """Return a run of `source`, which has the workflow `flow`, after these steps succeeded."""
    run = Recorder(declared(textwrap.dedent(source), known=True, **NAMES)).begin()
    for key in ends:
        run.succeed(key, value=True)
    return run


def row_of_run(state: RunState = RunState.RUNNING) -> RunRow:
    fields: dict[str, Any] = dict.fromkeys(RunRow.__struct_fields__)
    return RunRow(**fields | {"id": "run-1", "state": state, "generation": 1})


def drawn(run: Recorder) -> Graph:
    return with_run(graph_of(run.workflow), row_of_run(), run.steps.values())


def shown(run: Recorder) -> str:
    return to_text(drawn(run)).partition("\n")[2]


def test_rows_are_found_by_their_exact_keys() -> None:
    """Calls of one step that every run comes by get one row each, by their numbers."""
    run = run_of("async def flow():\n    await s0('a')\n    await s0('b')\n    await s0('c')\n", "s0", "s0#2")
    assert shown(run) == "├─ ✓ s0  1.0 s\n├─ ✓ s0  1.0 s\n└─ ○ s0  ready\n"
    run = run_of("async def flow():\n    await s0('a')\n    await s0('b')\n")
    assert shown(run) == "├─ ○ s0  ready\n└─ · s0  not reached\n"


def test_two_tasks_with_one_helper_are_distinguished() -> None:
    """The number of a task is a part of the key."""
    source = """
        import asyncio
        async def work(x):
            await s0(x)
            await s1(x)
        async def flow():
            await asyncio.gather(work("a"), work("b"))
    """
    first, second = [
        node.passage for node in drawn(run_of(source, "work#2/s0")).nodes if node.name == s1.name
    ]
    assert first is None
    assert second is not None
    assert second.state == "ready"


def test_one_of_two_arms_is_doubtful_and_what_is_around_them_is_not() -> None:
    """Nobody knows which arm called the step; that one of them did is sure."""
    source = """
        async def flow():
            try:
                if await s1("a"):
                    await s0("b")
                else:
                    await s0("c")
            except ValueError:
                await s1("d")
    """
    nodes = drawn(run_of(source, "s1")).nodes
    reached = {(node.kind, node.label) for node in nodes if node.passage is not None}
    assert reached == {
        (Kind.TRY, ""),
        (Kind.ARM, "try"),
        (Kind.CHOICE, ""),
        (Kind.STEP, "s0"),
        (Kind.STEP, "s1"),
    }
    shared = [node.passage for node in nodes if node.label == "s0"]
    assert [passage.one_of for passage in shared if passage] == [2, 2]


def test_calls_before_a_doubtful_one_are_sure() -> None:
    """A condition or something unknown makes doubtful what comes after it, and not what comes before."""
    source = """
        async def flow():
            await s0("a")
            await s0("b")
            if await s1("c"):
                await s0("d")
            await s0("e")
            await what_is_this()
            await s1("f")
    """
    graph = graph_of(declared(textwrap.dedent(source), known=True, **NAMES))
    assert [node.row for node in graph.nodes if node.kind is Kind.STEP] == ["s0", "s0#2", "s1", "", "", ""]


def test_a_call_in_a_loop_counts_its_rows() -> None:
    """A call that is alone in having its key has all rows of that key; the loop is reached."""
    source = "async def flow():\n    for n in range(3):\n        await s0('a')\n"
    nodes = drawn(run_of(source, "s0", "s0#2")).nodes
    loop, call = nodes
    assert loop.passage is not None
    assert call.passage is not None
    assert (call.passage.count, call.passage.state) == (3, "ready")


def test_explicit_keys_match_patterns() -> None:
    """What the source does not say of a key stands for any text; brackets and question marks mean themselves."""
    source = "async def flow():\n    for n in range(2):\n        await s0.using(key=f'[{n}]?')('a')\n"
    run = run_of(source, "s0:[0]?", "s0:[1]?")
    assert drawn(run).run is not None
    assert shown(run) == "└─   for n in range(2)\n   └─ ✓ s0  × 2 · 2.0 s\n"


def test_a_timer_of_a_signal_is_no_place_of_its_own() -> None:
    """The limit of a wait belongs to the wait, and makes the numbers of other limits doubtful."""
    source = """
        import asyncio
        async def flow():
            async with asyncio.timeout(5):
                await s0("a")
            await paid.wait(timeout=9)
            async with asyncio.timeout(7):
                await s1("b")
    """
    graph = graph_of(declared(textwrap.dedent(source), known=True, **NAMES))
    limits = [node for node in graph.nodes if node.kind is Kind.TIMEOUT]
    assert [node.row for node in limits] == ["", ""]
    run = drawn(run_of(source, "s0"))
    assert run.run is not None
    assert run.run.unknown == ()


def test_rows_that_the_source_does_not_have_are_listed() -> None:
    """Rows of other code are not drawn at a node."""
    run = run_of("async def flow():\n    await s0('a')\n    await s1('b')\n", "s0")
    other = graph_of(declared("async def flow():\n    await s1('b')\n", known=True, **NAMES))
    found = with_run(other, row_of_run(), run.steps.values())
    assert found.run is not None
    assert found.run.unknown == ("s0",)


def test_undone_steps_say_so() -> None:
    """The state of the undo stands at the step it undoes, and of several tries it is the last; the deadline of the run is no place."""
    run = run_of("async def flow():\n    await s1('a')\n", "s1")
    (made,) = run.steps.values()
    undo = msgspec.structs.replace(made, n=2, key=undo_key("s1", 2), name=unmake.name, kind=StepKind.CALL)
    limit = msgspec.structs.replace(made, n=3, key=DEADLINE, kind=StepKind.TIMER)
    for state, said in (("succeeded", "undone"), ("failed", "failed"), ("ready", "ready")):
        earlier = msgspec.structs.replace(undo, n=4, key=undo_key("s1"), state=StepState.CANCELLED)
        rows = [made, msgspec.structs.replace(undo, state=StepState(state)), earlier, limit]
        (node,) = with_run(graph_of(run.workflow), row_of_run(), rows).nodes
        assert node.passage is not None
        assert node.passage.undone == said


def test_a_child_without_anything_to_undo_is_not_shown_as_undone() -> None:
    """The undo of a child says whether there was anything."""
    run = run_of("async def flow():\n    await s1('a')\n", "s1")
    (made,) = run.steps.values()
    for output, said in ((b"true", "undone"), (b"false", "")):
        undo = msgspec.structs.replace(
            made, n=2, key=undo_key("s1"), kind=StepKind.CHILD, state=StepState.SUCCEEDED, output=output
        )
        (node,) = with_run(graph_of(run.workflow), row_of_run(), [made, undo]).nodes
        assert node.passage is not None
        assert node.passage.undone == said


def test_markers_scopes_and_started_runs_have_their_places() -> None:
    """A marker is no place. A scope is reached, and the steps of its calls are in it."""
    source = """
        async def answer(x: bool) -> bool:
            return await s1("a")
        async def flow():
            if patched("new"):
                await s0("b")
            async with change.serve(answer):
                await paid.wait()
                await night.start()
    """
    run = run_of(source, "s0")
    run.signal("paid", value=True)
    found = drawn(run)
    assert found.run is not None
    assert found.run.unknown == ()
    reached = {node.kind for node in found.nodes if node.passage is not None and node.passage.state}
    assert reached == {Kind.STEP, Kind.SERVE, Kind.WAIT, Kind.START}
    (scope,) = [row for row in run.steps.values() if row.kind is StepKind.SERVE]
    (call,) = [row for row in run.steps.values() if row.kind is StepKind.CALL]
    in_call = msgspec.structs.replace(call, key="change#2/s1", name=s1.name)
    (place,) = Found(found, [in_call]).rows
    assert next(node for node in found.nodes if node.id == place).name == s1.name
    assert scope.key == "change.serve"


def test_pages_belong_to_the_calls_of_their_map() -> None:
    """If a map is divided into pages, its calls show how many pages there are, and what became of them."""
    run = run_of("async def flow():\n    await s0.map([str(n) for n in range(5)], page=2)\n")
    pages = [row for row in run.steps.values() if row.kind is StepKind.CHILD]
    assert len(pages) == 3
    many, call = drawn(run).nodes
    assert many.passage is not None
    assert call.passage is not None
    assert call.passage.count == 3


def test_what_was_not_reached_is_dim_in_all_drawings() -> None:
    """A picture and a flowchart dim what the run did not reach, and a tree says it."""
    found = drawn(run_of("async def flow():\n    await s0('a')\n    await s1('b')\n"))
    first, second = found.nodes
    assert f"class {second.id} dim" in to_mermaid(found)
    assert "not reached" in to_text(found)
    groups = [
        part.get("class", "") for part in ET.fromstring(to_svg(found)).iter() if part.tag.endswith("}g")
    ]
    assert "node step is-idle" in groups
    assert "node step dim" in groups
    assert first.passage is not None


def test_numbers_are_taken_off_keys() -> None:
    """A number is only one at the end of a part; what an author wrote after a colon is left as it is."""
    assert without_numbers("branch#2/charge#3") == "branch/charge"
    assert without_numbers("branch#2/charge:a#1/b#2") == "branch/charge:a#1/b#2"
    assert without_numbers("charge") == "charge"


# --- drawn programs ---------------------------------------------------------------------------------------------------
# Each call says in its argument in which line it stands, behind the lines of the helpers' calls around it.

LEAVES = [
    'await s0(x + "/@")',
    'await s1(x + "/@")',
    'y = s0(x + "/@")\nawait s0(x + "/@")\nawait y',
    'await asyncio.gather(\n    s0(x + "/@"),\n    s1(x + "/@"),\n    s0(x + "/@"))',
    'await asyncio.gather(\n    both(x + "/@"),\n    both(x + "/@"))',
    'await asyncio.gather(\n    s0(x + "/@"),\n    asyncio.gather(\n        s0(x + "/@"), both(x + "/@")))',
    'await asyncio.gather(asyncio.gather(\n    s0(x + "/@"),\n    s0(x + "/@")),\n    s0(x + "/@"))',
    'await both(x + "/@")',
    't = asyncio.create_task(s0(x + "/@"))\nawait s0(x + "/@")\nawait t',
    't = asyncio.create_task(s0(x + "/@"))\nu = asyncio.create_task(s0(x + "/@"))\nawait asyncio.gather(u, t)',
    't = asyncio.create_task(both(x + "/@"), name="odd")\nawait both(x + "/@")\nawait t',
    'g = asyncio.gather(\n    s0(x + "/@"),\n    s0(x + "/@"))\nawait s0(x + "/@")\nawait g',
    'g = asyncio.gather(\n    s0(x + "/@"))\nt = asyncio.create_task(s0(x + "/@"))\nawait g\nawait t',
    's = asyncio.shield(s0(x + "/@"))\nawait s0(x + "/@")\nawait s',
    'await asyncio.gather(*[s0(x + "/@") for _ in range(2)])',
    'await asyncio.wait_for(s0(x + "/@"), 5)',
    'await unknown(s0(x + "/@"))',
    'await s0.using(key=f"k{x}@")(x + "/@")',
    "await asyncio.sleep(1)",
    "await asyncio.sleep(naps)",
    "if await paid.wait():\n    raise ValueError",
]
BLOCKS = [
    'if await s0(x + "/@"):\n{0}\nelse:\n{1}',
    "for _ in range(2):\n{0}",
    'while await s1(x + "/@"):\n{0}',
    'try:\n{0}\nexcept Exception:\n    await s0(x + "/@")\nfinally:\n    await s1(x + "/@")',
    "async with saga():\n{0}",
    "async with asyncio.timeout(50):\n{0}",
    'async with asyncio.TaskGroup() as tg:\n    tg.create_task(s0(x + "/@"))\n    tg.create_task(both(x + "/@"))\n{0}',
    'async with asyncio.TaskGroup() as tg:\n    for _ in range(2):\n        tg.create_task(s1(x + "/@"))',
]
HEAD = """
import asyncio
async def unknown(what):
    return await globals()["hidden"](what)
async def hidden(what):
    await what
    await s0("/hidden")
async def both(x):
    await s0(x + "/@")
    if x:
        await s1(x + "/@")
    return await s0(x + "/@")
"""


@st.composite
def programs(draw: st.DrawFn, depth: int = 2) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            block = draw(st.sampled_from(BLOCKS))
            inner = [textwrap.indent(draw(programs(depth - 1)), "    ") for _ in range(2)]
            parts.append(block.format(*inner))
        else:
            parts.append(draw(st.sampled_from(LEAVES)))
    return "\n".join(parts)


def with_lines(source: str) -> str:
    return "".join(
        line.replace("@", str(n)) for n, line in enumerate(source.splitlines(keepends=True), start=1)
    )


def said_by(row: StepRow) -> str:
    assert row.input is not None
    return str(msgspec.json.decode(row.input)["x"])


def expected(node: Node, nodes: dict[str, Node]) -> str:
    """Return what the call of this node says: the lines of the helpers around it, and its own."""
    lines = [str(node.line)]
    above = node
    while above.parent:
        above = nodes[above.parent]
        if above.kind is Kind.HELPER and above.label == "both":
            lines.insert(0, str(above.line))
    return "/" + "/".join(lines)


@pytest.fixture(scope="module")
def collected() -> Iterator[None]:
    """Collect what drawn runs left behind, while nobody minds that it was never awaited."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        gc.collect()


# A drawn run may end before it comes there.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.usefixtures("collected")
@settings(max_examples=400, deadline=None)
@given(programs(), st.data())
def test_no_row_is_drawn_at_a_wrong_place(program: str, data: st.DataObject) -> None:
    """Whatever the code and however the run went: a row that is drawn at one node was asked for there. A row that is
    drawn at several was asked for at one of them."""
    body = textwrap.indent(program, "    ")
    source = with_lines(f'{HEAD}async def flow(x: str = "", naps: int = 1):\n{body}\n')
    run = Recorder(declared(source, known=True, **NAMES), naps=data.draw(st.integers(0, 1))).begin()
    for _ in range(30):
        if run.finish is not None or not run.open:
            break
        key = data.draw(st.sampled_from(sorted(run.open)))
        row = run.steps[run.n(key)]
        if row.kind is StepKind.TIMER:
            run.fire(key)
        elif row.kind is StepKind.SIGNAL:
            run.signal("paid", value=data.draw(st.booleans()))
        elif data.draw(st.integers(0, 9)):
            run.succeed(key, value=data.draw(st.booleans()))
        else:
            run.fail(key, ValueError("no"))
    graph = graph_of(run.workflow)
    nodes = {node.id: node for node in graph.nodes}
    calls = [
        row for row in run.steps.values() if row.kind is StepKind.CALL and not row.key.startswith(UNDO_PREFIX)
    ]
    for row in calls:
        places = Found(graph, [row]).rows
        if "hidden" in said_by(row):
            continue  # code that the reader cannot see has the keys of code that it can
        assert said_by(row) in {expected(nodes[one], nodes) for one in places}, to_text(graph)
