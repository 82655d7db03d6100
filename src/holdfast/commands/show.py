"""`show`: shows everything about one run on one page."""

from __future__ import annotations

from typing import Any

import click

from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened, run_argument
from holdfast.run import Run as Handle
from holdfast.terminal import output
from holdfast.terminal.page import RunPage, page_object

STEPS_SHOWN = 100
JOURNAL_MAX = 100


@command()
@run_argument
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=STEPS_SHOWN,
    show_default=True,
    metavar="N",
    help="Show at most this many steps; 0 shows all. Steps that go on or failed are chosen first.",
)
def show(run_id: str, limit: int, store: str, as_json: bool) -> None:
    """Show one run: its steps over time, failed attempts and result.

    \b
    holdfast show order-42
    """
    page = run_quickly(_read(run_id, store))
    if as_json:
        output.print_json(page_object(page))
    else:
        from holdfast.terminal.printed_page import print_page  # noqa: PLC0415  only people need it

        print_page(page, limit)


async def _read(run_id: str, store: str) -> RunPage:
    async with opened(store) as hf:
        run: Handle[Any] = hf.run(run_id)
        view, desk, who = await run.rows(), hf.desk, hf.who
        return RunPage(
            view,
            await desk.signals.list(who, run_id),
            await desk.runs.children(who, run_id),
            await desk.runs.started(who, run_id),
            await desk.runs.journal(who, run_id, JOURNAL_MAX),
            await run.why(),
            await hf.now(),
            await desk.runs.outlook(who, view.run, view.steps),
            await desk.runs.log_counts(who, run_id),
        )
