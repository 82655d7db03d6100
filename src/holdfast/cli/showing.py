"""`show`: everything about one run, on one page."""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from holdfast.cli import output, wording
from holdfast.cli.looping import run_quickly
from holdfast.cli.options import command, opened, run_argument
from holdfast.client import Run as Handle
from holdfast.client import RunRows
from holdfast.model import JournalEntry, Run, Signal
from holdfast.supervisor.outlook import Outlook, outlook

STEPS_SHOWN = 100


class Page(NamedTuple):
    view: RunRows
    signals: list[Signal]
    children: list[Run]
    journal: list[JournalEntry]
    why: str
    now: float
    outlook: Outlook


@command()
@run_argument
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=STEPS_SHOWN,
    show_default=True,
    metavar="N",
    help="How many steps; 0 is all. What goes on or failed comes first.",
)
def show(run_id: str, limit: int, store: str, as_json: bool) -> None:
    """Show one run: its steps in time, each failed attempt, its result.

    \b
    holdfast show order-42
    """
    page = run_quickly(_read(run_id, store))
    if as_json:
        output.print_json(_object(page))
    else:
        from holdfast.cli.page import print_page  # noqa: PLC0415  for people only

        print_page(page, limit)


async def _read(run_id: str, store: str) -> Page:
    async with opened(store) as hf:
        run: Handle[Any] = hf.run(run_id)
        view = await run.rows()
        return Page(
            view,
            await hf.store.signals(run_id),
            await hf.store.children(run_id),
            await hf.store.journal(run_id),
            await run.why(),
            await hf.store.now(),
            await outlook(hf.store, view.run, view.steps, hf.config),
        )


def _object(page: Page) -> output.Object:
    run, attempts = page.view.run, wording.attempts_of(page.view.attempts)
    return output.run_object(run) | {
        "input": wording.plain_value(run.input),
        "output": wording.plain_value(run.output),
        "error": output.error_object(run.error),
        "kept": wording.kept_steps(run, page.view.steps),
        "published": wording.plain_object(run.published),
        "why": page.why,
        "eta": output.eta_object(page.outlook.eta, page.now),
        "steps": [
            output.whole_step_object(step, attempts.get(step.n, []))
            | {
                "straggler": page.outlook.straggles(step, page.now),
                "twin": output.twin_object(page.outlook.twins.get(step.n)),
            }
            for step in page.view.steps
        ],
        "signals": [output.signal_object(signal) for signal in page.signals],
        "children": [
            {"id": child.id, "workflow": child.workflow, "state": str(child.state), "n": child.parent_n}
            for child in page.children
        ],
        "journal": [output.journal_object(entry) for entry in page.journal],
    }
