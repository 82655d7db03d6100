"""`schedules`: which workflows start at which times, what became of those times, and how to change that."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from holdfast.client import Holdfast
from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, given_text, note_option, opened, tag_option
from holdfast.desk.filters import age
from holdfast.desk.schedules import BackfillRequest, ScheduleRequest
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.model import FireFate, ScheduleState
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words
from holdfast.times import Calendar, Plan
from holdfast.times.backfill import AGAIN
from holdfast.times.plan import Overlap
from holdfast.wire import answers
from holdfast.workflow.every import every

ACTS = ("list", "show", "preview", "pause", "resume", "run", "create", "remove", "backfill", "stop")
FIRES_SHOWN, PLANNED_SHOWN = 20, 200


@command()
@click.argument("act", default="list", metavar="[ACT]")
@click.argument("name", required=False, metavar="[NAME]")
@click.argument("more", required=False, metavar="[WORKFLOW|BACKFILL]")
@note_option
@click.option(
    "--count",
    "-n",
    "many",
    type=click.IntRange(1, 1000),
    default=10,
    metavar="N",
    help="preview: how many times.",
)
@click.option("--anyway", is_flag=True, help="run: start it whatever is open.")
@click.option(
    "--from", "begin", metavar="TIME", help="backfill: the first time, in the schedule's zone: 2026-11-01."
)
@click.option("--to", "end", metavar="TIME", help="backfill: the last time.")
@click.option("--dry-run", is_flag=True, help="backfill: only print what it would do.")
@click.option("--newest-first", is_flag=True, help="backfill: begin with the newest time.")
@click.option(
    "--most",
    type=click.IntRange(1, 1000),
    default=3,
    metavar="N",
    help="backfill: how many runs at once. [default: 3]",
)
@click.option(
    "--again",
    type=click.Choice(AGAIN),
    default="none",
    help="backfill: which times run again that have run. [default: none]",
)
@click.option(
    "--times",
    metavar="TEXT",
    help="create: a cron expression, an interval such as 15m, a date, or several with |.",
)
@click.option("--input", "text", metavar="JSON", help="create: the arguments, as an object by name.")
@click.option(
    "--tz",
    default="UTC",
    show_default=True,
    metavar="ZONE",
    help="create: the time zone, such as Europe/Oslo.",
)
@click.option(
    "--skip",
    metavar="FILE",
    help="create: leave out the days of this calendar: JSON with name, days and until.",
)
@click.option("--only", metavar="FILE", help="create: keep to the days of this calendar.")
@click.option(
    "--shift",
    type=click.Choice(["next", "previous"]),
    help="create: move times to the nearest day that is kept.",
)
@click.option(
    "--overlap",
    type=click.Choice(get_args(Overlap)),
    default="skip",
    help="create: what if a run is open. [default: skip]",
)
@click.option(
    "--missed",
    default="once",
    metavar="skip|once|N",
    help="create: which missed times are made up for. [default: once]",
)
@click.option(
    "--window",
    metavar="AGE",
    default="1d",
    help="create: how far back missed times are made up for. [default: 1d]",
)
@click.option("--jitter", metavar="AGE", help="create: delay each start by up to this.")
@click.option("--starts", metavar="TIME", help="create: no time before this.")
@click.option("--ends", metavar="TIME", help="create: no time after this.")
@click.option("--runs", "runs", type=click.IntRange(1), metavar="N", help="create: end after this many runs.")
@click.option(
    "--pause-after",
    type=click.IntRange(1),
    metavar="N",
    help="create: pause after this many failures in a row.",
)
@click.option(
    "--due",
    metavar="TIME|AGE",
    help="create: promise that each run ends by this wall time, such as 06:00, or within 2h.",
)
@click.option(
    "--version", metavar="VERSION", help="create: the version of the workflow. [default: the newest declared]"
)
@click.option("--priority", type=int, metavar="N", help="create: the priority of its runs.")
@click.option("--fair", metavar="KEY", help="create: say whom its runs are for, such as a customer.")
@tag_option("create: give its runs this tag.")
@click.option("--replace", is_flag=True, help="create: change the schedule that has this name.")
def schedules(
    *, act: str, name: str | None, more: str | None, store: str, as_json: bool, **given: Any
) -> int:
    """List schedules, and preview, pause, run, create or backfill one.

    \b
    holdfast schedules                              all of them
    holdfast schedules nightly                      one of them, with what became of its times
    holdfast schedules preview nightly -n 20        its next times, in its own zone
    holdfast schedules pause nightly --note "the warehouse counts its stock"
    holdfast schedules resume nightly
    holdfast schedules run nightly                  now, by its overlap policy
    holdfast schedules create nightly app.nightly --times "0 3 * * 1-5" --tz Europe/Oslo --input '{"day": "today"}'
    holdfast schedules remove nightly
    holdfast schedules backfill nightly --from 2026-11-01 --to 2026-11-07 --dry-run
    holdfast schedules stop nightly BACKFILL        a backfill starts no further run

    A schedule that code declares is changed there: here it can be paused, resumed, run and backfilled. The exit code of
    `run` is 1 if the time was skipped, and that of `create` is 1 if the same schedule exists already.
    """
    if act not in ACTS:
        act, name, more = "show", act, name
    if act != "list" and name is None:
        raise click.UsageError(f"say which schedule to {act}: `holdfast schedules` lists them")
    if (act in {"create", "stop"}) != (more is not None):
        wanted = {"create": "the workflow", "stop": "the id of the backfill"}
        raise click.UsageError(f"{act} needs {wanted[act]}" if act in wanted else f"{act} takes one name")
    return run_quickly(_act(act, name or "", more or "", store, as_json, given))


async def _act(act: str, name: str, more: str, store: str, as_json: bool, given: dict[str, Any]) -> int:
    async with opened(store) as hf:
        if act == "create":
            return await _create(hf, name, more, as_json, given)
        if act == "backfill":
            return await _backfill(hf, name, as_json, given)
        return await _simple(hf, act, name, more, as_json, given)


async def _simple(hf: Holdfast, act: str, name: str, more: str, as_json: bool, given: dict[str, Any]) -> int:
    book, note = hf.schedules, given["note"]
    match act:
        case "list":
            found = await book.list()
            if not _print(found, as_json):
                _print_list(found, await hf.now())
        case "show":
            return await _show(hf, name, as_json)
        case "preview":
            times = await book.preview(name, given["many"])
            if not _print(times, as_json):
                _print_preview(times)
        case "pause" | "resume":
            changed = await (book.pause if act == "pause" else book.resume)(name, note)
            if not _print(changed, as_json):
                output.say(f"schedule {name} is {changed.state}")
        case "run":
            fire = await book.run(name, note, anyway=given["anyway"])
            words = f"started {fire.run}" if fire.run else f"{fire.fate}: {fire.why}"
            if not _print(fire, as_json):
                output.say(words)
            return ENDED_OTHERWISE if fire.fate is FireFate.SKIPPED else DONE
        case "remove":
            await book.remove(name, note)
            if not _print({"name": name, "removed": True}, as_json):
                output.say(f"schedule {name} is removed; its runs stay")
        case _:
            stopped = await book.stop_backfill(name, more)
            if not _print(stopped, as_json):
                output.say(f"backfill {stopped.id} is {stopped.state}")
    return DONE


def _print(value: Any, as_json: bool) -> bool:
    """Print a value as JSON, if that was asked for."""
    if as_json:
        output.print_json(_plain(value))
    return as_json


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


# --- list, show, preview --------------------------------------------------------------------------------------------------


def _print_list(found: list[answers.Schedule], now: float) -> None:
    if not found:
        output.say("no schedule yet: write every(…)(workflow) in your code, or `holdfast schedules create`")
    for one in found:
        print_words(one.name, None if one.state is ScheduleState.ACTIVE else "bright_black", end=False)
        print_words(f" {one.times} {one.tz} → {one.workflow}")
        print_words(f"  {_state(one, now)}", dim=True)
    sys.stdout.flush()


def _state(one: answers.Schedule, now: float) -> str:
    words = []
    if one.state is ScheduleState.ACTIVE and one.next_at is not None:
        left_s = one.next_at.timestamp() - now
        words.append(f"next in {wording.span(left_s)}" if left_s > 0 else "due")
    else:
        words.append(
            f"{one.state}{f' by {one.actor}' if one.actor else ''}{f': {one.note}' if one.note else ''}"
        )
    if one.open:
        words.append(f"open: {', '.join(one.open[:3])}{' …' if len(one.open) > 3 else ''}")
    if one.waiting:
        words.append(f"{wording.counted(len(one.waiting), 'time')} waiting")
    if one.failures:
        words.append(f"{wording.counted(one.failures, 'failure')} in a row")
    return ", ".join(words)


async def _show(hf: Holdfast, name: str, as_json: bool) -> int:
    one, fires = await hf.schedules.get(name), await hf.schedules.fires(name, FIRES_SHOWN)
    fills, now = await hf.schedules.backfills(name), await hf.now()
    if as_json:
        output.print_json(_plain(one) | {"fires": _plain(fires), "backfills": _plain(fills)})
        return DONE
    print_words(f"{one.name} {one.times} {one.tz}")
    plan = msgspec.json.decode(bytes(one.plan), type=Plan)
    facts = {
        "workflow": f"{one.workflow} version {one.version}",
        "input": bytes(one.input).decode(),
        "state": _state(one, now),
        "declared by": one.origin or f"nobody's code: made by {one.actor}",
        "overlap": plan.overlap,
        "missed": plan.missed if plan.missed != "all" else f"the newest {plan.missed_max}",
        "due": plan.due or ("" if plan.due_s is None else f"within {wording.span(plan.due_s)}"),
        "for": plan.fair or "",
        "last success": one.last_run or "",
    }
    for what, value in facts.items():
        if value:
            print_words(f"  {what:12}", dim=True, end=False)
            print_words(f" {value}")
    for fire in fires:
        many = (
            f" and {fire.times - 1} more until {plan.shown(fire.last_at.timestamp())}"
            if fire.times > 1
            else ""
        )
        what = f"{fire.fate} {fire.run or ''}".rstrip()
        print_words(f"{plan.shown(fire.at.timestamp())}{many} ", end=False)
        print_words(f"{what}{f' ({fire.why})' if fire.why else ''}")
    for fill in fills:
        words = f"backfill {fill.id}: {fill.state}, {fill.started} started, {fill.passed} left alone"
        print_words(words, dim=True)
    sys.stdout.flush()
    return DONE


def _print_preview(times: Any) -> None:
    for one in times:
        late = (one.starts_at - one.at).total_seconds()
        jitter = f" starts {late:.0f} s later" if late >= 0.5 else ""
        left_out = one.note.startswith("left out")
        print_words(
            f"{one.at.isoformat(sep=' ', timespec='seconds')}{jitter}",
            "bright_black" if left_out else None,
            end=False,
        )
        print_words(f" {one.note}", dim=True)
    sys.stdout.flush()


# --- create, backfill -------------------------------------------------------------------------------------------------------


async def _create(hf: Holdfast, name: str, workflow: str, as_json: bool, given: dict[str, Any]) -> int:
    if not given["times"]:
        raise click.UsageError("say when: --times '0 3 * * *', or --times 15m")
    missed: str = given["missed"]
    span = None if given["due"] is None else age(given["due"])
    try:
        when = every(
            given["times"],
            tz=given["tz"],
            name=name,
            skip=_calendar(given["skip"], "--skip"),
            only=_calendar(given["only"], "--only"),
            shift=given["shift"],
            start=given["starts"],
            end=given["ends"],
            count=given["runs"],
            overlap=given["overlap"],
            missed=int(missed) if missed.isdigit() else missed,
            window=_seconds(given["window"], "--window"),
            jitter=None if given["jitter"] is None else _seconds(given["jitter"], "--jitter"),
            pause_after=given["pause_after"],
            due=given["due"] if span is None else None,
        )
    except DefinitionError as wrong:
        raise InvalidInput(str(wrong).partition("every(…): ")[2] or str(wrong)) from None
    request = ScheduleRequest(
        name,
        workflow,
        when.plan,
        b"{}" if given["text"] is None else given_text(given["text"]).encode(),
        given["version"],
        given["tags"],
        given["priority"],
        None,
        given["replace"],
        span,
        given["fair"],
    )
    is_new = await hf.desk.schedules.create(hf.who, request)
    made = await hf.schedules.get(name)
    words = f"schedule {name} is made" if is_new else f"schedule {name} exists already"
    if not _print(made, as_json):
        output.say(f"{words}: {_state(made, await hf.now())}")
    return DONE if is_new else ENDED_OTHERWISE


def _seconds(text: str, what: str) -> float:
    found = age(text)
    if found is None:
        raise InvalidInput(f"{what}: {text!r} is no length of time: write 30s, 5min, 2h or 1d")
    return found


def _calendar(file: str | None, what: str) -> Calendar | None:
    if file is None:
        return None
    try:
        read = msgspec.json.decode(Path(file).read_bytes())
        return Calendar(read["name"], read["days"], read["until"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError) as wrong:
        raise InvalidInput(
            f"{what}: {file} is no calendar ({wrong!r}): write JSON with name, days and until"
        ) from None


async def _backfill(hf: Holdfast, name: str, as_json: bool, given: dict[str, Any]) -> int:
    if given["begin"] is None or given["end"] is None:
        raise click.UsageError("say which times: --from 2026-11-01 --to 2026-11-07")
    request = BackfillRequest(
        given["begin"], given["end"], given["newest_first"], given["most"], given["again"], given["note"]
    )
    if not given["dry_run"]:
        row = await hf.desk.schedules.backfill(hf.who, name, request)
        words = f"backfill {row.id} has begun: `holdfast schedules {name}` shows how far it is"
        if not _print({"id": row.id, "schedule": name, "state": str(row.state)}, as_json):
            output.say(words)
        return DONE
    planned = await hf.desk.schedules.plan_backfill(hf.who, name, request)
    if as_json:
        output.print_json(
            [{"at": output.moment(one.at), "exists": one.exists, "run": one.run} for one in planned]
        )
        return DONE
    plan = msgspec.json.decode(bytes((await hf.schedules.get(name)).plan), type=Plan)
    for one in planned[:PLANNED_SHOWN]:
        what = f"would start {one.run}" if one.run else "is left alone"
        print_words(f"{plan.shown(one.at)} {what}{f' (there is {one.exists})' if one.exists else ''}")
    starts = sum(one.run is not None for one in planned)
    output.say(f"{starts} of {wording.counted(len(planned), 'time')} would start; nothing was written")
    return DONE
