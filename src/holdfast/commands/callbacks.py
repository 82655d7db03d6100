"""`callback`: end a callback in place of the other system."""

from __future__ import annotations

import click
import msgspec
from msgspec import Raw

from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, json_value, note_option, opened
from holdfast.terminal import output
from holdfast.wire import answers
from holdfast.wire.requests import CallbackError, CallbackResult


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

    STEP is the key, the name or the number of the step, if the run waits for several callbacks. The same answer again is the
    same answer. The exit code is 2 if another answer came first, or nobody waits for it any more.
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
