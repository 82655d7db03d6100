"""`alerts`: what a person should know, and whether the channels that send it work."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import alerts_option, command, opened
from holdfast.environment import Environment
from holdfast.errors import InvalidSettings
from holdfast.model import Alert, AlertKind, Delivery, Level
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

LISTED_MAX = 500
COLOURS = {"info": "blue", "warning": "yellow", "error": "red"}


@command()
@click.argument(
    "act", type=click.Choice(["list", "test", "clear"]), default="list", metavar="[list|test|clear]"
)
@click.argument("ids", nargs=-1, type=int, metavar="[ID…]")
@click.option("--all", "everything", is_flag=True, help="List cleared alerts, too. For `list`.")
@click.option("--channel", metavar="NAME", help="Test only this channel. For `test`.")
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
    """List alerts, clear them, and test the channels that send them.

    \b
    holdfast alerts
    holdfast alerts test --alerts alerts.toml
    holdfast alerts clear 42

    `list`, the default, shows alerts that are open. `clear` closes alerts that somebody has seen to. `test` sends a
    notice through each channel of the --alerts file, and says whether the channel took it. The exit code is 1 if a
    channel failed, or if an alert to clear was not open.
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
        found = await hf.desk.alerts.list(hf.who, everything=everything, limit=LISTED_MAX)
        now = await hf.now()
    if as_json:
        output.print_json([alert_object(*one) for one in found])
        return
    if not found:
        output.say("no alert" if everything else "no open alert")
    for alert, words, deliveries in found:
        print_words(f"{alert.id} {alert.level}", COLOURS.get(alert.level), end=False)
        times = f", {alert.times} times" if alert.times > 1 else ""
        over = "" if alert.cleared_at is None else f", cleared {wording.span(now - alert.cleared_at)} ago"
        print_words(f" {alert.kind}: {words}")
        sent = "".join(f"; {_delivery_words(delivery)}" for delivery in deliveries)
        print_words(f"  {wording.span(now - alert.at)} ago{times}{over}{sent}", dim=True)
    if len(found) == LISTED_MAX:
        print_words(
            f"these are the newest {LISTED_MAX}: clear what is seen to, and older ones are listed",
            dim=True,
            err=True,
        )


def _delivery_words(delivery: Delivery) -> str:
    what = f"{delivery.channel} ({delivery.event})"
    if delivery.sent_at is not None:
        return f"{what} sent"
    tried = (
        f"after {wording.counted(delivery.attempts, 'attempt')}: {delivery.last_error}"
        if delivery.last_error
        else ""
    )
    if delivery.given_up_at is not None:
        return f"{what} given up {tried}"
    return f"{what} not yet sent {tried}".rstrip()


def alert_object(alert: Alert, words: str, deliveries: list[Delivery]) -> output.Object:
    return {
        "id": alert.id,
        "kind": alert.kind,
        "level": alert.level,
        "key": alert.key,
        "message": words,
        "run": alert.run_id,
        "times": alert.times,
        "at": output.moment(alert.at),
        "last_at": output.moment(alert.last_at),
        "cleared_at": output.moment(alert.cleared_at),
        "sent_at": output.moment(alert.sent_at),
        "deliveries": [
            {
                "id": delivery.id,
                "channel": delivery.channel,
                "event": delivery.event,
                "attempts": delivery.attempts,
                "next_try_at": (
                    None if delivery.sent_at or delivery.given_up_at else output.moment(delivery.next_try_at)
                ),
                "sent_at": output.moment(delivery.sent_at),
                "given_up_at": output.moment(delivery.given_up_at),
                "last_error": delivery.last_error,
            }
            for delivery in deliveries
        ],
    }


async def _test(file: str | None, channel: str | None, as_json: bool) -> int:
    from holdfast.supervisor.channels import Notice  # noqa: PLC0415  only a test needs it
    from holdfast.supervisor.channels.settings import load_channels  # noqa: PLC0415  loads mail and TLS
    from holdfast.supervisor.outbox import attempt  # noqa: PLC0415  the same

    if file is None:
        raise InvalidSettings(
            "there is no channel to test: name the settings file by --alerts or HOLDFAST_ALERTS"
        )
    environment = Environment()
    channels = load_channels(file, environment)
    chosen = [one for one in channels if channel in {None, one.name}]
    if not chosen:
        known = ", ".join(one.name for one in channels) or "none"
        what = f"no channel is called {channel!r}" if channel else "there is no channel"
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
        cleared = {alert: await hf.desk.alerts.clear(hf.who, alert) for alert in ids}
    if as_json:
        output.print_json([{"id": alert, "cleared": done} for alert, done in cleared.items()])
    else:
        for alert, done in cleared.items():
            output.say(f"alert {alert} is cleared" if done else f"alert {alert} is not open")
    return DONE if all(cleared.values()) else ENDED_OTHERWISE
