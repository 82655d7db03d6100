"""`asks` and `answer`: which questions wait for people, and how to answer them."""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from holdfast.client import Holdfast
from holdfast.commands.errors import DONE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, json_value, note_option, opened
from holdfast.model import AskState
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words
from holdfast.wire import answers

ACTS = ("list", "show", "delegate", "link")
by_option = click.option(
    "--by",
    metavar="PERSON",
    help="Answer for this person: person:anna. [default: you, by your name on this host or your token]",
)


@command()
@click.argument("act", default="list", metavar="[ACT]")
@click.argument("ask", required=False, metavar="[ASK]")
@click.argument("to", required=False, metavar="[WHO]")
@click.option("--who", metavar="WHO", help="list: only those to person:anna, to team:finance, or to me.")
@click.option(
    "--run", "run_id", metavar="RUN", help="list: only those of this run, also those that have ended."
)
@click.option("--ended", is_flag=True, help="list: those that have ended, newest first.")
@click.option(
    "--team", metavar="TEAM", help="link: the team that is asked, if the person is not asked by name."
)
@by_option
@note_option
def asks(*, act: str, ask: str | None, to: str | None, store: str, as_json: bool, **given: Any) -> int:
    """List questions to people, show one, or hand it over.

    \b
    holdfast asks                                   all that are open, the oldest first
    holdfast asks --who team:finance
    holdfast asks 9f0c5a52d8c46b0e                  one of them, with its form
    holdfast asks delegate 9f0c5a52d8c46b0e person:bob --note "I am on holiday"
    holdfast asks link 9f0c5a52d8c46b0e person:anna  the path of a page by which she answers
    holdfast asks link 9f0c5a52d8c46b0e person:bob --team team:finance

    `holdfast answer` answers one.
    """
    if act not in ACTS:
        act, ask, to = "show", act, ask
    if act != "list" and ask is None:
        raise click.UsageError(f"say which ask to {act}: `holdfast asks` lists them")
    if (act in {"delegate", "link"}) != (to is not None):
        raise click.UsageError("say to whom, and only then: `holdfast asks delegate ASK person:NAME`")
    return run_quickly(_asks(act, ask or "", to or "", store, as_json, given))


async def _asks(act: str, ask: str, to: str, store: str, as_json: bool, given: dict[str, Any]) -> int:
    async with opened(store) as hf:
        now = await hf.now()
        if act == "list":
            found = await hf.asks.list(given["who"], run=given["run_id"], ended=given["ended"])
            if not _printed(found, as_json):
                _print_list(found, now)
            return DONE
        if act == "link":
            path = await hf.asks.link(ask, to, team=given["team"])
            if not _printed({"path": path}, as_json):
                output.say(path)
            return DONE
        one = await (
            hf.asks.get(ask) if act == "show" else hf.asks.delegate(ask, to, given["note"], by=given["by"])
        )
    if not _printed(one, as_json):
        _print_ask(one, now)
    return DONE


@command()
@click.argument("ask", metavar="ASK")
@click.option(
    "--data",
    required=True,
    metavar="JSON",
    help="The answer, as its form wants it. `-` reads standard input.",
)
@by_option
@note_option
def answer(*, ask: str, data: str, by: str | None, note: str, store: str, as_json: bool) -> int:
    """Answer a question to people.

    \b
    holdfast answer 9f0c5a52d8c46b0e --data '{"ok": true}' --note "within the budget"

    `holdfast asks` lists the questions. Giving the same answer again changes nothing. The exit code is 2 if
    the answer comes too late, or if this person has given another one.
    """
    value = json_value(data, "--data")

    async def send() -> answers.AskAnswered:
        async with opened(store) as hf:
            return await _answer(hf, ask, value, note, by)

    taken = run_quickly(send())
    if not _printed(taken, as_json):
        one, what = taken.ask, "answered" if taken.new else "had the same answer before"
        left = one.of - len(one.answers)
        more = f", {wording.counted(left, 'more answer')} wanted" if one.state is AskState.OPEN else ""
        output.say(f"ask {one.id} {what}{more}")
    return DONE


async def _answer(hf: Holdfast, ask: str, value: bytes, note: str, by: str | None) -> answers.AskAnswered:
    return await hf.desk.asks.answer(hf.who, ask, value, note, by=by)


def _printed(value: Any, as_json: bool) -> bool:
    """Print a value as JSON, if that was asked for."""
    if as_json:
        output.print_json(msgspec.json.decode(msgspec.json.encode(value)))
    return as_json


def _print_list(found: Any, now: float) -> None:
    if not found:
        output.say("nobody is asked anything: a workflow asks with `await ask(…)`")
    for one in found:
        _print_head(one, now)
    sys.stdout.flush()


def _print_head(one: answers.Ask, now: float) -> None:
    print_words(one.id, None if one.state is AskState.OPEN else "bright_black", end=False)
    print_words(f" {one.question}")
    print_words(f"  {_state(one, now)}", dim=True)


def _state(one: answers.Ask, now: float) -> str:
    asked = ", ".join(each.who for each in one.who if each.handed_to is None)
    words = [f"run {one.run}", f"asks {asked}", f"{len(one.answers)} of {one.of} answered"]
    if one.state is not AskState.OPEN:
        words.append(str(one.state))
    else:
        words.append(f"for {wording.span(max(0.0, now - one.asked_at.timestamp()))}")
        if one.expires_at is not None:
            words.append(f"expires in {wording.span(max(0.0, one.expires_at.timestamp() - now))}")
    return ", ".join(words)


def _print_ask(one: answers.Ask, now: float) -> None:
    _print_head(one, now)
    facts = {
        "shows": "" if bytes(one.show) == b"null" else bytes(one.show).decode(),
        "form": bytes(one.form).decode(),
        "not by": ", ".join(one.not_by),
    }
    for what, text in facts.items():
        if text:
            print_words(f"  {what:8}", dim=True, end=False)
            print_words(f" {text}")
    for each in one.answers:
        note = f" ({each.note})" if each.note else ""
        print_words(f"  {each.by} answered {bytes(each.value).decode()}{note}")
    for person in one.who:
        if person.handed_to is not None:
            print_words(f"  {person.who} handed it over to {person.handed_to}")
    sys.stdout.flush()
