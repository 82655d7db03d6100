"""`acts`, and what the commands share that act on many runs: say what would happen, ask, carry it out, show what became
of each run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

import click

from holdfast.commands.errors import DONE, ENDED_OTHERWISE, WRONG
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import RunTarget, command, opened
from holdfast.desk.acts import Act, ActInfo
from holdfast.desk.plans import DID, AlikeRuns, Preview
from holdfast.model import ActOptions, ActRow, ActRun, ActState, Fate
from holdfast.store.acts import LEFT
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words
from holdfast.terminal.meter import Meter

NAMED_MAX = 10
"""How many runs that were left alone are named at once. `holdfast acts show` names all."""
LISTED_MAX = 50
"""How many acts are listed."""
GLYPHS = {Fate.DONE: "✓", Fate.CHANGED: "≠", Fate.REFUSED: "✗", None: "·"}
COLOURS = {Fate.DONE: "green", Fate.CHANGED: "yellow", Fate.REFUSED: "red", None: None}
STATE_COLOURS = {ActState.DONE: "green", ActState.RUNNING: "cyan", ActState.STOPPED: "yellow"}


# --- acts on many runs --------------------------------------------------------------------------------------------------


def act_on_many(
    verb: str, target: RunTarget, options: ActOptions, note: str, store: str, as_json: bool
) -> int:
    """Plan an act on many runs, say what it would do, ask, and carry it out. Return the exit code."""
    act_id, preview, planned = run_quickly(_plan(verb, target, options, note, store, as_json))
    if not as_json:
        print_preview(preview)
    if not planned:
        if as_json:
            output.print_json(preview_object(None, verb, preview, planned))
        return DONE
    go = f"`holdfast acts go {act_id}`"
    if target.dry_run or not (target.yes or _asked(verb, planned, as_json)):
        if as_json:
            output.print_json(preview_object(act_id, verb, preview, planned))
        if target.dry_run:
            print_words(f"nothing was done: {go} carries out this plan", dim=True, err=True)
            return DONE
        if can_ask(as_json):
            print_words("nothing was done", err=True)
            return ENDED_OTHERWISE
        print_words(f"nothing was done, because nobody can be asked here: add --yes, or use {go}", err=True)
        return WRONG
    return run_quickly(_go(act_id, store, as_json))


async def _plan(
    verb: str, target: RunTarget, options: ActOptions, note: str, store: str, as_json: bool
) -> tuple[str, Preview, int]:
    """Make the plan. Return its id, its preview and how many runs are in it. A plan of no run is dropped."""
    async with opened(store) as hf:
        where = target.wanted.filter(await hf.now())
        with Meter(as_json) as meter:
            act = await hf.plan_act(
                verb, where, options, note, lambda seen: meter.show(f"{wording.counted(seen, 'run')} listed")
            )
        planned = sum(change.count for change in act.preview.changes)
        if not planned:
            await act.stop()
    return act.id, act.preview, planned


def can_ask(as_json: bool) -> bool:
    return not as_json and sys.stdin.isatty() and sys.stderr.isatty()


def _asked(verb: str, planned: int, as_json: bool) -> bool:
    """Ask whether to go on. False if there is nobody to ask."""
    return can_ask(as_json) and click.confirm(f"{verb} {wording.counted(planned, 'run')}?", err=True)


async def _go(act_id: str, store: str, as_json: bool) -> int:
    """Carry out an act, and say what became of its runs. An interrupt stops the act."""
    async with opened(store) as hf:
        act = hf.act(act_id)
        was = (await act.row()).state
        with Meter(as_json) as meter:
            try:
                await act.carry_out(lambda info: meter.show(progress_words(info)))
            except asyncio.CancelledError:
                await act.stop()
                meter.end()
                print_words(f"stopped; `holdfast acts go {act_id}` goes on", err=True)
                raise
        row = await act.row()
        left_alone = [run async for run in _some(act, NAMED_MAX, Fate.CHANGED, Fate.REFUSED)]
    if as_json:
        output.print_json(act_object(row) | {"left_alone": [run_object(one) for one in left_alone]})
    else:
        before = " before" if was is ActState.DONE else ""
        output.say(f"{result_words(row)}{before}")
        print_runs(left_alone, row)
    return exit_code(row)


async def _some(act: Act, limit: int, *fates: str) -> AsyncIterator[ActRun]:
    """Yield up to `limit` runs of an act with one of these fates."""
    count = 0
    async for run in act.runs(*cast("Any", fates)):
        yield run
        count += 1
        if count == limit:
            return


def exit_code(row: ActRow) -> int:
    """0 if every run in the plan was acted on."""
    return DONE if row.done == row.runs else ENDED_OTHERWISE


# --- the command --------------------------------------------------------------------------------------------------------


@command()
@click.argument(
    "what", type=click.Choice(["list", "show", "go", "stop"]), default="list", metavar="[list|show|go|stop]"
)
@click.argument("act_id", required=False, metavar="[ACT]")
@click.option(
    "--fate",
    "fates",
    multiple=True,
    type=click.Choice([*map(str, Fate), LEFT]),
    metavar="FATE",
    help="With show: only runs that are done, changed, refused or left (not tried yet). May be repeated.",
)
@click.option("--follow", "-f", is_flag=True, help="With show: print the progress until the act has ended.")
def acts(
    *, what: str, act_id: str | None, fates: tuple[str, ...], follow: bool, store: str, as_json: bool
) -> int:
    """List acts on many runs, and carry out, follow or stop one.

    \b
    holdfast cancel --workflow order --state held --dry-run
    holdfast acts go 5d1f0a72c9
    holdfast acts show 5d1f0a72c9 --fate changed --fate refused

    `cancel`, `hold`, `release`, `retry`, `skip` and `fork` make an act when they are about many runs. Its plan lists
    exactly the runs that it is about, as they were then. A run that has changed since is left alone, and `show` says so.
    `go` carries a plan out, and goes on with an act that was stopped. If the process dies that carries an act out, a
    supervisor goes on with it; `go` does the same. `stop` lets no further run be acted on. The exit code of `go` is 1 if
    some runs were left alone.
    """
    if (what == "list") != (act_id is None):
        raise click.UsageError("`list` takes no act" if act_id else f"name the act to {what}")
    if what != "show" and (fates or follow):
        raise click.UsageError("--fate and --follow are for show")
    if what == "list":
        run_quickly(_list(store, as_json))
        return DONE
    if what == "go":
        return run_quickly(_go(act_id or "", store, as_json))
    if what == "stop":
        return run_quickly(_stop(act_id or "", store, as_json))
    return run_quickly(_show(act_id or "", fates, follow, store, as_json))


async def _list(store: str, as_json: bool) -> None:
    async with opened(store) as hf:
        found, now = await hf.desk.acts.list(hf.who, LISTED_MAX), await hf.now()
    if as_json:
        output.print_json([act_object(row) for row in found])
        return
    if not found:
        output.say("no act on many runs yet: `holdfast retry --state failed` would make one")
    for row in found:
        print_words(f"{row.id} ", end=False)
        print_words(result_words(row), STATE_COLOURS.get(row.state))
        note = f": {row.note}" if row.note else ""
        print_words(f"  {_by(row, now)}{note}", dim=True)


async def _show(act_id: str, fates: tuple[str, ...], follow: bool, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        act = hf.act(act_id)
        row, now = await act.row(), await hf.now()
        if follow:
            with Meter(as_json) as meter:
                async for info in act.watch():
                    if as_json:
                        output.print_line(_progress_object(info))
                    meter.show(progress_words(info))
            row = await act.row()
        runs = act.runs(*cast("Any", fates))
        if as_json and not follow:
            output.print_json(
                act_object(row)
                | {"preview": _preview_object(row)}
                | {"fates": [run_object(one) async for one in runs]}
            )
        elif not as_json:
            print_words(f"{row.id} ", end=False)
            print_words(result_words(row), STATE_COLOURS.get(row.state))
            print_words(f"  {_by(row, now)}{f': {row.note}' if row.note else ''}", dim=True)
            if row.state is ActState.PLANNED:
                print_preview(ActInfo(row).preview)
            async for one in runs:
                print_run(one)
    return DONE


async def _stop(act_id: str, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        act = hf.act(act_id)
        before = await act.row()
        await act.stop()
        row = await act.row()
    if as_json:
        output.print_json(act_object(row))
    elif before.state is ActState.DONE:
        output.say(f"{act_id} was done before: nothing to stop")
    else:
        output.say(f"{act_id} is stopped: {result_words(row)}; `holdfast acts go {act_id}` goes on")
    return DONE


# --- words --------------------------------------------------------------------------------------------------------------


def print_preview(preview: Preview) -> None:
    """Print what an act would do, in words and numbers."""
    output.say(preview.sentence)
    for change in preview.changes:
        _print_change(change, None)
    for change in preview.left:
        _print_change(change, "yellow")
    for warning in preview.warnings:
        print_words(f"  ! {warning}", "yellow")


def _print_change(change: AlikeRuns, colour: str | None) -> None:
    print_words(f"  {change.count:>7,}  {change.words}", colour, end=False)
    print_words(
        f"  ({', '.join(change.sample)}{' …' if change.count > len(change.sample) else ''})", dim=True
    )


def result_words(row: ActRow) -> str:
    """Say how far an act is, and what became of its runs."""
    if row.state is ActState.PLANNING:
        return f"{row.verb}: its runs are being listed"
    if row.state is ActState.PLANNED:
        return f"{row.verb} {wording.counted(row.runs, 'run')}: planned, not begun"
    words = f"{row.done:,} of {wording.counted(row.runs, 'run')} {DID[row.verb]}"
    if row.changed:
        words += f", {row.changed:,} left alone (changed since the plan)"
    if row.refused:
        words += f", {row.refused:,} refused"
    left = row.runs - row.tried
    if row.state is ActState.STOPPED:
        return f"{words}; stopped, {left:,} not tried"
    return words if row.state is ActState.DONE else f"{words}; {left:,} left"


def progress_words(info: ActInfo) -> str:
    tried = info.runs - info.left
    share = 100 * tried // max(1, info.runs)
    return f"{tried:,} of {wording.counted(info.runs, 'run')} ({share} %)"


def _by(row: ActRow, now: float) -> str:
    begun = row.created_at if row.begun_at is None else row.begun_at
    words = f"by {row.actor}, {wording.span(now - begun)} ago"
    if row.state is ActState.RUNNING and row.lease_until is not None and row.lease_until <= now:
        words += f"; nobody carries it out: a supervisor will, or `holdfast acts go {row.id}`"
    elif row.state is ActState.PLANNED:
        words += f"; `holdfast acts go {row.id}`"
    return words


def print_runs(runs: list[ActRun], row: ActRow) -> None:
    for one in runs:
        print_run(one)
    if row.changed + row.refused > len(runs):
        print_words(
            f"  `holdfast acts show {row.id} --fate changed --fate refused` lists all of them", dim=True
        )


def print_run(one: ActRun) -> None:
    print_words(f"  {GLYPHS[one.fate]} {one.run_id}", COLOURS[one.fate], end=False)
    print_words(f": {one.note}" if one.note else "", dim=True)


def act_object(row: ActRow) -> output.Object:
    return {
        "id": row.id,
        "verb": str(row.verb),
        "state": str(row.state),
        "actor": row.actor,
        "note": row.note,
        "runs": row.runs,
        "done": row.done,
        "changed": row.changed,
        "refused": row.refused,
        "left": row.runs - row.tried,
        "holder": row.holder,
        "created_at": output.moment(row.created_at),
        "begun_at": output.moment(row.begun_at),
        "ended_at": output.moment(row.ended_at),
    }


def run_object(one: ActRun) -> output.Object:
    return {
        "run": one.run_id,
        "fate": LEFT if one.fate is None else str(one.fate),
        "note": one.note,
        "state_before": one.state,
    }


def preview_object(act_id: str | None, verb: str, preview: Preview, planned: int) -> output.Object:
    command = None if act_id is None else f"holdfast acts go {act_id}"
    return {"plan": act_id, "verb": verb, "runs": planned, "command": command} | _said(preview)


def _preview_object(row: ActRow) -> output.Object:
    return _said(ActInfo(row).preview)


def _said(preview: Preview) -> output.Object:
    def listed(changes: list[AlikeRuns]) -> list[output.Object]:
        return [{"count": one.count, "words": one.words, "sample": one.sample} for one in changes]

    return {
        "sentence": preview.sentence,
        "changes": listed(preview.changes),
        "left": listed(preview.left),
        "warnings": preview.warnings,
    }


def _progress_object(info: ActInfo) -> output.Object:
    names = ("id", "runs", "done", "changed", "refused", "left")
    return {"state": str(info.state)} | {name: getattr(info, name) for name in names}
