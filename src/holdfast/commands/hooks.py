"""`hooks`: where webhooks come in, and how their senders sign them. A secret is shown once, when it is made."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from holdfast.access.signatures import Scheme
from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened
from holdfast.desk.filters import age
from holdfast.desk.hooks import HookMade
from holdfast.errors import InvalidInput
from holdfast.model import HookRow
from holdfast.namespaces import bare
from holdfast.terminal import output
from holdfast.terminal.lines import print_words
from holdfast.wire.paths import path_of

ACTS = ("list", "create", "rotate", "remove")
GRACE = "1d"
ONCE = "this is the only time that it is shown"


@command()
@click.argument("act", type=click.Choice(ACTS), default="list", metavar="[list|create|rotate|remove]")
@click.argument("name", required=False, metavar="[NAME]")
@click.option(
    "--scheme",
    type=click.Choice([str(one) for one in Scheme]),
    help="create: how the sender signs: Standard Webhooks, GitHub, Stripe, or a plain HMAC of the body.",
)
@click.option(
    "--secret-file",
    metavar="FILE",
    help="create, rotate: take the sender's secret from this file; `-` is standard input. [default: a new one]",
)
@click.option(
    "--header", metavar="NAME", help="create, of hmac: the header of the signature. [default: X-Signature]"
)
@click.option(
    "--grace",
    default=GRACE,
    show_default=True,
    metavar="AGE",
    help="rotate: let the old secret work on for this long.",
)
def hooks(
    *,
    act: str,
    name: str | None,
    scheme: str | None,
    secret_file: str | None,
    header: str | None,
    grace: str,
    store: str,
    as_json: bool,
) -> int:
    """List hooks, where webhooks come in, and make, rotate or remove one.

    \b
    holdfast hooks create billing --scheme standard
    holdfast hooks create github --scheme github --secret-file secret
    holdfast hooks rotate billing --grace 1d

    The sender posts to /v1/in/NAME of a server. A verified webhook is an event whose type begins with the hook's name. A
    new secret is printed once, on standard output.
    """
    if (act == "list") != (name is None):
        raise click.UsageError(f"{act} takes no name" if act == "list" else f"say which hook to {act}")
    if act == "list":
        return run_quickly(_list(store, as_json))
    assert name is not None
    if act == "remove":
        return run_quickly(_remove(name, store, as_json))
    secret = None if secret_file is None else _read(secret_file)
    if act == "create":
        if scheme is None:
            raise click.UsageError("say how the sender signs: --scheme standard, github, stripe or hmac")
        return run_quickly(_create(name, Scheme(scheme), secret, header, store, as_json))
    grace_s = age(grace)
    if grace_s is None:
        raise InvalidInput(f"--grace: {grace!r} is no length of time: write 30s, 5min, 2h or 1d")
    return run_quickly(_rotate(name, secret, grace_s, store, as_json))


def _read(file: str) -> str:
    try:
        return (sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")).strip()
    except (OSError, UnicodeDecodeError) as wrong:
        raise InvalidInput(f"--secret-file: {file} cannot be read: {wrong}") from None


async def _list(store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        found = await hf.desk.hooks.list(hf.who)
        if as_json:
            output.print_json([_object(one) for one in found])
            return DONE
        if not found:
            output.say("there is no hook")
        for one in found:
            print_words(f"{_path(one)} ", end=False)
            print_words(f"{one.scheme}, made by {one.actor} at {output.local_time(one.created_at)}", dim=True)
    sys.stdout.flush()
    return DONE


async def _create(
    name: str, scheme: Scheme, secret: str | None, header: str | None, store: str, as_json: bool
) -> int:
    async with opened(store) as hf:
        made = await hf.desk.hooks.create(hf.who, name, scheme, secret, header)
        _print(made, secret is None, as_json, f"webhooks come in at {_path(made.hook)}")
    return DONE


async def _rotate(name: str, secret: str | None, grace_s: float, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        made = await hf.desk.hooks.rotate(hf.who, name, secret, grace_s)
        _print(made, secret is None, as_json, f"hook {name} has another secret")
    return DONE


async def _remove(name: str, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        await hf.desk.hooks.remove(hf.who, name)
    if as_json:
        output.print_json({"removed": name})
    else:
        output.say(f"hook {name} is removed: what comes in there is refused")
    return DONE


def _print(made: HookMade, is_new: bool, as_json: bool, words: str) -> None:
    if as_json:
        output.print_json({**_object(made.hook), **({"secret": made.secret} if is_new else {})})
        return
    click.echo(words, err=True)
    if is_new:
        click.echo(f"the sender signs with this secret; {ONCE}:", err=True)
        print(made.secret, flush=True)


def _path(row: HookRow) -> str:
    return f"/v1/in/{path_of(row.name)}"


def _object(row: HookRow) -> dict[str, Any]:
    return {
        "name": bare(row.name),
        "path": _path(row),
        "scheme": row.scheme,
        "actor": row.actor,
        "created_at": output.moment(row.created_at),
        "rotated_at": output.moment(row.rotated_at),
        "old_until": output.moment(row.old_until),
    }
