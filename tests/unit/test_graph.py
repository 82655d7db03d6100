"""The graph of a workflow, as its source says it."""

import argparse
import asyncio
import contextlib
import functools
import inspect
import itertools
import linecache
import re
import textwrap
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.graph import Graph, Kind, graph_of, to_mermaid, to_svg, to_text
from holdfast.graph.graph import connect
from holdfast.graph.layout import place
from holdfast.graph.source import nodes_of
from holdfast.graph.syntax import Sourceless
from holdfast.workflow.workflow import Workflow
from tests.unit import graph_shapes

SHAPES = {
    name: found
    for name, found in vars(graph_shapes).items()
    if isinstance(found, Workflow) and name != "child"
}


@pytest.mark.parametrize("name", SHAPES)
def test_shape_is_drawn_as_its_docstring_says(name: str) -> None:
    """Each shape of code has its picture."""
    shape = SHAPES[name]
    drawn = to_text(graph_of(shape)).partition("\n")[2].rstrip("\n")
    assert drawn == inspect.cleandoc(shape.fn.__doc__ or "")


def test_there_are_enough_shapes() -> None:
    """A shape that is lost by a renaming is noticed."""
    assert len(SHAPES) >= 60


# --- source that is odd -----------------------------------------------------------------------------------------------


def declared(source: str, *, known: bool, **names: Any) -> Workflow[Any, Any]:
    """Declare the workflow `flow` of a source that is in no file. If `known`, Python knows the source, as it knows a
    notebook's cell."""
    file = f"<cell {next(_numbers)}>"
    if known:
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space: dict[str, Any] = {**vars(graph_shapes), "__name__": file, **names}
    exec(compile(source, file, "exec"), space)
    found: Workflow[Any, Any] = Workflow(space["flow"], name="flow")
    return found


_numbers = itertools.count()
FLOW = "async def flow():\n    await a()\n"


def only_unknown(workflow: Workflow[Any, Any]) -> str:
    (node,) = graph_of(workflow).nodes
    assert node.kind is Kind.UNKNOWN
    return node.note


def test_a_cell_of_a_notebook_is_drawn() -> None:
    """Code that is in no file is drawn if Python knows its source."""
    assert to_text(graph_of(declared(FLOW, known=True))) == "flow\n└─ a\n"


def test_code_without_source_is_one_unknown_node() -> None:
    """Code that was made by exec, or whose file has changed since, is unknown, and the reason is given."""
    assert only_unknown(declared(FLOW, known=False)) == "its source is not in a file"
    changed = declared(FLOW, known=True)
    file = changed.fn.__code__.co_filename
    linecache.cache[file] = (1, None, ["x = 1\n", *FLOW.splitlines(keepends=True)], file)
    assert only_unknown(changed) == "its file has changed since it was loaded"
    linecache.cache[file] = (1, None, ["async def flow(:\n"], file)
    assert only_unknown(changed) == "its source cannot be parsed: SyntaxError"


def test_decorated_workflow_is_one_unknown_node() -> None:
    """What another decorator does is not guessed."""
    made: Workflow[Any, Any] = Workflow(graph_shapes.wrapped, name="flow")
    assert "another decorator" in only_unknown(made)


def test_nothing_is_executed() -> None:
    """Names lead to objects without running any of their code."""

    class Proxy:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"it was asked for {name}")

    source = "async def flow():\n    await proxy.first.second(1)\n    await proxy()\n    await proxy['x']()\n"
    drawn = graph_of(declared(source, known=True, proxy=Proxy()))
    assert [node.kind for node in drawn.nodes] == [Kind.UNKNOWN] * 3


def test_very_deep_code_is_unknown() -> None:
    """Code that is nested too deeply to be read does not raise."""
    deep = "async def flow():\n    return " + "-" * 3000 + "x\n"
    made = declared("async def flow():\n    pass\n", known=True)
    linecache.cache[made.fn.__code__.co_filename] = (1, None, deep.splitlines(keepends=True), "")
    assert len(graph_of(made).nodes) <= 1


def test_a_function_that_makes_itself_ends() -> None:
    """A function that returns a function that calls the first one is followed once."""
    source = (
        "async def flow(use):\n    def register(f=None):\n        a(1)\n"
        "        return lambda g: register(g)\n    use(register)\n"
    )
    drawn = graph_of(declared(source, known=True))
    assert "it makes itself" in {node.note for node in drawn.unknown}
    assert len(drawn.nodes) < 12


@pytest.mark.parametrize(
    "module", [argparse, asyncio.base_events, asyncio.tasks, contextlib, functools, inspect, mock]
)
def test_code_of_all_kinds_is_read(module: ModuleType) -> None:
    """No function of these modules, which use most of the language, stops the reader or a drawing."""
    found = [*vars(module).values()]
    found += [one for kind in found if isinstance(kind, type) for one in vars(kind).values()]
    functions = [one for one in found if isinstance(one, FunctionType)]
    assert len(functions) > 10
    for function in functions:
        with suppress(Sourceless):
            nodes = nodes_of(function)
            graph = Graph(function.__qualname__, "1", nodes, connect(nodes))
            assert_drawn_well(graph)
            assert_is_flowchart(to_mermaid(graph))


def test_large_workflow_ends() -> None:
    """Helpers that call helpers many times are not followed for ever."""
    helpers = "".join(
        f"async def h{n}():\n" + f"    await h{n - 1}()\n" * 4 if n else "async def h0():\n    await a()\n"
        for n in range(9)
    )
    drawn = graph_of(declared(f"{helpers}async def flow():\n    await h8()\n", known=True))
    assert 100 < len(drawn.nodes) < 10_000
    assert any("too large" in node.note for node in drawn.unknown)


# --- drawn programs ---------------------------------------------------------------------------------------------------

LEAVES = [
    "await s0()",
    "x = await s1(await s0())",
    "later = s2()\nawait later",
    "await asyncio.gather(s0(), s1(), helper())",
    "await asyncio.gather(*(s0(x) for x in xs))",
    "await asyncio.gather(*[s1(x) for x in xs], s2())",
    "t = asyncio.create_task(s0())",
    "t = asyncio.create_task(s0())\nawait s1()\nawait t",
    "calls = [s0(x) for x in xs]\nawait asyncio.gather(*calls)",
    "xs.append(s1())",
    "await s0.map(xs, limit=3)",
    "await asyncio.wait_for(s1(), 3)",
    "await (s0() if x else s1())",
    "x = x or await s2()",
    "z = [await s0(x) for x in xs]",
    "await unknown(s0())",
    "f = lambda: s1()",
    "async def inner():\n    await s2()",
    "await asyncio.shield(s0())",
    "x = s0()",
    "both = asyncio.gather(s0(), s1())",
    "return await s0()",
    "raise Stop('x')",
    "await asyncio.sleep(3)",
    "x += 1",
    "keep()",
]
BLOCKS = [
    "if x:\n{0}\nelse:\n{1}",
    "if await s0():\n{0}\nelif await s1():\n{1}",
    "for x in xs:\n{0}",
    "while await s2():\n{0}\nelse:\n{1}",
    "try:\n{0}\nexcept ValueError:\n{1}\nfinally:\n    await s0()",
    "async with saga():\n{0}",
    "async with asyncio.timeout(5):\n{0}",
    "async with asyncio.TaskGroup() as tg:\n    tg.create_task(s0())\n{0}",
    "async with asyncio.TaskGroup() as tg:\n    for x in xs:\n        tg.create_task(s1())",
    "async with unknown() as y:\n{0}",
    "match x:\n    case 1:\n{0}\n    case _:\n{1}",
]


@st.composite
def programs(draw: st.DrawFn, depth: int = 3) -> str:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            block = draw(st.sampled_from(BLOCKS))
            inner = 8 if block.startswith("match") else 4
            parts.append(
                block.format(
                    textwrap.indent(draw(programs(depth - 1)), " " * inner),
                    textwrap.indent(draw(programs(depth - 1)), " " * inner),
                )
            )
        else:
            parts.append(draw(st.sampled_from(LEAVES)))
    return "\n".join(parts)


@settings(max_examples=300, deadline=None)
@given(programs())
def test_every_call_of_a_step_is_drawn_exactly_once(program: str) -> None:
    """Whatever the code looks like, each call of a step that stands in it is one node, and all ways of drawing it
    work."""
    names = {f"s{n}": step for n, step in enumerate((graph_shapes.a, graph_shapes.b, graph_shapes.c))}
    source = f"async def flow(x, xs):\n{textwrap.indent(program, '    ')}\n"
    graph = graph_of(declared(source, known=True, **names))
    called = len(re.findall(r"\bs\d(?:\(|\.map)", source)) + 2 * source.count("helper()")
    assert len([node for node in graph.nodes if node.kind is Kind.STEP]) == called, to_text(graph)
    assert msgspec.json.decode(msgspec.json.encode(graph), type=Graph) == graph
    known = {node.id for node in graph.nodes}
    assert all({edge.source, edge.target} <= known for edge in graph.edges)
    assert all(len(line) <= 80 for line in to_text(graph).splitlines())
    assert_drawn_well(graph)
    assert_is_flowchart(to_mermaid(graph))


def assert_drawn_well(graph: Graph) -> None:
    """The SVG is XML, and in its picture nothing lies over anything else or outside what it belongs to."""
    picture = place(graph)
    svg = ET.fromstring(to_svg(graph))
    allowed = {"svg", "title", "desc", "style", "g", "rect", "path", "circle", "text"}
    for part in svg.iter():
        assert part.tag.removeprefix("{http://www.w3.org/2000/svg}") in allowed
        assert not [
            name for name in part.attrib if name == "style" or name.startswith("on") or "href" in name
        ]
    parents = {node.id: node.parent for node in graph.nodes}
    frames = {box.node.id: box for box in picture.boxes if box.shape in {"frame", "rows"}}
    small = [box for box in picture.boxes if box.node.id not in frames]
    for box in picture.boxes:
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.w <= picture.w
        assert box.y + box.h <= picture.h
        above = parents[box.node.id]
        while above:
            if (frame := frames.get(above)) is not None:
                assert frame.x <= box.x
                assert frame.y <= box.y
                assert box.x + box.w <= frame.x + frame.w
                assert box.y + box.h <= frame.y + frame.h
            above = parents[above]
    for one, other in itertools.combinations(small, 2):
        apart = (
            one.x + one.w <= other.x
            or other.x + other.w <= one.x
            or one.y + one.h <= other.y
            or other.y + other.h <= one.y
        )
        assert apart, (one, other)
    for one, other in itertools.combinations(frames.values(), 2):
        nested = one.y <= other.y and other.y + other.h <= one.y + one.h
        apart = (
            one.x + one.w <= other.x
            or other.x + other.w <= one.x
            or one.y + one.h <= other.y
            or other.y + other.h <= one.y
        )
        assert apart or nested, (one, other)


def assert_is_flowchart(text: str) -> None:
    """Every line of Mermaid is one of five kinds, subgraphs are closed, and edges join what was declared."""
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    label = r'"(?:[^"<>&;#]|#\d+;)*"'
    made: set[str] = set()
    depth = 0
    for line in (line.strip() for line in lines):
        if found := re.fullmatch(rf"subgraph (\w+)\[{label}\]", line):
            depth += 1
            made.add(found[1])
        elif line == "end":
            depth -= 1
            assert depth >= 0
        elif found := re.fullmatch(rf"(\w+) (?:-->|-\.->|-- {label} -->|-\. {label} \.->) (\w+)", line):
            assert depth == 0
            assert {found[1], found[2]} <= made, line
        elif not line.startswith(("class ", "classDef ")):
            found = re.match(r"(\w+)[\[({]", line)
            assert found, line
            assert found[1] not in made
            made.add(found[1])
    assert depth == 0


def test_a_task_is_beside_the_code_in_a_flowchart() -> None:
    """The code goes on beside a task, and an edge leads from the task's end to where it is awaited."""
    source = (
        "import asyncio\nasync def flow():\n    t = asyncio.create_task(a())\n    await b()\n    await t\n"
    )
    drawn = to_mermaid(graph_of(declared(source, known=True))).splitlines()
    task, call, beside, join = (node.id for node in graph_of(declared(source, known=True)).nodes)
    assert [line.strip() for line in drawn if line.strip().startswith("subgraph")] == [
        f'subgraph {task}["begin a"]'
    ]
    edges = {line.strip() for line in drawn if ">" in line}
    assert edges == {
        f"begin --> {call}",
        f"begin --> {beside}",
        f"{beside} --> {join}",
        f"{call} -.-> {join}",
        f"{join} --> finish",
    }


def test_calls_of_an_update_are_beside_the_code_of_its_scope() -> None:
    """No edge leads from what an update does to what the code of its scope does."""
    graph = graph_of(graph_shapes.served)
    by_id = {node.id: node for node in graph.nodes}
    joined = {(by_id[edge.source].label, by_id[edge.target].label) for edge in graph.edges}
    assert joined == {("change", "c"), ("a", "b")}
    names = {node.label: node.id for node in graph.nodes}
    edges = {line.strip() for line in to_mermaid(graph).splitlines() if "-->" in line}
    assert {
        f"begin --> {names['a']}",
        f"begin --> {names['paid']}",
        f"{names['paid']} --> {names['c']}",
    } <= edges
    assert f"{names['b']} --> {names['paid']}" not in edges


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_drawn_well(name: str) -> None:
    """The picture and the flowchart of each shape are in order."""
    assert_drawn_well(graph_of(SHAPES[name]))
    assert_is_flowchart(to_mermaid(graph_of(SHAPES[name])))


def test_a_hundred_calls_are_drawn_in_order() -> None:
    """One after the other they are a column; side by side they are in rows, no wider than a wide screen; and nested to the
    depth that Python allows, they are still drawn."""
    column = declared("async def flow():\n" + "    await a()\n" * 100, known=True)
    assert len(graph_of(column).nodes) == 100
    beside = declared(
        "import asyncio\nasync def flow():\n    await asyncio.gather(" + "a(), " * 100 + ")\n", known=True
    )
    deep = declared(
        "async def flow():\n"
        + "".join(f"{'    ' * n}for x{n} in y:\n" for n in range(1, 19))
        + "    " * 19
        + "await a()\n",
        known=True,
    )
    for made in (column, beside, deep):
        assert_drawn_well(graph_of(made))
        assert_is_flowchart(to_mermaid(graph_of(made)))
    assert place(graph_of(beside)).w < 2000
    ys = [box.y for box in place(graph_of(column)).boxes]
    assert ys == sorted(set(ys))
