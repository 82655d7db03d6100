"""The page that starts a run, by a form that the workflow's type makes."""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec

from holdfast.errors import HoldfastError
from holdfast.http.call import Call, Given
from holdfast.http.pages import forms, words
from holdfast.http.pages.deeds import Field
from holdfast.http.pages.page import Page
from holdfast.http.reader import read_body
from holdfast.http.refusals import Refusal, problem_of
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of


class StartQuery(msgspec.Struct):
    workflow: str = ""


async def start_page(call: Call) -> Given:
    return await _shown(call, call.query.workflow, {}, "")


async def start(call: Call) -> Given:
    """Start the run, or show the form again with what is wrong beside it."""
    page = Page(call)
    given: dict[str, list[str]] = call.body
    name = given.get("workflow", [""])[0]
    try:
        schema = await _schema(page, name)
        body: dict[str, Any] = {"workflow": name, "input": forms.values(schema, given)}
        if given.get("id", [""])[0].strip():
            body["id"] = given["id"][0].strip()
        if given.get("tags", [""])[0].strip():
            body["tags"] = dict(one.partition("=")[::2] for one in given["tags"][0].split())
        read = read_body(json.dumps(body).encode(), requests.Start, call.server.config)
        made: answers.Started = await page.ask("POST /v1/runs", body=read)
    except Refusal as refusal:
        found = refusal.problem()
    except HoldfastError as error:
        found = problem_of(error)
    else:
        return page.to(page.url(f"/runs/{made.ref}"))
    return await _shown(call, name, given, found.detail or found.title, found.place, status=found.status)


async def _schema(page: Page, name: str) -> Any:
    found: answers.WorkflowVersions = await page.ask("GET /v1/workflows/{name}", name=path_of(name))
    return words.value(found.versions[0].input)


async def _shown(
    call: Call, name: str, given: dict[str, list[str]], wrong: str, place: str = "", *, status: int = 200
) -> Given:
    page = Page(call)
    known: answers.Workflows = await page.ask("GET /v1/workflows")
    names = sorted({one.name for one in known.items})
    fields: tuple[Field, ...] = ()
    is_said = False
    if name:
        fields = forms.fields(await _schema(page, name))
        fields = tuple(one._replace(value=given.get(one.name, [one.value])[0]) for one in fields)
        fields, is_said = forms.refused(fields, place, wrong)
    return await page.shown(
        "start.html",
        "runs",
        "Start a run",
        status=status,
        names=names,
        name=name,
        fields=fields,
        id=given.get("id", [""])[0],
        tags=given.get("tags", [""])[0],
        wrong="nothing was started: see what is marked below" if is_said else wrong,
        typed="",
        command=f"holdfast start {shlex.quote(name)} --input JSON"
        if name
        else "holdfast start WORKFLOW --input JSON",
    )
