"""`ps` and `why`: list runs, and say what a run waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import click

from holdfast.client import Holdfast
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import Wanted, command, filter_options, opened, run_argument
from holdfast.durations import Eta
from holdfast.errors import Forbidden
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import Breaker, Hold, Lane, RunRow, RunState, StepRow
from holdfast.step_words import UNKNOWN_WAIT, in_short
from holdfast.supervisor.why import gate_in_short, gate_of
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

PAGE = 500
LOOK_INTO_STEPS = 500
"""The list says what the steps of an open run wait for only if there are fewer steps than this."""


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
def ps(
    *,
    wanted: Wanted,
    limit: int,
    everything: bool,
    store: str,
    as_json: bool,
) -> None:
    """List runs, newest first.

    \b
    holdfast ps --state failed --workflow order --since 2h
    holdfast ps order-2026-11

    With PREFIX, only runs whose id begins with it. Each line says how a run ended, or what it waits for. The pages of a
    map are left out, unless they wait for a person: --all lists them, and so does the id of their run as PREFIX.
    """
    run_quickly(_ps(wanted, None if everything else limit, store, as_json))


async def _ps(wanted: Wanted, limit: int | None, store: str, as_json: bool) -> None:
    async with opened(store) as hf:
        everything = limit is None
        where = wanted.filter(await hf.now())
        is_narrow = where.is_narrow
        where.limit = limit or PAGE
        where.has_pages = everything or where.prefix is not None
        runs = await hf.desk.runs.list(hf.who, where)
        if not runs and where.workflow is not None:
            await hf.desk.workflows.demand(hf.who, where.workflow)
        page = runs
        while everything and len(page) == where.limit:
            where.before = (page[-1].created_at, page[-1].id)
            page = await hf.desk.runs.list(hf.who, where)
            runs += page
        now = await hf.now()
        expected = await hf.desk.runs.etas(hf.who, runs)
        if as_json:
            output.print_json(
                [
                    output.run_object(run)
                    | {
                        "error": output.error_object(run.error),
                        "eta": output.eta_object(expected.get(run.id), now),
                    }
                    for run in runs
                ]
            )
            return
        if not runs:
            output.say("no such run" if is_narrow else "no run yet: `holdfast run FILE.py` makes one")
            return
        rows = await _with_words(hf, runs, now, expected)
    from holdfast.terminal.screen import print_runs  # noqa: PLC0415  only people need it

    print_runs(rows, now)
    if not everything and len(runs) == where.limit:
        print_words(f"these are the newest {where.limit}; --all lists all", dim=True, err=True)


async def _with_words(
    hf: Holdfast, runs: Sequence[RunRow], now: float, etas: Mapping[str, Eta]
) -> list[tuple[RunRow, str]]:
    """Return each run with how it ended, or what it waits for."""
    if not hf.is_remote:
        words = await hf.desk.overview.words(hf.who, runs, etas)
        return [(run, words[run.id]) for run in runs]
    gates = await _gate_facts(hf)
    return [(run, await _in_short(hf, run, now, etas.get(run.id), gates)) for run in runs]


class GateFacts(NamedTuple):
    """The lanes, and the holds and breakers that may keep their steps from beginning."""

    lanes: Sequence[Lane]
    holds: Sequence[Hold]
    breakers: Sequence[Breaker]

    def words(self, run: RunRow, now: float, step: StepRow) -> str:
        gate = gate_of(step, run, *self)
        if gate is not None:
            return gate_in_short(gate)
        return "" if step.ready_at > now else UNKNOWN_WAIT  # a server does not say under which limits it is


async def _gate_facts(hf: Holdfast) -> GateFacts:
    """Ask a server what may keep steps from beginning. A token for some namespaces may not ask for it: then nothing is
    known."""
    try:
        lanes = [one.lane for one in await hf.desk.agents.lanes(hf.who)]
        return GateFacts(lanes, await hf.gates.holds(), await hf.gates.breakers())
    except Forbidden:
        return GateFacts((), (), ())


async def _in_short(hf: Holdfast, run: RunRow, now: float, eta: Eta | None, gates: GateFacts) -> str:
    """Say in a few words how the run ended, or what it waits for."""
    if run.state in RUN_ENDED or run.state not in {RunState.RUNNING, RunState.UNDOING}:
        return in_short(run, (), now, limit=UNKNOWN_WAIT)
    steps = await hf.desk.runs.steps(hf.who, run.id, 0, LOOK_INTO_STEPS)
    if len(steps) < LOOK_INTO_STEPS:
        return in_short(run, steps, now, eta, partial(gates.words, run, now))
    parts = (wording.progress_words(run.progress), f"{LOOK_INTO_STEPS}+ steps", wording.left(eta))
    return " · ".join(part for part in parts if part)


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
