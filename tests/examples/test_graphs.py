"""The graphs of the examples. `tests/examples/graphs` has one file for each workflow, compared with its code by a reader.

After a change of an example: `python -m tests.examples.test_graphs` writes the files anew. Read them before they are
committed.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from holdfast.graph import graph_of, to_text
from holdfast.workflow.workflow import Workflow
from tests.examples.conftest import ROOT

GRAPHS = Path(__file__).with_name("graphs")
WORKFLOWS: dict[str, Workflow[Any, Any]] = {
    f"{file.stem}.{name}": found
    for file in sorted((ROOT / "examples").glob("*.py"))
    for name, found in vars(import_module(f"examples.{file.stem}")).items()
    if isinstance(found, Workflow)
}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_graph_of_an_example_is_the_one_that_was_read(name: str) -> None:
    """Each workflow of the examples is drawn as its code says, and nothing in it is unknown."""
    graph = graph_of(WORKFLOWS[name])
    assert to_text(graph) == (GRAPHS / f"{name}.txt").read_text(encoding="utf-8")
    assert not graph.unknown


def test_no_graph_is_left_of_an_example_that_is_gone() -> None:
    """Each file belongs to a workflow."""
    assert {file.stem for file in GRAPHS.glob("*.txt")} == set(WORKFLOWS)


if __name__ == "__main__":
    for title, workflow in WORKFLOWS.items():
        (GRAPHS / f"{title}.txt").write_text(to_text(graph_of(workflow)), encoding="utf-8")
