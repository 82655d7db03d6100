"""`callbacks` and `callback`: which callbacks wait, and how to end one in place of the other system."""

from __future__ import annotations

import sys

import click
import msgspec
from msgspec import Raw

from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, json_value, note_option, opened
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words
from holdfast.wire import answers
from holdfast.wire.requests import CallbackError, CallbackResult


@command()
@click.option("--run", "run_id", metavar="RUN", help="Only those of this run.")
@click.option(
    "--workflow", metavar="NAME", help="Only those of this workflow: its name, or the last part of it."
)
@click.option("--step", metavar="NAME", help="Only those of this step: its name, or the last part of it.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="List this many.",
)
def callbacks(
    *,
    run_id: str | None,
    workflow: str | None,
    step: str | None,
    limit: int,
    store: str,
    as_json: bool,
) -> int:
    """List the callbacks that wait, the oldest first.

    \b
    holdfast callbacks                      all for which runs wait
    holdfast callbacks --step charge

    The list says for which step each run waits, since when and until when. It has no addresses: whoever has one may end the
    call. `holdfast callback` ends one in place of the other system.
    """
    return run_quickly(_list(run_id, workflow, step, limit, store, as_json))


async def _list(
    run_id: str | None, workflow: str | None, step: str | None, limit: int, store: str, as_json: bool
) -> int:
    async with opened(store) as hf:
        found = list(await hf.callbacks.list(run=run_id, workflow=workflow, step=step, limit=limit + 1))
        now = await hf.now()
    shown, is_all = found[:limit], len(found) <= limit
    if as_json:
        output.print_json(msgspec.json.decode(msgspec.json.encode(shown)))
        return DONE
    if not shown:
        output.say("no run waits for a callback")
    for one in shown:
        _print_callback(one, now)
    if not is_all:
        print_words(f"these are the oldest {limit}; --limit lists more", dim=True, err=True)
    sys.stdout.flush()
    return DONE


def _print_callback(one: answers.Callback, now: float) -> None:
    print_words(f"{one.run} {one.key}", end=False)
    print_words(f" {_words(one, now)}", dim=True)


def _words(one: answers.Callback, now: float) -> str:
    """Say what waits, since when and until when, and how often it was asked for."""
    if one.since is None:
        called = wording.span(max(0.0, now - one.issued_at.timestamp()))
        words = [f"is not asked for yet, called {called} ago"]
    else:
        words = [f"has been waiting for {wording.span(max(0.0, now - one.since.timestamp()))}"]
    if one.expires_at is not None:
        left = one.expires_at.timestamp() - now
        words.append(f"expires in {wording.span(left)}" if left > 0 else "its time is over")
    if one.of > 1 and one.expires_s is not None:
        words.append(f"asked for {one.number} of {one.of} times")
    words.append(one.workflow if one.step == one.key else f"step {one.step} of {one.workflow}")
    return ", ".join(words)


@command()
@click.argument("run_id", metavar="RUN")
@click.argument("step", required=False, metavar="[STEP]")
@click.option("--data", metavar="JSON", help="The result, as the step returns it. `-` reads standard input.")
@click.option("--error", metavar="TEXT", help="Let the step fail, with this message.")
@click.option(
    "--error-type", default="Error", metavar="NAME", help="With --error: its kind. [default: Error]"
)
@note_option
def callback(
    *,
    run_id: str,
    step: str | None,
    data: str | None,
    error: str | None,
    error_type: str,
    note: str,
    store: str,
    as_json: bool,
) -> int:
    """End a callback in place of the other system.

    \b
    holdfast callback order-42 --data '{"receipt": "r-1"}'
    holdfast callback order-42 charge --error "card declined" --error-type CardDeclined

    `holdfast callbacks` lists those that wait. STEP is the key, the name or the number of the step, if the run waits for
    several. Giving the same answer again changes nothing. The exit code is 2 if another answer came first, or nobody
    waits for it any more.
    """
    if (data is None) is (error is None):
        raise click.UsageError("give the result with --data, or let the step fail with --error")
    result = CallbackResult()
    if data is not None:
        result.output = Raw(json_value(data, "--data"))
    else:
        result.error = CallbackError(message=error or "", type=error_type)

    async def send() -> answers.CalledBack:
        async with opened(store) as hf:
            return await hf.desk.callbacks.answer(hf.who, run_id, step, result, note)

    taken = run_quickly(send())
    if as_json:
        output.print_json(msgspec.to_builtins(taken))
    else:
        output.say(f"run {run_id} {'was called back' if taken.new else 'had the same answer before'}")
    return DONE
