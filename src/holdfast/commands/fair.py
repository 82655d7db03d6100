"""`fair`: whom work is for, and how it is shared between them."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, note_option, opened
from holdfast.errors import InvalidInput
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.wire import answers

ACTS = ("list", "set")


@command()
@click.argument("act", default="list", metavar="[list|set]")
@click.argument("key", required=False, metavar="[KEY]")
@click.argument("weight", required=False, type=int, metavar="[WEIGHT]")
@note_option
def fair(act: str, key: str | None, weight: int | None, note: str, store: str, as_json: bool) -> None:
    """List fair keys and their weights, or set a weight.

    \b
    holdfast fair
    holdfast fair set acme 3

    While work of two keys waits, each gets places by its weight. A key that has none has the weight 1. A weight counts at
    the next claim, also for what waits already.
    """
    if act not in ACTS:
        raise InvalidInput(f"{act!r}: expected one of {', '.join(ACTS)}")
    if act == "set" and (key is None or weight is None):
        raise InvalidInput("say which key and which weight: `holdfast fair set KEY N`")
    if act == "list" and (key is not None or note):
        raise InvalidInput("`holdfast fair` lists all keys; `holdfast fair set KEY N` changes one")
    answer: Any = run_quickly(_asked(store, key, weight, note))
    if as_json:
        output.print_json(msgspec.to_builtins(answer))
    elif isinstance(answer, list):
        _print(answer)
    else:
        print_words(f"{answer.key} has the weight {answer.weight}")
    raise SystemExit(DONE)


async def _asked(
    store: str, key: str | None, weight: int | None, note: str
) -> list[answers.FairKey] | answers.FairKey:
    async with opened(store) as hf:
        if key is None or weight is None:
            return await hf.limits.fairs()
        return await hf.limits.set_fair(key, weight, note)


def _print(found: list[answers.FairKey]) -> None:
    if not found:
        print_words("no work has a fair key: start a run with using(fair=…)")
    for one in found:
        by = f", set by {one.actor}" if one.actor else ""
        print_words(f"{one.key}  weight {one.weight}{by}{': ' + one.note if one.note else ''}")
