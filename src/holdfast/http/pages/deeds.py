"""What may be done from a page. Each deed is a route of the API, asked in this process: the same struct is read, the same
role is demanded, and the same function does it. `GET /do/…` says what would happen, and `POST /do/…` does it."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.codec.schema import example
from holdfast.errors import HoldfastError
from holdfast.http.call import Call, Given, Route
from holdfast.http.pages import words
from holdfast.http.pages.page import API, Page
from holdfast.http.reader import read_body
from holdfast.http.refusals import Refusal
from holdfast.model import RunState
from holdfast.wire import answers, requests
from holdfast.wire.hooks import HookMade
from holdfast.wire.paths import id_of, path_of
from holdfast.wire.triggers import Occasion

BEFORE = "/do"
SAMPLE = 5
ABOUT = {
    "run": "GET /v1/runs/{run}",
    "schedule": "GET /v1/schedules/{schedule}",
    "act": "GET /v1/acts/{act}",
    "ask": "GET /v1/asks/{ask}",
    "limit": "GET /v1/limits/{limit}",
    "occasion": "GET /v1/occasions/{occasion}",
}
"""What a deed may be about, by its name in a path, and how that is looked at."""


class Field(NamedTuple):
    """A field of a form."""

    name: str
    label: str
    kind: str = "text"
    """text, area, json, lines, check, number, date, choice, runs: those that were selected, or yes: a check that says so if it is
    not set. group and union begin a group of fields, and end ends it."""
    hint: str = ""
    value: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False
    is_null: bool = False
    """True if an empty field stands for null, and is not left out."""
    example: str = ""
    """What may stand in it."""
    wrong: str = ""
    """What is wrong with what was typed."""


NOTE = Field("note", "Why", hint="stands in the journal")


class Change(msgspec.Struct):
    """Something that would happen, and how often."""

    count: int
    words: str
    sample: list[str] = []


class Deed(NamedTuple):
    path: str
    """Of the API's route. It is a POST."""
    title: str
    """With the names of the path in braces, as all texts here."""
    words: str
    """What will happen."""
    button: str
    command: str
    to: str
    """The page that is shown afterwards."""
    fields: tuple[Field, ...] = (NOTE,)
    is_grave: bool = False
    typed: str = ""
    """What one must type before it is done. Empty: nothing."""
    after: Callable[[Page, Given], Given] | None = None
    ready: Callable[[Page, tuple[Field, ...]], Awaitable[tuple[Field, ...]]] | None = None
    """Returns the fields with what is known about them."""
    preview: Callable[[Page], Awaitable[list[Change]]] | None = None
    """Says what would happen, in words and numbers."""
    rehearse: Callable[[Page, Any], Awaitable[tuple[str, list[Change]]]] | None = None
    """Says by what was typed what would happen, and what the button that does it says. Nothing is done before that was shown."""

    @property
    def route(self) -> Route:
        return API[f"POST {self.path}"]


def _to_new_run(page: Page, given: Given) -> Given:
    return page.to(page.url(f"/runs/{given.body.ref}"))


def _to_act(page: Page, given: Given) -> Given:
    return page.to(page.url(f"/acts/{given.body.id}"))


async def _forked(page: Page, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The form of a fork begins with the input of the run."""
    row: answers.WholeRun = await page.ask("GET /v1/runs/{run}")
    given = json.dumps(json.loads(bytes(row.input)), indent=2, ensure_ascii=False)
    shown = {"input": "" if row.hidden else given}
    return tuple(one._replace(value=shown.get(one.name, one.value)) for one in fields)


async def _signalled(page: Page, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The form of a signal offers the names that the workflow has declared, and shows what each of them carries."""
    row: answers.WholeRun = await page.ask("GET /v1/runs/{run}")
    name = path_of(row.workflow)
    try:
        known: answers.WorkflowVersions = await page.ask("GET /v1/workflows/{name}", name=name)
    except HoldfastError:
        return fields
    declared = json.loads(bytes(known.versions[0].signals))
    schemas = declared.get("signals", {}) if isinstance(declared, dict) else {}
    if not schemas:
        return fields
    carried = [
        f"{name} {json.dumps(example(schema), ensure_ascii=False)}" for name, schema in schemas.items()
    ]
    shown: dict[str, dict[str, Any]] = {
        "name": {"kind": "choice", "choices": tuple(schemas)},
        "data": {"hint": words.short(f"JSON, such as {' · '.join(carried)}")},
    }
    return tuple(one._replace(**shown.get(one.name, {})) for one in fields)


async def _offered(page: Page, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The form of a schedule offers the workflows that are known."""
    known: answers.Workflows = await page.ask("GET /v1/workflows")
    names = tuple(sorted({one.name for one in known.items}))
    return tuple(
        one._replace(kind="choice", choices=names) if one.name == "workflow" and names else one
        for one in fields
    )


async def _cancelled(page: Page) -> list[Change]:
    """What a run would undo if it were cancelled now."""
    found: answers.UndoPlan = await page.ask("GET /v1/runs/{run}/undo")
    keys = [one.key for one in found.items]
    if not keys:
        return [Change(0, "of its steps need undoing")]
    words = "of its steps is undone:" if len(keys) == 1 else "of its steps are undone, newest first:"
    return [Change(len(keys), words, keys[:SAMPLE])]


async def _limited(page: Page) -> list[Change]:
    """Who has a slot under a limit now, and who waits for one."""
    seen: answers.LimitSeen = await page.ask("GET /v1/limits/{limit}")
    if seen.limit.per_s is not None:
        return []  # who waits for a rate stands in no list
    return [
        Change(seen.limit.used, "in use: they go on, whatever the number is", _runs(seen.holders)),
        Change(len(seen.waiters), "wait, and begin when there is room", _runs(seen.waiters)),
    ]


def _runs(uses: list[answers.LimitUse]) -> list[str]:
    return [one.run for one in uses[:SAMPLE]]


async def _numbered(page: Page, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """The form of a limit begins with the number in force."""
    one: answers.Limit = (await page.ask("GET /v1/limits/{limit}")).limit
    return tuple(field._replace(value=str(one.most)) if field.name == "most" else field for field in fields)


async def _begun(page: Page) -> list[Change]:
    """What an occasion has, and what it would start without."""
    one: Occasion = await page.ask("GET /v1/occasions/{occasion}")
    parts = list(dict.fromkeys(each.part for each in one.arrived))
    return [
        Change(len(one.arrived), "arrived, and the run gets it:", parts[:SAMPLE]),
        Change(len(one.missing), "missing, and the run begins without:", one.missing[:SAMPLE]),
    ]


async def _dropped(page: Page) -> list[Change]:
    one: Occasion = await page.ask("GET /v1/occasions/{occasion}")
    return [
        Change(len(one.arrived), "arrived, and no run gets it:", [each.part for each in one.arrived][:SAMPLE])
    ]


async def _filled_back(page: Page, body: requests.NewBackfill) -> tuple[str, list[Change]]:
    """What a backfill would do with its times."""
    asked = msgspec.structs.replace(body, dry_run=True)
    found: answers.BackfillAnswer = await page.ask(f"POST {S}/backfills", body=asked)
    runs = [one for one in found.times if one.run is not None]
    left = [one for one in found.times if one.run is None]
    changes = [
        Change(len(runs), "runs start:", [one.run or "" for one in runs[:SAMPLE]]),
        Change(
            len(left),
            "times are left alone, because they have run:",
            [words.iso(one.at) for one in left[:SAMPLE]],
        ),
    ]
    return f"Start {words.plural(len(runs), 'run')}", [
        one for one in changes if one.count or one is changes[0]
    ]


async def _planned(page: Page) -> list[Change]:
    """What the plan of an act says."""
    one: answers.Act = await page.ask("GET /v1/acts/{act}")
    return msgspec.convert(json.loads(bytes(one.preview)).get("changes", []), list[Change])


def _token(page: Page, given: Given) -> Given:
    return _secret(page, f"The token {given.body.token.name}", given.body.secret, "/tokens")


def _hook(page: Page, given: Given) -> Given:
    made: HookMade = given.body
    return _secret(page, f"The hook {made.hook.name}", made.secret, "/events", made.hook.path)


def _secret(page: Page, title: str, secret: str, back: str, address: str = "") -> Given:
    """Show a secret once: in the dialog, or as a page."""
    is_dialog = page.call.headers.get("hx-request") == "true"
    shown = page.plain(
        "secret-part.html" if is_dialog else "secret.html",
        title=title,
        secret=secret,
        address=address,
        back=page.url(back),
    )
    return shown._replace(headers={"HX-Retarget": "#dialog"}) if is_dialog else shown


R, Q, B, S, T, W, H = (
    "/v1/runs/{run}",
    "/v1/quarantine/{fingerprint}",
    "/v1/breakers/{name}",
    "/v1/schedules/{schedule}",
    "/v1/tokens/{token}",
    "/v1/occasions/{occasion}",
    "/v1/hooks/{hook}",
)
ROLES = ("viewer", "starter", "operator", "answerer", "agent", "admin")

# fmt: off
DEEDS: tuple[Deed, ...] = (
    Deed(f"{R}/cancel", "Cancel {run}?", "Its code gets CancelledError where it waits, its running steps are cancelled, what "
         "it did is undone, newest first, and it ends cancelled.", "Cancel 1 run", "holdfast cancel {run}", "/runs/{run}",
         (NOTE, Field("force", "Force", "check", "also stop a run that is undoing, and ask again a run whose code went on")),
         is_grave=True, preview=_cancelled),
    Deed(f"{R}/hold", "Hold {run}?", "Steps that run now may finish, and are recorded. Nothing else of it begins until it is "
         "released.", "Hold 1 run", "holdfast hold {run}", "/runs/{run}"),
    Deed(f"{R}/release", "Release {run}?", "It goes on where it was.", "Release 1 run", "holdfast release {run}", "/runs/{run}"),
    Deed(f"{R}/retry", "Retry {run}?", "If it has not ended, its steps that wait for their next attempt, that are in "
         "quarantine, or whose undo gave up are tried at once. If it has ended, it goes on under a new id: it keeps all that "
         "was recorded, and executes again what ended it and what was undone.", "Retry 1 run", "holdfast retry {run}",
         "/runs/{run}", (), after=_to_new_run),
    Deed(f"{R}/skip", "Count as done by hand?", "The undo that gave up counts as done: you did it by hand. The run goes on, "
         "and ends undone.", "Count as done", "holdfast skip {run}", "/runs/{run}",
         (Field("step", "Step", hint="its key; empty: every undo that gave up"), NOTE), is_grave=True, typed="run"),
    Deed(f"{R}/signals", "Send a signal to {run}", "It may arrive before the run waits for it.", "Send",
         "holdfast signal {run} NAME --data JSON", "/runs/{run}",
         (Field("name", "Name", is_required=True), Field("data", "Data", "json", "JSON", "null"),
          Field("key", "Key", hint="the same key again is the same signal; empty: none")), ready=_signalled),
    Deed(f"{R}/callback", "End a callback of {run}?", "The call ends with this result, or with this error. If the other system answers "
         "later, it is refused.", "Answer for it", "holdfast callback {run} STEP --data JSON",
         "/runs/{run}",
         (Field("output", "Result", "json", "JSON, as the step returns it"),
          Field("error", "Or an error", "json", "{\"message\": \"no money\", \"type\": \"CardDeclined\"}"),
          Field("step", "Step", hint="its key; empty: the only callback that the run waits for"), NOTE), is_grave=True),
    Deed(f"{R}/fork", "Fork {run}", "A new run starts from what this one recorded. It executes again everything from the "
         "chosen step on, and never undoes what it did not do. This run is not changed.", "Start the fork",
         "holdfast fork {run} --from STEP --input JSON", "/runs/{run}",
         (Field("from", "From", hint="the key of a step; empty: where this run is now, or the beginning with another input"),
          Field("input", "Input", "json", "change it, and the fork begins anew; as it is, it keeps what was recorded", "null"),
          Field("set", "Results", "json", "other results of steps, by their keys", "{}"),
          Field("id", "Id", hint="empty: one is made")), after=_to_new_run, ready=_forked),
    Deed(f"{R}/quarantine", "Decide about the steps of {run} in quarantine", "Release tries them again with fresh budgets, "
         "skip goes on as if they had returned the result, fail lets them fail.", "Decide",
         "holdfast quarantine release --run {run}", "/runs/{run}",
         (Field("act", "What", "choice", choices=("release", "skip", "fail")), Field("result", "Result", "json",
          "of skipped steps", "null"), NOTE), is_grave=True),
    Deed("/v1/runs", "Start a run", "", "Start", "holdfast start WORKFLOW --input JSON", "/runs",
         (Field("workflow", "Workflow", is_required=True), Field("input", "Input", "json", "arguments by name", "{}"),
          Field("id", "Id", hint="empty: one is made; the same id again is the same run"), Field("version", "Version",
          hint="empty: the newest"), Field("tags", "Tags", "json", "an object of texts", "{}"), Field("priority",
          "Priority", "number", "0 to 9")), after=_to_new_run),
    Deed("/v1/holds", "Hold all of a kind", "Steps of that kind do not begin, and spend no attempt, until it is released. "
         "Steps that run may finish.", "Hold", "holdfast hold --workflow NAME", "/gates",
         (Field("scope", "What", "choice", choices=("workflow", "step", "dependency", "namespace", "all")),
          Field("value", "Name", hint="none for all"), NOTE), is_grave=True),
    Deed("/v1/holds/release", "Release all of a kind?", "What waits behind this hold begins at once.", "Release",
         "holdfast release --workflow NAME", "/gates",
         (Field("scope", "What", "choice", choices=("workflow", "step", "dependency", "namespace", "all")),
          Field("value", "Name"), NOTE)),
    Deed(f"{B}/open", "Open the breaker {name}?", "Steps that depend on it wait, and spend no attempt, until it is reset.",
         "Open it", "holdfast breakers open {name}", "/gates", is_grave=True),
    Deed(f"{B}/close", "Close the breaker {name}?", "Steps that depend on it begin, whatever fails, until it is reset.",
         "Close it", "holdfast breakers close {name}", "/gates", is_grave=True),
    Deed(f"{B}/reset", "Try {name} now?", "It lets one step begin as a probe, then more, and decides by itself again.",
         "Try it", "holdfast breakers reset {name}", "/gates"),
    Deed(f"{Q}/release", "Try these steps again?", "All steps with this fingerprint get fresh budgets.", "Release",
         "holdfast quarantine release {fingerprint}", "/quarantine"),
    Deed(f"{Q}/skip", "Go on without these steps?", "All steps with this fingerprint count as if they had returned this.",
         "Skip them", "holdfast quarantine skip {fingerprint} --result JSON", "/quarantine",
         (Field("result", "Result", "json", "what they return", "null"), NOTE), is_grave=True),
    Deed(f"{Q}/fail", "Let these steps fail?", "All steps with this fingerprint fail. Their runs undo what they did, unless "
         "their code catches the error.", "Fail all alike", "holdfast quarantine fail {fingerprint}", "/quarantine",
         is_grave=True, typed="fingerprint"),
    Deed(f"{S}/pause", "Pause {schedule}?", "It decides nothing until it is resumed. Its open runs go on.", "Pause",
         "holdfast schedules pause {schedule}", "/schedules/{schedule}"),
    Deed(f"{S}/resume", "Resume {schedule}?", "Times that passed meanwhile are made up for, as its policy says.", "Resume",
         "holdfast schedules resume {schedule}", "/schedules/{schedule}"),
    Deed(f"{S}/run", "Run {schedule} now?", "A run starts for this moment, by the schedule's overlap policy.", "Run now",
         "holdfast schedules run {schedule}", "/schedules/{schedule}",
         (Field("anyway", "Anyway", "check", "whatever is open"), NOTE)),
    Deed(f"{S}/remove", "Remove {schedule}?", "It starts no further run. Its open runs go on.", "Remove",
         "holdfast schedules remove {schedule}", "/schedules", is_grave=True, typed="schedule"),
    Deed("/v1/schedules", "Make a schedule", "It starts runs of a workflow at its times.", "Make it",
         "holdfast schedules create NAME WORKFLOW --times TIMES", "/schedules",
         (Field("name", "Name", is_required=True), Field("workflow", "Workflow", is_required=True),
          Field("times", "Times", hint="0 3 * * 1-5, or 15m, or a date", is_required=True),
          Field("tz", "Zone", hint="of these times", value="UTC"), Field("input", "Input", "json", "arguments by name", "{}"),
          Field("overlap", "If the last run is open", "choice",
                choices=("skip", "buffer_one", "buffer_all", "cancel_other", "allow"))), ready=_offered),
    Deed(f"{S}/backfills", "Backfill {schedule}", "Runs start for its times in this span, as they would have started then. Times that "
         "have run are left alone.", "Backfill", "holdfast schedules backfill {schedule} --from TIME --to TIME",
         "/schedules/{schedule}",
         (Field("from", "From", hint="2026-11-01, or 2026-11-01T02:00Z", is_required=True),
          Field("to", "To", is_required=True), Field("most", "At once", "number", "how many of its runs may be open", "3"),
          Field("again", "Again", "choice", "times that have run before", choices=("none", "failed", "all")),
          Field("newest_first", "Newest first", "check"), NOTE), is_grave=True, rehearse=_filled_back),
    Deed(f"{S}/backfills/{{backfill}}/stop", "Stop this backfill?", "It starts no further run. Its open runs go on.", "Stop it",
         "holdfast schedules stop {schedule} {backfill}", "/schedules/{schedule}", ()),
    Deed(f"{W}/start", "Start {occasion} now?", "Its run starts with what has arrived. What comes later is late, and no run gets it.",
         "Start it now", "holdfast triggers start {occasion}", "/occasions/{occasion}", is_grave=True, preview=_begun),
    Deed(f"{W}/drop", "Drop {occasion}?", "It ends, and starts nothing. What still comes for it is late.", "Drop it",
         "holdfast triggers drop {occasion}", "/occasions/{occasion}", is_grave=True, preview=_dropped),
    Deed("/v1/limits/{limit}", "Set the number of {limit}", "It counts for whatever begins next. What is at work goes on.",
         "Set it", "holdfast limits set {limit} N", "/limits/{limit}",
         (Field("most", "Number", "number", "empty: that of the code counts again", is_null=True), NOTE),
         ready=_numbered, preview=_limited),
    Deed("/v1/fair", "Set the weight of a fair key", "While several keys wait, this many of its steps begin for each one of a "
         "key with the weight 1. It counts for whatever begins next.", "Set it", "holdfast fair set KEY N", "/limits",
         (Field("key", "Fair key", is_required=True), Field("weight", "Weight", "number", "1 to 100", "1", is_required=True), NOTE)),
    Deed("/v1/hooks", "Make a hook", "Webhooks of one sender come in there. Each whose signature is good becomes an event, whose type "
         "begins with the hook's name. The secret is shown once.", "Make it", "holdfast hooks create NAME --scheme SCHEME", "/events",
         (Field("name", "Name", hint="small letters, digits, - or _", is_required=True), Field("scheme", "Signed as", "choice",
          choices=("standard", "github", "stripe", "hmac")), Field("secret", "Secret", hint="the sender's; empty: one is made"),
          Field("header", "Header", hint="of hmac: the one that has the signature; empty: X-Signature")), after=_hook),
    Deed(f"{H}/rotate", "Give {hook} another secret?", "The old secret works on for the grace time, so that the sender can change. "
         "The new one is shown once.", "Rotate", "holdfast hooks rotate {hook}", "/events",
         (Field("secret", "Secret", hint="the sender's; empty: one is made"),
          Field("grace_s", "Grace", "number", "seconds", "86400")), after=_hook),
    Deed(f"{H}/remove", "Remove {hook}?", "What comes in there is refused from now on. Events that have come stay.", "Remove",
         "holdfast hooks remove {hook}", "/events", (), is_grave=True, typed="hook"),
    Deed("/v1/alerts/{alert}/clear", "Clear this alert?", "If its cause is still there, it comes again.", "Clear",
         "holdfast alerts clear {alert}", "/alerts", ()),
    Deed("/v1/asks/{ask}/delegate", "Hand this question over", "Whoever you name is asked in your place.", "Hand over",
         "holdfast asks delegate {ask} WHO", "/asks/{ask}",
         (Field("to", "To", hint="person:bob, or team:finance", is_required=True), NOTE)),
    Deed("/v1/tokens", "Make a token", "It is shown once. The store has only its digest.", "Make it",
         "holdfast tokens create --role ROLE", "/tokens",
         (Field("role", "Role", "choice", choices=ROLES), Field("name", "Name", hint="who uses it; empty: its role"),
          Field("namespaces", "Namespaces", hint="separated by spaces; * is all; empty: default"), Field("can", "Only",
          hint="workflows:shop.* steps:billing.*; empty: all"), Field("who", "Borne by",
          hint="person:anna team:finance; who answers needs a person"), Field("payloads", "Payloads", "yes",
          "see inputs, results and logs", "yes"), Field("expires_s", "Expires after", "number", "seconds", "7776000")),
         after=_token),
    Deed(f"{T}/rotate", "Give this token another secret?", "The old secret works on for the grace time.", "Rotate",
         "holdfast tokens rotate {token}", "/tokens", (Field("grace_s", "Grace", "number", "seconds", "3600"),), after=_token),
    Deed(f"{T}/revoke", "Revoke this token?", "It is refused within a second, and for good. Whoever signed in with it is "
         "signed out.", "Revoke", "holdfast tokens revoke {token}", "/tokens", (), is_grave=True),
    Deed("/v1/acts", "An act on many runs", "The plan lists exactly the runs that are meant now, and says what would happen to "
         "them. Nothing happens until it is carried out.", "Show what would happen", "holdfast VERB --state STATE", "/acts",
         (Field("verb", "What", "choice", choices=("", "cancel", "hold", "release", "retry", "skip", "fork"), is_required=True),
          Field("runs", "Runs", "runs"), Field("state", "States", hint="separated by spaces; empty: all that it can be done to"),
          Field("workflow", "Workflow"), Field("prefix", "Ids that begin with"), Field("error", "Error with"),
          Field("since", "Since", hint="2h, 3d, or a time"), Field("until", "Until"),
          Field("is", "Is", hint="retrying, late, waiting-for-ask"), Field("tags", "Tags", "json",
          "an object of texts", "{}"), Field("from", "From", hint="of forks: the key of a step"),
          Field("force", "Force", "check", "of cancel: also stop runs that are undoing"), NOTE), after=_to_act),
    Deed("/v1/acts/{act}/go", "Carry out this act?", "It is done in batches, by whoever has its lease, and survives a closed "
         "tab. Runs that have changed since the plan are left alone, and listed.", "Carry it out", "holdfast acts go {act}",
         "/acts/{act}", (Field("wait_s", "", "hidden", value="1"),), is_grave=True, preview=_planned),
    Deed("/v1/acts/{act}/stop", "Stop this act?", "Runs that it has not come to are left as they are.", "Stop it",
         "holdfast acts stop {act}", "/acts/{act}", ()),
)
# fmt: on


KEYWORDS = {"from": "start", "is": "traits"}
"""What Python calls the fields whose names mean something else to it."""
DeedQuery = msgspec.defstruct(
    "DeedQuery",
    [
        (KEYWORDS.get(name, name), str, "")
        for name in sorted({field.name for deed in DEEDS for field in deed.fields if field.kind != "runs"})
    ],
    rename={name: keyword for keyword, name in KEYWORDS.items()},
)
"""What fields begin with. A page that opens a form knows some of them."""


async def ask(deed: Deed, call: Call) -> Given:
    """Show what would happen, and the form that does it: for a dialog, or as a page."""
    page = Page(call)
    parts = _parts(call)
    for name, asked in ABOUT.items():
        if name in parts:
            await page.ask(asked)  # what does not exist has no form
    seen = await _stage(page) if "run" in parts else ""
    fields = deed.fields if deed.ready is None else await deed.ready(page, deed.fields)
    known = msgspec.to_builtins(call.query)
    page.now = (await page.ask("GET /v1/me")).now
    return _form(
        page,
        deed,
        changes=[] if deed.preview is None else await deed.preview(page),
        fields=[one._replace(value=known.get(one.name) or one.value) for one in fields],
        seen=seen,
    )


def _form(page: Page, deed: Deed, **values: Any) -> Given:
    call, parts = page.call, _parts(page.call)
    is_dialog = call.headers.get("hx-request") == "true"
    return page.plain(
        "deed-part.html" if is_dialog else "deed.html",
        title=_filled(deed.title, parts),
        here="",
        what=deed,
        words=deed.words,
        command=_filled(deed.command, parts, shlex.quote),
        action=page.url(BEFORE + _path(deed.path, call)),
        back=page.url(_filled(deed.to, parts, path_of)),
        typed=parts.get(deed.typed, ""),
        **{"sure": None, "does": "", **values},
    )


async def do(deed: Deed, call: Call) -> Given:
    page = Page(call)
    parts = _parts(call)
    if deed.typed and _first(call.body, "typed") != parts[deed.typed]:
        raise Refusal("invalid", f"type {parts[deed.typed]} to say that you mean it", place="typed")
    if "run" in parts:
        await _demand_unchanged(page, _first(call.body, "seen"))
    sent = members(deed, call.body)
    if deed.path == f"{R}/fork":
        row: answers.WholeRun = await page.ask("GET /v1/runs/{run}")
        if sent.get("input") == json.loads(bytes(row.input)):
            del sent["input"]  # as it was
    body: Any = read_body(json.dumps(sent).encode(), deed.route.takes or dict, call.server.config)
    if deed.rehearse is not None and _first(call.body, "sure") != (mark := _mark(sent)):
        page.now = (await page.ask("GET /v1/me")).now
        does, changes = await deed.rehearse(page, body)
        fields = [one._replace(value=_typed(one, call.body)) for one in deed.fields]
        shown = _form(page, deed, changes=changes, fields=fields, seen="", sure=mark, does=does)
        return shown._replace(headers={"HX-Retarget": "#dialog"})
    given = await page.given(f"POST {deed.path}", body=body)
    if deed.after is not None:
        return deed.after(page, given)
    return page.to(page.url(_filled(deed.to, parts, path_of)))


def _mark(sent: Mapping[str, Any]) -> str:
    """Return what stands for what was typed, so that it is what was shown. Why it is done changes nothing about it."""
    meant = {name: value for name, value in sent.items() if name != NOTE.name}
    return hashlib.sha256(json.dumps(meant, sort_keys=True).encode()).hexdigest()[:16]


def _typed(field: Field, fields: Mapping[str, list[str]]) -> str:
    return ("yes" if field.name in fields else "") if field.kind == "check" else _first(fields, field.name)


async def _stage(page: Page) -> str:
    """Return the state of a run, as far as it matters to what an act on it does: one that begins is running already."""
    row: answers.WholeRun = await page.ask("GET /v1/runs/{run}")
    return str(RunState.RUNNING if row.state is RunState.PENDING else row.state)


async def _demand_unchanged(page: Page, seen: str) -> None:
    """Refuse to act on a run that is in another state than when the form said what would happen. Somebody else may have
    acted meanwhile, and the same act means something else now: a retry of a run that has ended is another run."""
    now = await _stage(page)
    if seen and seen != now:
        raise Refusal(
            "wrong-state",
            f"the run was {seen} when you opened this form, and is {now} now; nothing was done",
            next="close this form, look at the run again, and decide then",
        )


def members(deed: Deed, fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the body that a form stands for, as the API reads it. An empty field is left out."""
    found: dict[str, Any] = {}
    for field in deed.fields:
        text = _first(fields, field.name)
        if field.kind == "check":
            if field.name in fields:
                found[field.name] = True
        elif field.kind == "json" and text.strip():
            try:
                found[field.name] = json.loads(text)
            except (ValueError, RecursionError) as wrong:
                raise Refusal("malformed", f"this is not JSON: {wrong}", place=field.name) from None
        elif field.kind in {"number", "hidden"} and text.strip():
            try:
                number = float(text)
            except ValueError:
                raise Refusal("invalid", "this is no number", place=field.name) from None
            found[field.name] = int(number) if number.is_integer() else number
        elif field.is_null and not text.strip():
            found[field.name] = None
        elif field.kind == "yes":
            found[field.name] = field.name in fields
        elif field.kind == "runs":
            found[field.name] = [_run_of(one, field.name) for one in fields.get(field.name, ())]
        elif text.strip() and field.name in {"namespaces", "can", "who", "state", "is"}:
            found[field.name] = text.split()
        elif text.strip() and field.kind in {"text", "area", "choice"}:
            found[field.name] = text.strip()
    return found


def _run_of(ref: str, place: str) -> str:
    found = id_of(ref)
    if found is None:
        raise Refusal("invalid", "this is no run", place=place)
    return found


def _first(fields: Mapping[str, list[str]], name: str) -> str:
    return fields.get(name, [""])[0]


def _parts(call: Call) -> dict[str, str]:
    """Return the names in the path, as people know them."""
    found = {}
    for name, text in call.path.items():
        one = id_of(text)
        if one is None:
            raise Refusal("unknown")
        found[name] = one
    return found


def _path(path: str, call: Call) -> str:
    return re.sub(r"{(\w+)}", lambda found: call.path[found[1]], path)


def _filled(text: str, parts: Mapping[str, str], how: Callable[[str], str] = str) -> str:
    return re.sub(r"{(\w+)}", lambda found: how(parts[found[1]]), text)


def _routes(deed: Deed) -> tuple[Route, Route]:
    api = deed.route
    path = BEFORE + api.path
    return (
        Route(
            "GET",
            path,
            api.act,
            f"{api.does}: what would happen",
            partial(ask, deed),
            query=DeedQuery,
            is_page=True,
        ),
        Route("POST", path, api.act, api.does, partial(do, deed), is_page=True),
    )


def label(path: str, place: str) -> str:
    """Return what stands above the field that a place in a body is about. Empty if the form has no such field."""
    name = place.removeprefix("/").partition("/")[0]
    deed = next((deed for deed in DEEDS if BEFORE + deed.path == path), None)
    return next((field.label for field in deed.fields if field.name == name), "") if deed else ""


DEED_ROUTES: tuple[Route, ...] = tuple(route for deed in DEEDS for route in _routes(deed))
