"""`tokens`: who may speak to a server. A secret is shown once, when it is made."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from holdfast.access import ALL_NAMESPACES, Role
from holdfast.access.tokens import borne_by, namespaces, narrowed
from holdfast.codec import stored_text
from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import CommandStore, command, opened
from holdfast.desk.filters import age
from holdfast.errors import InvalidInput
from holdfast.model import DEFAULT_NAMESPACE, NewToken, TokenRow
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words

ACTS = ("list", "create", "rotate", "revoke")
EXPIRES = "90d"
GRACE = "1h"
LIST_MAX = 1000
NAME_MAX = 200
ONCE = "this is the only time that it is shown"


@command(namespace="none")
@click.argument("act", type=click.Choice(ACTS), default="list", metavar="[list|create|rotate|revoke]")
@click.argument("token_id", required=False, metavar="[ID]")
@click.option("--role", type=click.Choice([str(role) for role in Role]), help="What the token may do.")
@click.option("--name", metavar="NAME", help="Say who uses it, for the journal. [default: its role]")
@click.option(
    "--namespace",
    "given",
    multiple=True,
    metavar="NAME",
    help=f"Let it into this namespace; '{ALL_NAMESPACES}' is all. May be repeated. [default: {DEFAULT_NAMESPACE}]",
)
@click.option(
    "--can",
    multiple=True,
    metavar="PATTERN",
    help="Narrow it to these workflows, events, steps or labels: workflows:shop.*, events:order.*, steps:billing.*, labels:gpu. May be repeated.",
)
@click.option(
    "--who",
    multiple=True,
    metavar="WHO",
    help="Say who bears it: person:anna, and their teams: team:finance. May be repeated.",
)
@click.option("--no-payloads", is_flag=True, help="Do not show it inputs, results and logs.")
@click.option(
    "--expires",
    metavar="AGE",
    help=f"Let it expire after this time, such as 30d; never lets it last. [default: {EXPIRES}, or as before]",
)
@click.option(
    "--grace",
    default=GRACE,
    show_default=True,
    metavar="AGE",
    help="Let the old secret work on for this long.",
)
def tokens(
    *,
    act: str,
    token_id: str | None,
    role: str | None,
    name: str | None,
    given: tuple[str, ...],
    can: tuple[str, ...],
    who: tuple[str, ...],
    no_payloads: bool,
    expires: str | None,
    grace: str,
    store: str,
    as_json: bool,
) -> int:
    """List the tokens of servers, and make, rotate or revoke one.

    \b
    holdfast tokens create --role operator --name ci --expires 30d > token
    holdfast tokens rotate 1f0c5a52d8c46b0e9d1a7c33
    holdfast tokens revoke 1f0c5a52d8c46b0e9d1a7c33

    A token is printed once, on standard output, and never again: the store has only its digest. As soon as the first
    token exists, servers answer nobody without one. A revoked token is refused within a second. After `rotate`, the old
    secret works on for the grace time. The exit code is 1 if a token was revoked before.
    """
    if act in {"rotate", "revoke"} and token_id is None:
        raise click.UsageError(f"say which token to {act}: `holdfast tokens` lists their ids")
    if act in {"list", "create"} and token_id is not None:
        raise click.UsageError(f"{act} takes no id")
    if act == "create":
        if role is None:
            raise click.UsageError(
                "say what the token may do: --role viewer, starter, operator, answerer, agent or admin"
            )
        new = NewToken(
            "",
            stored_text(name or role, "--name", NAME_MAX),
            role,
            namespaces(given or (DEFAULT_NAMESPACE,)),
            narrowed(can),
            not no_payloads,
            b"",
            _seconds(expires or EXPIRES, "--expires"),
            borne_by(who, role),
        )
        return run_quickly(_create(new, store, as_json))
    if act == "rotate":
        grace_s = _seconds(grace, "--grace") or 0.0
        expires_s = None if expires is None else _seconds(expires, "--expires")
        return run_quickly(_rotate(token_id or "", grace_s, expires_s, store, as_json))
    if act == "revoke":
        return run_quickly(_revoke(token_id or "", store, as_json))
    return run_quickly(_list(store, as_json))


def _seconds(text: str, what: str) -> float | None:
    if text == "never":
        return None
    found = age(text)
    if found is None or not found < 1e10:
        raise InvalidInput(f"{what}: {text!r} is no length of time: write 30d, 12h or 90min")
    return found


async def _create(new: NewToken, store: str, as_json: bool) -> int:
    async with CommandStore(store, roles=()) as hf:
        made = await hf.desk.tokens.create(hf.who, new)
    _show(made.secret, made.token, as_json)
    return DONE


async def _rotate(token_id: str, grace_s: float, expires_s: float | None, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        made = await hf.desk.tokens.rotate(hf.who, _id(token_id), grace_s, expires_s)
    _show(made.secret, made.token, as_json)
    return DONE


def _show(text: str, row: TokenRow, as_json: bool) -> None:
    """Print a token, the only time. What goes with it is for people, on standard error."""
    if as_json:
        output.print_json(_object(row) | {"token": text})
        return
    until = "never expires" if row.expires_at is None else f"expires {output.local_time(row.expires_at)}"
    print_words(f"token {row.id} of {row.name}: {row.role}, {until}; {ONCE}", dim=True, err=True)
    print(text, flush=True)


async def _revoke(token_id: str, store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        done = await hf.desk.tokens.revoke(hf.who, _id(token_id))
    if as_json:
        output.print_json({"id": token_id, "revoked": done})
    else:
        output.say(f"token {token_id} is revoked" if done else f"token {token_id} was revoked before")
    return DONE if done else ENDED_OTHERWISE


def _id(text: str) -> str:
    """Return the id. Somebody who gives the whole token has put a secret where others can read it."""
    if text.startswith("hf_"):
        raise InvalidInput("give the id of the token, not the token: others can read a command line")
    return stored_text(text, "ID", NAME_MAX)


async def _list(store: str, as_json: bool) -> int:
    async with opened(store) as hf:
        found, now = await hf.desk.tokens.list(hf.who, LIST_MAX), await hf.now()
    if as_json:
        output.print_json([_object(row) | {"state": state_of(row, now)} for row in found])
        return DONE
    if not found:
        output.say("no token yet: servers answer to their own host alone; `holdfast tokens create` makes one")
    for row in found:
        state = state_of(row, now)
        print_words(row.id, None if state == "good" else "bright_black", end=False)
        where = ", ".join(msgspec.json.decode(row.namespaces, type=list[str]))
        print_words(f" {row.name}: {row.role} in {where}")
        used = "never used" if row.used_at is None else f"used {wording.span(now - row.used_at)} ago"
        print_words(f"  {_until(row, state, now)}, {used}, made by {row.made_by}", dim=True)
    sys.stdout.flush()
    return DONE


def state_of(row: TokenRow, now: float) -> str:
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if row.expires_at is not None and row.expires_at <= now else "good"


def _until(row: TokenRow, state: str, now: float) -> str:
    if state != "good":
        return state
    return "never expires" if row.expires_at is None else f"expires in {wording.span(row.expires_at - now)}"


def _object(row: TokenRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": row.name,
        "role": row.role,
        "namespaces": msgspec.json.decode(row.namespaces),
        "can": msgspec.json.decode(row.can),
        "payloads": row.payloads,
        "who": msgspec.json.decode(row.who),
        "made_by": row.made_by,
        "made_at": output.moment(row.made_at),
        "expires_at": output.moment(row.expires_at),
        "revoked_at": output.moment(row.revoked_at),
        "used_at": output.moment(row.used_at),
    }
