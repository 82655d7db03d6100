"""`graph`: a workflow before it runs, and the way a run took."""

import re
from xml.etree import ElementTree as ET

from tests.commands.conftest import Cli

CODE = """
import asyncio
from holdfast import Stop, step, workflow

@step
def charge(x: int) -> int:
    return x

@charge.undo
def refund(done: int | None, x: int) -> None: ...

@step
def ship(x: int) -> int:
    return x

@workflow
async def order(x: int = 1) -> int:
    await charge(x)
    if x > 5:
        await ship(x)
    await asyncio.gather(*(ship(n) for n in range(3)))
    if x == 3:
        raise Stop("no")
    return x

@workflow
async def other() -> None:
    await charge(1)
"""
DRAWN = """\
order
├─ charge  ↶ refund
├─ if x > 5
│  └─ ship
├─ for n in range(3), side by side
│  └─ ship
├─ if x == 3
│  └─ raise Stop('no')
└─ return x
"""


def test_a_workflow_is_drawn_in_each_form(lite: Cli) -> None:
    """Without a store it prints text, JSON, Mermaid and SVG; --output chooses the form by the file's name."""
    (lite.folder / "shop.py").write_text(CODE)
    assert lite("graph", "shop.py:order").out == DRAWN
    drawn = lite("graph", "shop.py:order", "--json").json
    assert drawn["version"] == 1
    assert drawn == lite("graph", "shop.py:order", "--format", "json").json
    assert lite("graph", "shop.py:order", "--format", "mermaid").out.startswith("flowchart TD\n")
    lite("graph", "shop.py:order", "--output", "order.svg")
    root = ET.fromstring((lite.folder / "order.svg").read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not (lite.folder / "holdfast.db").exists()


def test_the_way_of_a_run_is_drawn_into_it(cli: Cli) -> None:
    """Reached steps have their state and undo. Places that share a key are marked, and never guessed."""
    (cli.folder / "shop.py").write_text(CODE)
    cli("run", "shop.py:order", "--id", "bad", "--input", '{"x": 3}', code=1)
    out = cli("graph", "shop.py:order", "--run", "bad").out
    assert "bad was undone" in out
    assert "✓ charge  ↶ refund" in out
    assert "↶ undone" in out
    assert out.count("~ ship  3 in 2 places") == 2
    nodes = cli("graph", "shop.py:order", "--run", "bad", "--json").json["nodes"]
    (charge,) = [node for node in nodes if node.get("label") == "charge"]
    assert charge["passage"]["undone"] == "undone"
    assert charge["passage"]["count"] == 1


def test_what_the_source_does_not_know_is_listed(cli: Cli) -> None:
    """A run whose code was other code shows its recorded steps beside the graph."""
    (cli.folder / "shop.py").write_text(CODE)
    cli("run", "shop.py:order", "--id", "old")
    (cli.folder / "shop.py").write_text(CODE.replace("    await charge(x)\n", ""))
    drawn = cli("graph", "shop.py:order", "--run", "old", "--json").json
    assert drawn["run"]["unknown"] == ["charge"]
    assert "recorded, and not in this source\n  charge\n" in cli("graph", "shop.py:order", "--run", "old").out


def test_wrong_calls_say_what_to_do(lite: Cli) -> None:
    """A workflow that is not there, a missing run, a run of another workflow: one line each, exit code 2."""
    (lite.folder / "shop.py").write_text(CODE)
    lite("run", "shop.py:other", "--id", "o1")
    assert "has no workflow 'nobody'" in lite("graph", "shop.py:nobody", code=2).errors
    assert "no run" in lite("graph", "shop.py:order", "--run", "none", code=2).errors
    wrong = lite("graph", "shop.py:order", "--run", "o1", code=2).errors
    assert "'o1' is a run of shop.other" in wrong
    assert "holdfast ps --workflow shop.order" in wrong
    assert (
        "--json is --format json"
        in lite("graph", "shop.py:order", "--json", "--format", "svg", code=2).errors
    )


def test_a_page_is_drawn_in_the_run_it_belongs_to(cli: Cli) -> None:
    """The calls of a long map show its pages. A page alone is refused, with the run to draw."""
    more = "\n@workflow\nasync def long() -> None:\n    await ship(0)\n    await ship.map(range(5), page=2)\n"
    (cli.folder / "shop.py").write_text(CODE + more)
    cli("run", "shop.py:long", "--id", "l1")
    assert "✓ ship  × 3" in cli("graph", "shop.py:long", "--run", "l1").out
    drawn = cli("graph", "shop.py:long", "--run", "l1", "--json").json
    assert drawn["run"].get("unknown", []) == []
    pages = [run["id"] for run in cli("ps", "--all", "--json").json if run["id"] != "l1"]
    assert len(pages) == 3
    wrong = cli("graph", "shop.py:long", "--run", pages[0], code=2).errors
    assert "holdfast graph shop.py:long --run l1" in wrong


def test_hostile_names_are_text(lite: Cli) -> None:
    """Whatever a step is called and whatever the source says, each form shows it, and nothing of it is markup."""
    name = '</style><script>alert(1)</script>[/red]&amp;"]; click n1'
    (lite.folder / "evil.py").write_text(
        "from holdfast import step, workflow\n"
        f"@step(name={name!r})\ndef a() -> None: ...\n"
        "@workflow\nasync def flow(x: str) -> None:\n"
        "    if x == '\\x1b[31m\x9b31m<b>':\n        await a()\n"
    )
    svg = lite("graph", "evil.py", "--format", "svg").out
    root = ET.fromstring(svg)
    assert not [one for one in root.iter() if one.tag.endswith(("script", "}b"))]
    assert f"{name} (line 7)" in {one.text for one in root.iter() if one.tag.endswith("title")}
    text = lite("graph", "evil.py").out
    assert name in text
    mermaid = lite("graph", "evil.py", "--format", "mermaid").out
    assert not set("<>&;\"'") & set(_labels(mermaid).replace("#", ""))
    assert not {"\x1b", "\x9b"} & set(svg + text + mermaid)


def _labels(flowchart: str) -> str:
    """Return what is in the labels of a flowchart, without the numbers that characters are written as."""
    return re.sub(r"#\d+;", "", "".join(re.findall(r'"([^\n]*)"', flowchart)))
