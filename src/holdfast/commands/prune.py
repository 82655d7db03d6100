"""`prune`: removes runs that ended long ago, when an operator asks for it."""

from __future__ import annotations

import click

from holdfast.client import Holdfast
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened
from holdfast.config import DEFAULT
from holdfast.desk.filters import age
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import RunState
from holdfast.supervisor.retention import BEGINNING, RUNS_MAX
from holdfast.terminal import output, wording

ENDED = [str(state) for state in RunState if state in RUN_ENDED]


def _age(ctx: click.Context, parameter: click.Parameter, given: str) -> float:
    """Read an age such as 30d, 12h or 90min as seconds."""
    found = age(given)
    if found is None:
        raise click.BadParameter(f"{given!r} is not an age: write 30d, 12h, 90min", ctx, parameter)
    return found


@command(needs_database=True)
@click.option(
    "--older-than",
    "older_s",
    callback=_age,
    required=True,
    metavar="AGE",
    help="Remove runs that ended longer ago than this: 30d, 12h, 90min.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(ENDED),
    metavar="STATE",
    help="Remove only runs that ended in this state. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Count the runs, and remove none.")
def prune(older_s: float, states: tuple[str, ...], dry_run: bool, store: str, as_json: bool) -> None:
    """Remove runs that ended long ago.

    \b
    holdfast prune --older-than 30d --state succeeded

    Their steps, attempts, signals and journal are removed with them, in small batches, while other runs go on. The audit
    stays: what people, programs and tokens did. A run is removed after its children. It is never removed while a run
    above it is open, or did not succeed and stays. A run that was removed can be started again under the same id.
    """
    removed, rows = run_quickly(_prune(older_s, states or tuple(ENDED), dry_run, store))
    if as_json:
        output.print_json({"dry_run": dry_run, "runs": removed, "rows": rows})
    elif dry_run:
        output.say(
            f"{wording.counted(removed, 'run')} would be removed, except those that an open run above still needs"
        )
    else:
        output.say(f"{wording.counted(removed, 'run')} removed, {wording.counted(rows, 'row')}")


async def _prune(older_s: float, states: tuple[str, ...], dry_run: bool, url: str) -> tuple[int, int]:
    async with opened(url) as hf:
        before = await hf.store.now() - older_s
        if dry_run:
            count = hf.store.retention.count_old_runs
            return sum([await count(state, before, hf.namespace) for state in states]), 0
        removed = rows = 0
        more = True
        while more:  # after a round that removed runs, their parents can be removed, too
            runs, gone = await _round(hf, states, before)
            removed, rows, more = removed + runs, rows + gone, runs > 0
        return removed, rows


async def _round(hf: Holdfast, states: tuple[str, ...], before: float) -> tuple[int, int]:
    runs = rows = 0
    for state in states:
        after: tuple[float, str] | None = BEGINNING
        while after is not None:
            done = await hf.store.retention.prune(
                None,
                actor=hf.who.actor,
                state=state,
                before=before,
                after=after,
                runs_max=RUNS_MAX,
                rows_max=DEFAULT.prune_rows_max,
                kept=[state for state in ENDED if state not in states],
                namespace=hf.namespace,
            )
            runs, rows, after = runs + done.runs, rows + done.rows, done.after
    return runs, rows
