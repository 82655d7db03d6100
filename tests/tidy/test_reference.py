"""The reference lists what exists."""

import inspect
import itertools
import re
from pathlib import Path

import pytest

import holdfast
from holdfast import Holdfast, Retry, Run, RunInfo, StepInfo, errors
from holdfast.acts import Act, ActInfo
from holdfast.graph import EdgeKind, Graph, Kind, Node, Passage, RunPart
from holdfast.info import AttemptInfo
from holdfast.workflow.step import Step
from holdfast.workflow.undo import declare_undo
from holdfast.workflow.workflow import Workflow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/python.md").read_text()
SETTINGS = (ROOT / "docs/reference/configuration.md").read_text()


def listed_parameters(call: str) -> list[str]:
    """Return the parameters of a call as the page writes it: `@step(name=, retry=)`."""
    (found,) = set(re.findall(rf"`{re.escape(call)}\(([^)`]*=[^`]*)\)`", PAGE))
    return re.findall(r"(\w+)=", found)


@pytest.mark.parametrize(
    ("call", "declared", "inner"),
    [
        ("@step", Step.__init__, {"self", "fn", "scope", "place"}),
        ("@step.undo", declare_undo, {"step", "fn", "frame"}),
        ("@workflow", Workflow.__init__, {"self", "fn", "scope", "place"}),
        ("Retry", Retry, set()),
        ("Holdfast", Holdfast.__init__, {"self", "environment"}),
        ("await hf.runs", Holdfast.runs, {"self"}),
        ("await hf.plan", Holdfast.plan, {"self", "verb"}),
        ("workflow.using", Workflow.using, {"self"}),
        ("step.using", Step.using, {"self"}),
    ],
)
def test_every_parameter_is_listed(call: str, declared: object, inner: set[str]) -> None:
    """The page lists no parameter that does not exist."""
    assert callable(declared)
    assert sorted(listed_parameters(call)) == sorted(set(inspect.signature(declared).parameters) - inner)


def test_the_tree_of_errors_names_every_error() -> None:
    """`errors.py` begins with a tree of its classes, from which a reader learns who can act on each."""
    tree = set(re.findall(r"\w+", errors.__doc__ or ""))
    classes = {
        name
        for name, one in vars(errors).items()
        if inspect.isclass(one) and one.__module__ == errors.__name__
    }
    assert classes - tree == set()


def test_every_public_name_is_listed() -> None:
    """The page lists the public names of the package, and what a handle and a Holdfast can do."""
    for name in holdfast.__all__:
        assert re.search(rf"\b{name}\b", PAGE), name
    rarely = {
        "row",
        "rows",
        "forked",
        "node",
        "node_id",
        "step_keys",
        "number_of",
        "caller",
        "desk",
        "who",
        "store",
        "start_raw",
        "send_signal",
        "plan_act",
        "stored",
        "sees",
        "shown",
        "shown_text",
    }  # only the command line uses these
    for kind, word in ((Run, "run"), (Holdfast, "hf"), (Act, "act")):
        for name in {name for name in vars(kind) if not name.startswith("_")} - rarely:
            assert f"{word}.{name}" in PAGE, f"{word}.{name}"


@pytest.mark.parametrize("kind", [RunInfo, StepInfo, AttemptInfo, ActInfo])
def test_every_attribute_of_what_is_read_is_listed(kind: type) -> None:
    """The page lists no attribute that does not exist."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind.__name__}` |"))
    listed = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row))) - {kind.__name__}
    assert listed == {name for name in vars(kind) if not name.startswith("_")}


def test_every_environment_variable_is_listed() -> None:
    """The page lists the variables that a user may set. A pool sets HOLDFAST_POOL for its agents, so it is not
    listed."""
    source = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    for name in sorted(set(re.findall(r"\"(HOLDFAST_[A-Z]+)\"", source)) - {"HOLDFAST_POOL"}):
        assert f"`{name}`" in SETTINGS, name


def test_every_attribute_and_kind_of_a_graph_is_listed() -> None:
    """The page on graphs lists what is in the JSON form, and nothing else."""
    page = (ROOT / "docs/graph.md").read_text().partition("## The JSON form")[2]
    _, whole, node, kinds = page.split("\n| `Graph` |")[0], *re.split(r"\n\n(?=\| )", page)[1:]
    first = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in whole.splitlines()[2:]]
    assert sorted(itertools.chain(*first)) == sorted(Graph.__struct_fields__)
    first = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in node.splitlines()[2:]]
    assert sorted(itertools.chain(*first)) == sorted(Node.__struct_fields__)
    rows = kinds.partition("\n\n")[0]
    for kind in Kind:
        assert f"`{kind}`" in rows, kind
    for edge in EdgeKind:
        assert f"`{edge}`" in kinds, edge
    for name in Passage.__struct_fields__ + RunPart.__struct_fields__:
        assert f"`{name}`" in page, name
