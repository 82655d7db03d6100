"""`emit` sends an event, and `events` says what became of those that came."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, json_value, opened
from holdfast.desk.events import SOURCE, EventsAsked, shown_emitted, shown_event
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.wire.cloudevents import made_event
from holdfast.wire.events import EmittedEvent, Event


@command()
@click.argument("type_", metavar="TYPE")
@click.option("--data", default="null", metavar="JSON", help="Send this value. `-` reads standard input.")
@click.option("--subject", metavar="TEXT", help="What the event is about, such as order-42.")
@click.option(
    "--source", default=SOURCE, show_default=True, metavar="TEXT", help="Where the event comes from."
)
@click.option(
    "--id",
    "event_id",
    metavar="ID",
    help="The same source and id again is the same event, and changes nothing. [default: a new one]",
)
@click.option("--time", metavar="TIME", help="When it happened, such as 2026-11-16T08:00:00Z.")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    metavar="NAME=TEXT",
    help="Another attribute. May be repeated.",
)
def emit(
    *,
    type_: str,
    data: str,
    subject: str | None,
    source: str,
    event_id: str | None,
    time: str | None,
    attributes: tuple[str, ...],
    store: str,
    as_json: bool,
) -> int:
    """Send an event.

    \b
    holdfast emit order.created --data '{"id": 42}' --subject order-42 --source shop --id 9f2
    holdfast emit payment.received --subject order-42 --data -

    It starts the workflows that are declared with on= this type, wakes the runs that wait for it, and arrives at the
    occasions of composed triggers.
    """
    given: dict[str, Any] = {}
    for one in attributes:
        name, equals, value = one.partition("=")
        if not equals:
            raise click.BadParameter(f"{one!r}: write NAME=TEXT", param_hint="--attribute")
        given[name] = value
    given |= {"type": type_, "source": source}
    given |= {name: value for name, value in (("subject", subject), ("time", time)) if value is not None}
    payload = json_value(data, "--data")

    async def send() -> EmittedEvent:
        async with opened(store) as hf:
            event = made_event({**given, "id": event_id or hf.environment.new_id()}, payload)
            (found,) = await hf.desk.events.emit(hf.who, [event])
            return shown_emitted(hf.who, found)

    found = run_quickly(send())
    if as_json:
        output.print_json(msgspec.to_builtins(found))
        return DONE
    before = "" if found.new else ", which had come before"
    output.say(f"{found.type} {found.id} from {found.source}{before}: {_fate(found)}")
    return DONE


def _fate(found: EmittedEvent | Event) -> str:
    parts = [f"started {', '.join(found.started)}"] if found.started else []
    parts += [f"woke {', '.join(found.woke)}"] if found.woke else []
    parts += [f"arrived at {', '.join(found.collected)}"] if found.collected else []
    parts += [f"came too late for {', '.join(found.late)}"] if found.late else []
    return "; ".join(parts) or "nobody takes it"


@command()
@click.argument("source", required=False)
@click.argument("event_id", required=False, metavar="[ID]")
@click.option("--type", "type_", metavar="TYPE", help="List only events of this type.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="N",
    help="List this many.",
)
def events(
    *, source: str | None, event_id: str | None, type_: str | None, limit: int, store: str, as_json: bool
) -> int:
    """List events, newest first, and what became of them.

    \b
    holdfast events --type order.created
    holdfast events shop 9f2                         one of them, with its data
    """
    if (source is None) != (event_id is None):
        raise click.UsageError("an event is named by its source and its id")
    if source is not None and event_id is not None:
        return run_quickly(_show(source, event_id, store, as_json))
    return run_quickly(_list(type_, limit, store, as_json))


async def _list(type_: str | None, limit: int, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        found: list[Event] = []
        where = EventsAsked(type=type_)
        while len(found) < limit:
            where.limit = limit - len(found)
            page = await hf.desk.events.list(hf.who, where)
            found += [shown_event(hf.who, one, with_data=False) for one in page.items]
            if page.next is None:
                break
            where.cursor = page.next
    if as_json:
        output.print_json([_object(one) for one in found])
        return DONE
    if not found:
        output.say(f"no event of the type {type_} has come" if type_ else "no event has come")
        return DONE
    for one in found:
        about = f" {one.subject}" if one.subject else ""
        print_words(f"{output.local_time(one.received_at.timestamp())} ", dim=True, end=False)
        print_words(f"{one.type}{about} ", end=False)
        print_words(f"{one.id} from {one.source} ", dim=True, end=False)
        print_words(_fate(one))
    sys.stdout.flush()
    return DONE


async def _show(source: str, event_id: str, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        seen = await hf.desk.events.get(hf.who, source, event_id)
        found = shown_event(hf.who, seen, with_data=True)
    if as_json:
        output.print_json(_object(found))
        return DONE
    lines = [
        f"{found.type} {found.id} from {found.source}",
        f"subject   {found.subject or '-'}",
        f"received  {output.local_time(found.received_at.timestamp())} from {found.actor}",
        f"happened  {found.time.isoformat() if found.time else '-'}",
        *(f"{name:<9} {value}" for name, value in found.attributes.items()),
        f"fate      {_fate(found)}",
        f"data      {bytes(found.data).decode()}",
    ]
    for line in lines:
        output.say(line)
    return DONE


def _object(found: Event) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
    return made
