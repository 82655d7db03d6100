"""`limits`: how many may be at work at once under each key, who is, and who waits."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, note_option, opened
from holdfast.errors import InvalidInput
from holdfast.supervisor.phrases import ago
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.wire import answers


@command()
@click.argument("key", required=False, metavar="[KEY]")
@click.argument("more", nargs=-1, metavar="[set KEY N]")
@note_option
def limits(key: str | None, more: tuple[str, ...], note: str, store: str, as_json: bool) -> None:
    """List limits and rates, show who has slots and who waits, or set the number of one.

    \b
    holdfast limits
    holdfast limits customer:acme
    holdfast limits set customer:acme 2 --note "they are slow today"
    holdfast limits set customer:acme code      # the number of the code counts again

    A number counts at the next claim. If it is lowered, what runs goes on, and nothing begins until there is room.
    """
    if key == "set":
        if len(more) != 2:
            raise InvalidInput("say which key and which number: `holdfast limits set KEY N`")
        answer: Any = run_quickly(_set(store, more[0], _number(more[1]), note))
    elif more or note:
        raise InvalidInput("`holdfast limits KEY` shows one limit; `holdfast limits set KEY N` changes it")
    else:
        answer = run_quickly(_asked(store, key))
    if as_json:
        output.print_json(msgspec.to_builtins(answer[0] if isinstance(answer, tuple) else answer))
    elif isinstance(answer, list):
        if not answer:
            print_words("there are no limits: code declares them, with @step(limits=[…])")
        for one in answer:
            print_words(_words(one))
    elif isinstance(answer, answers.Limit):
        print_words(_words(answer))
    else:
        _print_seen(*answer)
    raise SystemExit(DONE)


def _number(text: str) -> int | None:
    if text == "code":
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(
            f"{text!r}: expected a whole number, or `code` for the number of the code"
        ) from None


async def _set(store: str, key: str, most: int | None, note: str) -> answers.Limit:
    async with opened(store) as hf:
        return await hf.limits.set(key, most, note)


async def _asked(store: str, key: str | None) -> list[answers.Limit] | tuple[answers.LimitSeen, float]:
    async with opened(store) as hf:
        if key is None:
            return await hf.limits.list()
        return await hf.limits.show(key), await hf.now()


def _words(one: answers.Limit) -> str:
    if one.kind == "rate":
        words = f"{one.key}  {one.most} in {one.per_s:g} s, burst {one.burst}"
        if one.next_s is not None:
            words += f", the next in {ago(one.next_s)}"
    else:
        words = f"{one.key}  {one.used} of {one.most}"
        if one.adaptive and not one.is_set:
            words += f", adaptive from {one.least} to {one.declared}" + (
                f": {one.moved}" if one.moved else ""
            )
    if one.is_set:
        words += f", set by {one.actor} (the code says {one.declared})"
    return words + (f": {one.note}" if one.note else "")


def _print_seen(seen: answers.LimitSeen, now: float) -> None:
    print_words(_words(seen.limit))
    for title, uses in (("has a slot", seen.holders), ("waits", seen.waiters)):
        for one in uses:
            what = f"run {one.run}" if one.n == 0 else f"step {one.n} ({one.name}) of run {one.run}"
            weight = f", weight {one.weight}" if one.weight > 1 else ""
            print_words(f"  {what} {title}, for {ago(now - one.since)}{weight}")
