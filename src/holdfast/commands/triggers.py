"""`triggers` shows composed triggers and the occasions that wait for something, and starts or drops one."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, note_option, opened
from holdfast.durations import span
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.wire.triggers import Occasion, Trigger

ACTS = ("start", "drop")


@command()
@click.argument("name", required=False)
@click.argument("occasion", required=False, metavar="[start|drop OCCASION]")
@note_option
@click.option("--all", "everything", is_flag=True, help="Also list occasions that have ended.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 500),
    default=20,
    show_default=True,
    metavar="N",
    help="List this many occasions.",
)
def triggers(
    *,
    name: str | None,
    occasion: str | None,
    note: str,
    everything: bool,
    limit: int,
    store: str,
    as_json: bool,
) -> int:
    """List composed triggers and the occasions that still wait for something, or start or drop an occasion.

    \b
    holdfast triggers                       all triggers, and what is open
    holdfast triggers report --all          the newest occasions of one of them
    holdfast triggers start report@when:2026-11-16      now, without what is missing
    holdfast triggers drop report@when:2026-11-16       it starts nothing
    """
    if occasion is not None:
        if name not in ACTS:
            raise click.UsageError(f"expected one of {', '.join(ACTS)} before the occasion, not {name!r}")
        return run_quickly(_act(name, occasion, note, store, as_json))
    if note:
        raise click.UsageError("a note says why an occasion is started or dropped: name the occasion")
    return run_quickly(_list(name, None if everything else "open", limit, store, as_json))


async def _act(verb: str, occasion: str, note: str, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        act = hf.triggers.start if verb == "start" else hf.triggers.drop
        found, now = await act(occasion, note), await hf.now()
    if as_json:
        output.print_json(msgspec.to_builtins(found))
    else:
        _print_occasion(found, now)
    return DONE


async def _list(name: str | None, state: str | None, limit: int, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        known = [one for one in await hf.triggers.list() if name is None or one.name == name]
        occasions = await hf.triggers.occasions(name, state, limit)
        now = await hf.now()
    if name is not None and not known and not occasions:
        raise click.ClickException(f"there is no trigger {name!r}: `holdfast triggers` lists them")
    if as_json:
        found: dict[str, Any] = {"triggers": known, "occasions": occasions}
        output.print_json(msgspec.json.decode(msgspec.json.encode(found)))
        return DONE
    if not known and not occasions:
        output.say("no code has declared a composed trigger: see when(…) in the documentation")
        return DONE
    for one in known:
        _print_trigger(one)
    for each in occasions:
        _print_occasion(each, now)
    if known and not occasions:
        output.say("nothing waits" if state == "open" else "no occasion is known")
    sys.stdout.flush()
    return DONE


def _print_trigger(one: Trigger) -> None:
    print_words(f"{one.name} ", end=False)
    print_words(f"starts {one.workflow} when {one.needs} by {one.by}, ", dim=True, end=False)
    after = "" if one.next_at is None else f", next time {output.local_time(one.next_at.timestamp())}"
    print_words(f"within {span(one.within_s)}, otherwise {one.otherwise}{after}", dim=True)


def _print_occasion(one: Occasion, now: float) -> None:
    since = output.local_time(one.opened_at.timestamp())
    print_words(f"  {one.id} ", end=False)
    got = ", ".join(dict.fromkeys(each.part for each in one.arrived)) or "nothing"
    if one.state == "open":
        until = output.local_time(one.ends_at.timestamp())
        over = " (over)" if one.ends_at.timestamp() < now else ""
        words = f"waits for {', '.join(one.missing) or 'its trigger'} since {since}, until {until}{over}; has {got}"
    else:
        words = f"{one.state} {one.note}".rstrip() + f"; had {got}, opened {since}"
    print_words(words + (f"; {one.late} came too late" if one.late else ""), dim=one.state != "open")
