"""`show`: shows everything about one run on one page."""

from __future__ import annotations

from typing import Any

import click

from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened, run_argument
from holdfast.run import Run as Handle
from holdfast.supervisor.outlook import outlook
from holdfast.terminal import output
from holdfast.terminal.page import Page, page_object

STEPS_SHOWN = 100
JOURNAL_SHOWN = 100


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


async def _read(run_id: str, store: str) -> Page:
    async with opened(store) as hf:
        run: Handle[Any] = hf.run(run_id)
        rows, reads, stored = await run.stored_rows(), hf.store.reads, hf.stored(run_id)
        ahead = await outlook(hf.store, rows.run, rows.steps, hf.config)
        return Page(
            rows.shown(hf.namespace),
            await reads.signals(stored),
            [hf.shown(row) for row in await reads.children(stored)],
            [hf.shown(row) for row in await reads.started_runs(stored)],
            await hf.desk.journal_of(hf.who, run_id, JOURNAL_SHOWN),
            await run.why(),
            await hf.store.now(),
            ahead.shown(hf.namespace),
            await reads.log_counts(stored),
        )
