"""`graph`: draws a workflow before it runs, from its source. With --run, it also reads one run from the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened
from holdfast.commands.program import find_workflow
from holdfast.errors import WorkflowError
from holdfast.graph import Graph, graph_of, with_run
from holdfast.graph.mermaid import to_mermaid
from holdfast.graph.svg import to_svg
from holdfast.graph.text import lines, to_text
from holdfast.run import Run as Handle
from holdfast.run import RunRows
from holdfast.supervisor.phrases import command as pasted
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.workflow import registry
from holdfast.workflow.pages import is_page
from holdfast.workflow.workflow import Workflow

FORMATS = ("text", "svg", "mermaid", "json")


class WrongRun(WorkflowError):
    """The run is not one of this workflow, or of this version of it."""


@command()
@click.argument("target", metavar="FILE[:WORKFLOW]")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Draw it like this. [default: by the name of --output, else text]",
)
@click.option("--run", "run_id", metavar="ID", help="Draw into it the way this run took.")
@click.option(
    "--output", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it here."
)
def graph(
    target: str, form: str | None, run_id: str | None, file: Path | None, store: str, as_json: bool
) -> None:
    """Draw a workflow before it runs, from its source.

    \b
    holdfast graph app.py:order
    holdfast graph app.py:order --output order.svg
    holdfast graph app.py:order --run order-42

    It shows steps and their undos, children, signals and sleeps, with the choices, loops and branches around them. The
    workflow is not executed. What the source does not say is drawn as unknown. With --run, each step shows what the
    run recorded there, and what it did not reach is dim.
    """
    form = _form(form, file, as_json=as_json)
    with output.stdout_kept(form == "json"):
        workflow = find_workflow(target)
        if run_id is None:
            drawn = graph_of(workflow)
        else:
            rows = run_quickly(_read(run_id, store))
            drawn = with_run(graph_of(_version(workflow, rows, target)), rows.run, rows.steps)
    if file is not None:
        file.write_text(_written(drawn, form), encoding="utf-8")
    elif form == "json":
        output.print_json(msgspec.to_builtins(drawn))
    elif form == "text":
        _print(drawn)
    else:
        print(_written(drawn, form), end="", flush=True)


def _form(form: str | None, file: Path | None, *, as_json: bool) -> str:
    if as_json:
        if form not in {None, "json"}:
            raise click.BadParameter(f"--json is --format json, not {form}", param_hint="--format")
        return "json"
    if form is not None:
        return form
    by_name = {".svg": "svg", ".json": "json", ".mmd": "mermaid", ".mermaid": "mermaid"}
    return "text" if file is None else by_name.get(file.suffix.lower(), "text")


def _written(drawn: Graph, form: str) -> str:
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(drawn), indent=2).decode() + "\n"
    return {"svg": to_svg, "mermaid": to_mermaid, "text": to_text}[form](drawn)


def _print(drawn: Graph) -> None:
    width = output.screen().width
    for line in lines(drawn, width):
        for words in line:
            print_words(words.text, words.colour, bold=words.bold, dim=words.dim, end=False)
        print_words()


async def _read(run_id: str, store: str) -> RunRows:
    async with opened(store) as hf:
        run: Handle[Any] = hf.run(run_id)
        return await run.rows()


def _version(workflow: Workflow[Any, Any], rows: RunRows, target: str) -> Workflow[Any, Any]:
    """Return the version of the workflow that the run is of."""
    run = rows.run
    if run.workflow != workflow.name:
        raise WrongRun(
            f"run {run.id!r} is a run of {run.workflow}, and {target} is {workflow.name}: name the workflow of the run, "
            f"or find another run by {pasted('ps', '--workflow', workflow.name)}"
        )
    if is_page(run.input) and run.parent_id is not None:
        raise WrongRun(
            f"run {run.id!r} is a page of a map, which has only the calls of that map: draw the run it belongs to by "
            f"{pasted('graph', target, '--run', run.parent_id)}"
        )
    found = registry.workflows.get((run.workflow, run.version))
    if found is None:
        raise WrongRun(
            f"run {run.id!r} is of version {run.version} of {run.workflow}, and {target} has version "
            f"{workflow.version}: give the file that still has that version"
        )
    return found
