"""Commands that act on runs, and `migrate`. On one run, each is one write, and the journal records who did it. Acts on
many runs are in acts.py."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import click

from holdfast.addresses import shown_address
from holdfast.client import Holdfast
from holdfast.codec import read_json
from holdfast.commands.acts import act_on_many
from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import (
    RUN_ARGUMENT,
    RunRequest,
    RunTarget,
    asked_namespaces,
    command,
    given_text,
    json_value,
    no_input,
    note_option,
    opened,
    run_argument,
    start_options,
    target_options,
)
from holdfast.environment import Environment
from holdfast.errors import InvalidInput
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import CANCEL, ActOptions, RunState, in_words
from holdfast.run import Run
from holdfast.store import open_store
from holdfast.store.forks import Forked
from holdfast.terminal import output
from holdfast.terminal.wording import counted

UNDOING = frozenset({RunState.UNDOING, RunState.STUCK})


@command()
@start_options
def start(request: RunRequest, store: str, as_json: bool) -> None:
    """Start a run, and leave it to the processes that are up.

    \b
    holdfast start app.py:order --input '{"card": "tok_1"}' --id order-42

    The command returns as soon as the run is recorded. The same id and input again is the same run.
    """
    with output.stdout_kept(as_json):
        workflow = request.workflow()
        raw = request.input(workflow) or no_input(workflow)
        started, state = run_quickly(
            _start(
                workflow, raw, Holdfast(store, roles=(), app=request.app, namespace=asked_namespaces(store))
            )
        )
    _answer(as_json, started, state, f"{started} {in_words(state)}")


async def _start(workflow: Any, raw: bytes, hf: Holdfast) -> tuple[str, RunState]:
    async with hf:
        run = await hf.start_raw(workflow, raw)
        return run.id, await run.state()


@command()
@run_argument
@click.argument("name")
@click.option(
    "--data",
    default="null",
    metavar="JSON",
    help="Send this value with the signal. `-` reads standard input.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="Send the signal under this key. The same key again is the same signal, and is sent once.",
)
def signal(run_id: str, name: str, data: str, key: str | None, store: str, as_json: bool) -> None:
    """Send a signal to a run.

    \b
    holdfast signal order-42 paid --data '{"cents": 900}' --key event-7

    The signal may arrive before the run waits for it.
    """
    payload = json_value(data, "--data")

    async def send() -> RunState:
        async with opened(store) as hf:
            await hf.send_signal(run_id, name, payload, key)
            return await hf.run(run_id).state()

    _answer(as_json, run_id, run_quickly(send()), f"{run_id} got the signal {name}", signal=name)


@command()
@run_argument
@click.argument("name")
@click.option(
    "--data",
    default="null",
    metavar="JSON",
    help="Call the update with this value. `-` reads standard input.",
)
@click.option(
    "--key",
    metavar="KEY",
    help="Call the update under this key. The same key again is the same call, and prints the same answer.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait this long for the answer. The call stays recorded.",
)
def update(
    run_id: str, name: str, *, data: str, key: str | None, timeout: float, store: str, as_json: bool
) -> None:
    """Call an update of a run, and print its answer.

    \b
    holdfast update order-42 change_address --data '{"street": "Quay 2"}' --key change-7

    The call may come before the run serves it. The exit code is 1 if the run refuses it, if it ends in an error, or if
    there is no answer in time.
    """
    payload = json_value(data, "--data")

    async def call() -> tuple[Any, RunState]:
        async with opened(store) as hf:
            raw = await hf.call_update(run_id, name, payload, key, timeout)
            return json.loads(raw), await hf.run(run_id).state()

    answer, state = run_quickly(call())
    if as_json:
        output.print_json({"id": run_id, "state": str(state), "update": name, "reply": answer})
    else:
        output.say(json.dumps(answer, ensure_ascii=False))


@command()
@target_options
@note_option
@click.option(
    "--force",
    is_flag=True,
    help="Also stop a run that is undoing, and leave what is not undone yet. Ask again a run whose code heard the "
    "first request and goes on.",
)
def cancel(target: RunTarget, note: str, force: bool, store: str, as_json: bool) -> int:
    """Ask a run, or many, to cancel themselves.

    \b
    holdfast cancel order-42 --note 'the customer changed their mind'
    holdfast cancel --workflow order --state held --since 2h

    The workflow gets CancelledError where it waits, its running steps are cancelled, what it did is undone, and it ends
    cancelled. A run that is already undoing goes on with that. A run whose code catches the CancelledError goes on,
    too; --force asks it again.

    Several RUNs, or the options, choose many runs. The command says what would happen to them, and asks. The exit code is
    1 if some of them were left alone, and 2 if it cannot ask: then nothing happens without --yes. See `holdfast acts`.
    """
    if target.run_id is None:
        return act_on_many("cancel", target, ActOptions(force=force), note, store, as_json)
    run_id = target.run_id

    async def ask() -> tuple[RunState, bool, RunState]:
        async with opened(store) as hf:
            row = (await hf.run(run_id).rows()).run
            # A run that is stuck at a step in quarantine counts as running: its code can still get the CancelledError.
            before = RunState.RUNNING if row.resume is RunState.RUNNING else row.state
            heard = any(
                sent.name == CANCEL and sent.delivered_seq
                for sent in await hf.desk.signals.list(hf.who, run_id)
            )
            return before, heard, await hf.run(run_id).cancel(note, force=force)

    before, heard, state = run_quickly(ask())
    if heard and before is RunState.RUNNING:
        words = f"{run_id} is asked again to cancel itself"
        if not force:
            words = f"{run_id} was asked before: its code heard that, and is cleaning up or goes on; --force asks again"
    elif before in UNDOING and not force:
        goes_on = "and goes on with that" if before is RunState.UNDOING else "and waits for `retry` or `skip`"
        words = f"{run_id} is {before} already, {goes_on}; --force stops it where it is"
    elif before in UNDOING:
        words = f"{run_id} is asked to stop undoing where it is"
    elif before in RUN_ENDED:
        words = (
            f"{run_id} {in_words(state)} already: nothing to cancel"
            if state != "cancelled"
            else f"{run_id} was cancelled before"
        )
    else:
        words = f"{run_id} is cancelled" if state in RUN_ENDED else f"{run_id} is asked to cancel itself"
    _answer(as_json, run_id, state, words)
    return DONE


@command()
@target_options
@note_option
def retry(target: RunTarget, note: str, store: str, as_json: bool) -> int:
    """Try the waiting steps of a run at once, or go on with an ended run under a new id.

    \b
    holdfast retry order-42
    holdfast retry --state failed --error ConnectionError --since 1d

    If the run has not ended, its steps that wait for their next attempt are tried at once. Its steps in quarantine, and
    undos that made it stuck, are tried again. A run that failed, was cancelled or was undone goes on under a new id: it
    keeps all that was recorded, and executes again what ended the run and what was undone. Asking twice gives the same
    new run.

    Several RUNs, or the options, choose many runs; options without --state mean those that failed, were undone or are
    stuck. The command says what would happen to them, and asks. The exit code is 1 if some of them were left alone, and 2
    if it cannot ask: then nothing happens without --yes. See `holdfast acts`.
    """
    if target.run_id is None:
        return act_on_many("retry", target, ActOptions(), note, store, as_json)
    run_id = target.run_id
    if note:
        raise click.UsageError("--note is for acts on many runs here")

    async def ask() -> tuple[RunState, bool, str, RunState]:
        async with opened(store) as hf:
            before = (await hf.run(run_id).rows()).run
            again: Run[Any] = await hf.run(run_id).retry()
            return before.state, before.resume is not None, again.id, await again.state()

    before, poisoned, again, state = run_quickly(ask())
    if before is RunState.STUCK and poisoned:
        words = f"{run_id} is {state}: its steps in quarantine are tried again"
    elif before is RunState.STUCK:
        words = f"{run_id} is {state}: the undos that gave up are tried again"
    elif again == run_id:
        words = f"{run_id} is {state}: what backs off is tried at once"
    elif state in RUN_ENDED:
        words = f"{run_id} was retried before, as {again}, which {in_words(state)}"
    else:
        words = f"{again} {in_words(state)}: it goes on from where {run_id} ended"
    _answer(as_json, again, state, words, retry_of=None if again == run_id else run_id)
    return DONE


@command()
@target_options
@note_option
@click.option(
    "--from",
    "start",
    metavar="STEP",
    help="Execute this step again, and everything that the code asked for after it.",
)
@click.option(
    "--input",
    "text",
    metavar="JSON",
    help="Pass these arguments instead: an object by name. `-` reads standard input.",
)
@click.option(
    "--set",
    "results",
    multiple=True,
    metavar="STEP=JSON",
    help="Go on as if this step had returned this. May be repeated.",
)
@click.option("--id", "new_id", metavar="ID", help="Give the new run this id. [default: RUN-fork-1]")
def fork(
    *,
    target: RunTarget,
    note: str,
    start: str | None,
    text: str | None,
    results: tuple[str, ...],
    new_id: str | None,
    store: str,
    as_json: bool,
) -> int:
    """Start a new run from what another one recorded, with edits.

    \b
    holdfast fork order-42 --from ship
    holdfast fork order-42 --set 'quote={"cents": 900}'
    holdfast fork order-42 --input '{"card": "tok_2"}'
    holdfast fork --workflow order --state failed --from ship

    STEP is the key of a step, as `holdfast show` prints it. The new run keeps what was recorded before the point, and
    executes the rest itself. Without --from, that is after the first step with --set, from the beginning with --input,
    or else where RUN is now. The new run never undoes what it did not do. RUN is not changed, whatever its state is.

    Several RUNs, or the options, choose many runs, and each gets a fork. The command says what would happen, and asks. The
    exit code is 1 if some of them were left alone, and 2 if it cannot ask: then nothing happens without --yes. See `holdfast
    acts`.
    """
    if target.run_id is None:
        if text is not None or results or new_id is not None:
            raise click.UsageError("--input, --set and --id are for one run: name the RUN")
        return act_on_many("fork", target, ActOptions(start=start), note, store, as_json)
    run_id = target.run_id
    if note:
        raise click.UsageError("--note is for acts on many runs here")
    edited = dict(_result(item) for item in results)
    given = None if text is None else read_json(given_text(text), "--input")
    if text is not None and given is None:
        raise InvalidInput("--input: null is no input: give an object by the names of the arguments")

    async def ask() -> tuple[Forked, RunState]:
        async with opened(store) as hf:
            made = await hf.run(run_id).forked(start, given, edited, new_id)
            return made, await hf.run(made.id).state()

    made, state = run_quickly(ask())
    kept = f"keeps {counted(made.kept, 'step')}" if made.kept else "begins at the beginning"
    words = (
        f"{made.id} {in_words(state)}: it {kept} of {run_id}"
        if made.kept
        else f"{made.id} {in_words(state)}: it {kept}"
    )
    if made.undone:
        words += (
            f"\n{run_id} has undone {', '.join(made.undone)}, and the fork uses their results all the same: --from "
            f"{made.undone[0]} executes them again"
        )
    _answer(as_json, made.id, state, words, forked_from=run_id, kept=made.kept, undone_before=made.undone)
    return DONE


def _result(item: str) -> tuple[str, Any]:
    """Read STEP=JSON. The key of a step may contain `=`, and then the last one that leaves JSON counts."""
    for place in (index for index, letter in enumerate(item) if letter == "=" and index):
        try:
            return item[:place], read_json(item[place + 1 :], "--set")
        except InvalidInput:
            continue
    raise click.BadParameter(f"{item!r} is not of the form STEP=JSON", param_hint="--set")


@command()
@partial(target_options, runs=RUN_ARGUMENT)
@click.argument("step", required=False)
@click.option(
    "--note", required=True, metavar="TEXT", help="Say what was done by hand instead, for the journal."
)
def skip(target: RunTarget, step: str | None, note: str, store: str, as_json: bool) -> int:
    """Count an undo that gave up as done by hand.

    \b
    holdfast skip order-42 charge --note 'refunded by phone, ticket 812'
    holdfast skip --workflow order --state stuck --note 'refunded by the bank, ticket 900'

    STEP is the key of the step whose undo is skipped, as `holdfast show` prints it. Without STEP, every undo that gave
    up is skipped. The run then goes on, and ends undone.

    Without RUN, the options choose many runs, and every undo of theirs that gave up is skipped. The command says what would
    happen to them, and asks. The exit code is 1 if some of them were left alone, and 2 if it cannot ask: then nothing
    happens without --yes. See `holdfast acts`.
    """
    if target.run_id is None:
        return act_on_many("skip", target, ActOptions(), note, store, as_json)
    run_id = target.run_id

    async def ask() -> RunState:
        async with opened(store) as hf:
            return await hf.run(run_id).skip(step, note)

    what = f"the undo of {step}" if step else "every undo that gave up"
    _answer(as_json, run_id, run_quickly(ask()), f"{run_id}: {what} counts as done", step=step)
    return DONE


@command(namespace="none", needs_database=True)
def migrate(store: str, as_json: bool) -> None:
    """Bring the store's schema up to date.

    \b
    holdfast migrate --store postgresql://holdfast@db.example/holdfast

    Run it once for each new version of Holdfast, while no node is running. An empty database is set up without it.
    """

    async def run() -> tuple[int, int]:
        opening = open_store(store, Environment())
        try:
            return await opening.migrate()
        finally:
            await opening.close()

    before, after = run_quickly(run())
    shown = shown_address(store)
    if as_json:
        output.print_json({"store": shown, "from": before, "to": after})
    elif before == after:
        output.say(f"{shown} is at schema {after}: nothing to do")
    else:
        output.say(f"{shown} went from schema {before} to {after}")


def _answer(as_json: bool, run_id: str, state: RunState, words: str, **more: Any) -> None:
    if as_json:
        output.print_json({"id": run_id, "state": str(state), **more})
    else:
        output.say(words, state)
