"""`quarantine`: lists steps that wait for a person, by fingerprint, and decides about all that are alike."""

from __future__ import annotations

import sys
from typing import Any, Literal, cast

import click

from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, json_value, note_option, opened
from holdfast.model import Poison
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

Act = Literal["release", "skip", "fail"]
DID = {"release": "released", "skip": "skipped", "fail": "failed"}
MEANS = {
    "release": "each is tried again, with fresh budgets",
    "skip": "each counts as done, with the result given",
    "fail": "their runs get the error, and undo what they did unless their code catches it",
}


@command()
@click.argument(
    "act",
    type=click.Choice(["list", "release", "skip", "fail"]),
    default="list",
    metavar="[list|release|skip|fail]",
)
@click.argument("fingerprint", required=False, metavar="[FINGERPRINT]")
@click.option("--run", "run_id", metavar="RUN", help="Choose only the steps of this run.")
@click.option("--result", metavar="JSON", help="Let skipped steps return this value. [default: null]")
@note_option
def quarantine(
    *,
    act: str,
    fingerprint: str | None,
    run_id: str | None,
    result: str | None,
    note: str,
    store: str,
    as_json: bool,
) -> int:
    """List the steps in quarantine, and release, skip or fail all that are alike.

    \b
    holdfast quarantine
    holdfast quarantine release 3f9a1c02b7de --note 'fixed in 2.4.1'
    holdfast quarantine skip 3f9a1c02b7de --result 0

    A step that killed its process too often waits here instead of killing another one. Steps with one fingerprint have
    the same name, class of error and place. `release` tries them again with fresh budgets, `skip` goes on as if they
    had returned the result, `fail` lets them fail, so that their runs undo what they did unless their code catches the
    error. The exit code is 1 if there was no such step.
    """
    if act == "list":
        if fingerprint or result is not None:
            raise click.UsageError("say what to do about it: release, skip or fail")
        return run_quickly(_list(run_id, store, as_json))
    if fingerprint is None and run_id is None:
        raise click.UsageError("name a fingerprint, as `holdfast quarantine` lists them, or a run by --run")
    if result is not None and act != "skip":
        raise click.UsageError("--result is for skip")
    value = None if result is None else json_value(result, "--result")
    resolving = _resolve(
        cast("Act", act), fingerprint, run_id, value=value, note=note, store=store, as_json=as_json
    )
    return run_quickly(resolving)


async def _list(run_id: str | None, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        found = await hf.quarantine()
        if run_id is not None:
            alike = await hf.desk.quarantine.fingerprints(hf.who, run_id)
            found = [one for one in found if one.fingerprint in alike]
        now = await hf.now()
    if as_json:
        output.print_json([poison_object(one) for one in found])
        return DONE
    if not found:
        output.say("nothing is in quarantine")
    for one in found:
        print_words(one.fingerprint, "red", end=False)
        kind = one.error.removeprefix("builtins.").removeprefix("holdfast.errors.")
        print_words(f" {one.step}: {kind} ({one.place})")
        runs = f"{wording.counted(one.steps, 'step')} of {wording.counted(one.runs, 'run')}"
        print_words(f"  {runs} for {wording.span(now - one.since)}; for example {one.example}", dim=True)
    if found:
        print_words("`holdfast quarantine release|skip|fail FINGERPRINT` decides", dim=True)
    return DONE


def poison_object(one: Poison) -> dict[str, Any]:
    return {
        "fingerprint": one.fingerprint,
        "step": one.step,
        "error": one.error,
        "place": one.place,
        "steps": one.steps,
        "runs": one.runs,
        "since": output.moment(one.since),
        "last_at": output.moment(one.last_at),
        "example": one.example,
    }


async def _resolve(
    act: Act,
    fingerprint: str | None,
    run_id: str | None,
    *,
    value: bytes | None,
    note: str,
    store: str,
    as_json: bool,
) -> int:
    def show_progress(done: int) -> None:
        if not as_json and sys.stderr.isatty():
            print_words(f"{done:,} steps {DID[act]}", err=True)

    async with opened(store) as hf:
        result = wording.plain_value(value)
        done = await hf.resolve(
            act, fingerprint, run_id=run_id, note=note, result=result, progress=show_progress
        )
    if as_json:
        output.print_json({"act": act, "fingerprint": fingerprint, "run": run_id, "steps": done})
    elif done:
        output.say(f"{wording.counted(done, 'step')} {DID[act]}: {MEANS[act]}")
    else:
        output.say("no such step is in quarantine: `holdfast quarantine` lists what is")
    return DONE if done else ENDED_OTHERWISE
