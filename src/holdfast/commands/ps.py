"""`ps` and `why`: list runs, and say what a run waits for."""

from __future__ import annotations

import click

from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import WantedRuns, command, filter_options, opened, run_argument
from holdfast.terminal import output
from holdfast.terminal.lines import print_words

PAGE = 500


@command()
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="List at most this many runs.",
)
@click.option(
    "--all", "everything", is_flag=True, help="List all runs, not only the newest; also the pages of maps."
)
@click.option("--oldest", is_flag=True, help="List the oldest runs first.")
def ps(
    *,
    wanted: WantedRuns,
    limit: int,
    everything: bool,
    oldest: bool,
    store: str,
    as_json: bool,
) -> None:
    """List runs, newest first.

    \b
    holdfast ps --state failed --workflow order --since 2h
    holdfast ps --state running --oldest
    holdfast ps order-2026-11

    With PREFIX, only runs whose id begins with it. Each line says how a run ended, or what it waits for. The pages of a
    map are left out, unless they wait for a person: --all lists them, and so does the id of their run as PREFIX.
    """
    run_quickly(_ps(wanted, None if everything else limit, oldest, store, as_json))


async def _ps(wanted: WantedRuns, limit: int | None, oldest: bool, store: str, as_json: bool) -> None:
    async with opened(store) as hf:
        everything = limit is None
        where = wanted.filter(await hf.now())
        is_narrow = where.is_narrow
        where.limit, where.is_oldest_first = limit or PAGE, oldest
        where.has_pages = everything or where.prefix is not None
        runs = page = await hf.desk.overview.listed(hf.who, where, words=not as_json)
        if not runs and where.workflow is not None:
            await hf.desk.workflows.demand(hf.who, where.workflow)
        while everything and len(page) == where.limit:
            where.before = (page[-1].row.created_at, page[-1].row.id)
            page = await hf.desk.overview.listed(hf.who, where, words=not as_json)
            runs = [*runs, *page]
        now = await hf.now()
        if as_json:
            output.print_json(
                [
                    output.run_object(run)
                    | {"error": output.error_object(run.error), "eta": output.eta_object(expected, now)}
                    for run, expected, _ in runs
                ]
            )
            return
        if not runs:
            output.say("no such run" if is_narrow else "no run yet: `holdfast run FILE.py` makes one")
            return
    from holdfast.terminal.screen import print_runs  # noqa: PLC0415  only people need it

    print_runs([(run, words) for run, _, words in runs], now)
    if not everything and len(runs) == where.limit:
        print_words(
            f"these are the {'oldest' if oldest else 'newest'} {where.limit}; --all lists all",
            dim=True,
            err=True,
        )


@command()
@run_argument
def why(run_id: str, store: str, as_json: bool) -> None:
    """Say in a sentence or two what a run waits for.

    \b
    holdfast why order-42

    It also says what would move the run, with commands that can be pasted.
    """
    sentence = run_quickly(_why(run_id, store))
    if as_json:
        output.print_json({"id": run_id, "why": sentence})
    else:
        output.say(sentence)


async def _why(run_id: str, store: str) -> str:
    async with opened(store) as hf:
        return await hf.run(run_id).why()
