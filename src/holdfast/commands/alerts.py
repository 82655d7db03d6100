"""`alerts`: what a person should know, and whether the channels that tell it work."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from holdfast.actor import actor
from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import alerts_option, command, opened
from holdfast.environment import Environment
from holdfast.errors import InvalidSettings
from holdfast.model import Alert, AlertKind, Delivery, Level
from holdfast.supervisor.alerts import in_words
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

LISTED_MAX = 500
COLOURS = {"info": "blue", "warning": "yellow", "error": "red"}


@command()
@click.argument(
    "act", type=click.Choice(["list", "test", "clear"]), default="list", metavar="[list|test|clear]"
)
@click.argument("ids", nargs=-1, type=int, metavar="[ID…]")
@click.option("--all", "everything", is_flag=True, help="With list: cleared alerts, too.")
@click.option("--channel", metavar="NAME", help="With test: only this channel.")
@alerts_option
def alerts(
    *,
    act: str,
    ids: tuple[int, ...],
    everything: bool,
    channel: str | None,
    alerts: str | None,
    store: str,
    as_json: bool,
) -> int:
    """List what a person should know, and test how it is told.

    \b
    holdfast alerts
    holdfast alerts test --alerts alerts.toml
    holdfast alerts clear 42

    `test` sends a notice through each channel of the file, and says what became of it; exit code 1 when one failed. `clear`
    closes alerts that somebody has seen to.
    """
    if act == "test":
        return run_quickly(_test(alerts, channel, as_json))
    if act == "clear":
        if not ids:
            raise click.UsageError("name the alerts to clear by their ids, as `holdfast alerts` lists them")
        return run_quickly(_clear(ids, store, as_json))
    run_quickly(_list(everything, store, as_json))
    return DONE


async def _list(everything: bool, store: str, as_json: bool) -> None:
    async with opened(store) as hf:
        found = await (
            hf.store.alerts.alerts(LISTED_MAX) if everything else hf.store.alerts.open_alerts(LISTED_MAX)
        )
        deliveries = await hf.store.alerts.deliveries([alert.id for alert in found])
        now = await hf.store.now()
    told: dict[int, list[Delivery]] = {}
    for one in deliveries:
        told.setdefault(one.alert_id, []).append(one)
    if as_json:
        output.print_json([alert_object(alert, told.get(alert.id, [])) for alert in found])
        return
    if not found:
        output.say("no alert" if everything else "no open alert")
    for alert in found:
        print_words(f"{alert.id} {alert.level}", COLOURS.get(alert.level), end=False)
        times = f", {alert.times} times" if alert.times > 1 else ""
        over = "" if alert.cleared_at is None else f", cleared {wording.span(now - alert.cleared_at)} ago"
        print_words(f" {alert.kind}: {in_words(alert)}")
        ways = "".join(f"; {_way(one)}" for one in told.get(alert.id, []))
        print_words(f"  {wording.span(now - alert.at)} ago{times}{over}{ways}", dim=True)
    if len(found) == LISTED_MAX:
        print_words(f"the newest {LISTED_MAX}: clear what is seen to, and see older ones", dim=True, err=True)


def _way(one: Delivery) -> str:
    what = f"{one.channel} ({one.event})"
    if one.sent_at is not None:
        return f"{what} told"
    tried = f"after {wording.counted(one.attempts, 'attempt')}: {one.last_error}" if one.last_error else ""
    return (
        f"{what} given up {tried}" if one.given_up_at is not None else f"{what} not yet told {tried}".rstrip()
    )


def alert_object(alert: Alert, deliveries: list[Delivery]) -> output.Object:
    return {
        "id": alert.id,
        "kind": alert.kind,
        "level": alert.level,
        "key": alert.key,
        "message": in_words(alert),
        "run": alert.run_id,
        "times": alert.times,
        "at": output.moment(alert.at),
        "last_at": output.moment(alert.last_at),
        "cleared_at": output.moment(alert.cleared_at),
        "sent_at": output.moment(alert.sent_at),
        "deliveries": [
            {
                "id": one.id,
                "channel": one.channel,
                "event": one.event,
                "attempts": one.attempts,
                "next_try_at": None if one.sent_at or one.given_up_at else output.moment(one.next_try_at),
                "sent_at": output.moment(one.sent_at),
                "given_up_at": output.moment(one.given_up_at),
                "last_error": one.last_error,
            }
            for one in deliveries
        ],
    }


async def _test(file: str | None, channel: str | None, as_json: bool) -> int:
    from holdfast.supervisor.channels import Notice  # noqa: PLC0415  only for a test
    from holdfast.supervisor.channels.settings import load_channels  # noqa: PLC0415  loads mail and TLS
    from holdfast.supervisor.outbox import attempt  # noqa: PLC0415  the same

    if file is None:
        raise InvalidSettings("no channel to test: name the settings file by --alerts or HOLDFAST_ALERTS")
    environment = Environment()
    channels = load_channels(file, environment)
    chosen = [one for one in channels if channel in {None, one.name}]
    if not chosen:
        known = ", ".join(one.name for one in channels) or "none"
        what = f"no channel is called {channel!r}" if channel else "no channel"
        raise InvalidSettings(f"{file}: {what}; it has: {known}")

    def notice() -> Notice:
        return Notice(
            delivery=environment.new_id(),
            event="test",
            kind=AlertKind.TEST,
            level=Level.INFO,
            message=f"a test from {environment.host}: this channel works",
            at=environment.now(),
        )

    answers = await asyncio.gather(*(attempt(one, notice()) for one in chosen))
    found: list[dict[str, Any]] = [
        {"channel": one.name, "type": one.type, "ok": error is None, "error": error}
        for one, error in zip(chosen, answers, strict=True)
    ]
    if as_json:
        output.print_json(found)
    else:
        for row in found:
            words = "took it" if row["ok"] else row["error"]
            output.say(f"{row['channel']} ({row['type']}): {words}", "succeeded" if row["ok"] else "failed")
    return DONE if all(row["ok"] for row in found) else ENDED_OTHERWISE


async def _clear(ids: tuple[int, ...], store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        cleared = {one: await hf.store.alerts.clear_alert(one, actor()) for one in ids}
    if as_json:
        output.print_json([{"id": one, "cleared": done} for one, done in cleared.items()])
    else:
        for one, done in cleared.items():
            output.say(f"alert {one} is cleared" if done else f"alert {one} is not open")
    return DONE if all(cleared.values()) else ENDED_OTHERWISE
