"""Lists: pages by cursors, filters, and what operators list."""

from __future__ import annotations

import asyncio
import base64
import math

import msgspec
import pytest

from holdfast.http import metrics
from holdfast.wire.cursors import cursor_text, filter_digest, read_cursor
from holdfast.wire.paths import id_of, path_of
from tests.http.conftest import Asked, bearer, made_token

COUNT = {"workflow": "shop.count", "input": {"a": 1}}


async def test_pages_neither_repeat_nor_leave_out_a_run_while_others_are_started(quiet: Asked) -> None:
    """A page begins after the last row of the one before, not after a number of rows."""
    items = [{**COUNT, "id": f"old-{n}"} for n in range(95)]
    await quiet.post("/v1/runs/batch", {"items": items})
    stop = asyncio.Event()

    async def insert() -> None:
        n = 0
        while not stop.is_set():
            n += 1
            await quiet.post("/v1/runs", {**COUNT, "id": f"new-{n}"})

    inserting = asyncio.create_task(insert())
    seen: list[str] = []
    cursor: str | None = None
    while True:
        query = "?limit=7" + (f"&cursor={cursor}" if cursor else "")
        page = (await quiet.get(f"/v1/runs{query}")).json()
        seen += [one["id"] for one in page["items"]]
        if (cursor := page["next"]) is None:
            break
    stop.set()
    await inserting
    old = [one for one in seen if one.startswith("old-")]
    assert sorted(old) == sorted(f"old-{n}" for n in range(95))
    assert len(seen) == len(set(seen))


async def test_a_cursor_that_is_made_up_moves_the_page_and_nothing_else(quiet: Asked) -> None:
    """It shows nothing of another namespace, and times beyond the calendar are those of no cursor."""
    theirs = bearer(await made_token(quiet.hf, "starter", "acme"))
    mine = bearer(await made_token(quiet.hf, "operator", "default"))
    for who in (theirs, mine):
        for _ in range(2):
            await quiet.post("/v1/runs", {"workflow": "shop.count", "input": {"a": 1}}, headers=who)
    real = (await quiet.get("/v1/runs?limit=1", headers=mine)).json()["next"]
    digest = msgspec.json.decode(base64.urlsafe_b64decode(real + "=" * (-len(real) % 4)))[2]
    for at, status, count in (
        (0.0, 200, 0),
        (4e9, 200, 2),
        (253_402_300_800.0, 400, 0),
        (-62_135_596_801.0, 400, 0),
        (1e300, 400, 0),
        (math.inf, 400, 0),
        (math.nan, 400, 0),
    ):
        for run in ("x", "acme//x", "//", "~"):
            answer = await quiet.get(f"/v1/runs?cursor={cursor_text(at, run, digest)}", headers=mine)
            assert answer.status_code == status, (at, answer.text)
            assert len(answer.json().get("items", [])) == count, at


async def test_a_cursor_belongs_to_its_list(quiet: Asked) -> None:
    """One of another filter, or one that somebody made up, is refused."""
    for n in range(3):
        await quiet.post("/v1/runs", {**COUNT, "id": f"x-{n}", "tags": {"t": "1"}})
    cursor = (await quiet.get("/v1/runs?limit=1&tag.t=1")).json()["next"]
    assert len((await quiet.get(f"/v1/runs?limit=2&tag.t=1&cursor={cursor}")).json()["items"]) == 2
    for query in (
        f"?cursor={cursor}",
        f"?tag.t=2&cursor={cursor}",
        f"?state=pending&tag.t=1&cursor={cursor}",
    ):
        assert (await quiet.get(f"/v1/runs{query}")).status_code == 400


async def test_runs_are_filtered_as_by_ps(quiet: Asked) -> None:
    """By workflow, state, tag, time, and the beginning of the id."""
    await quiet.post("/v1/runs", {**COUNT, "id": "a-1", "tags": {"for": "acme"}})
    await quiet.post("/v1/runs", {"workflow": "shop.pay", "input": {"cents": 1}, "id": "b-1"})
    held = await quiet.post("/v1/runs/b-1/hold")
    assert held.json() == {"id": "b-1", "ref": "b-1", "state": "held"}

    async def ids(query: str) -> list[str]:
        return [one["id"] for one in (await quiet.get(f"/v1/runs{query}")).json()["items"]]

    assert await ids("") == ["b-1", "a-1"]
    assert await ids("?workflow=count") == ["a-1"]
    assert await ids("?state=held&state=failed") == ["b-1"]
    assert await ids("?tag.for=acme") == ["a-1"]
    assert await ids("?prefix=b-") == ["b-1"]
    assert await ids("?since=1h") == ["b-1", "a-1"]
    assert await ids("?until=1h") == []


async def test_operators_see_and_change_what_the_command_line_shows(busy: Asked) -> None:
    """Agents, lanes, holds, breakers, quarantine and alerts."""
    await busy.started(id="x")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    (node,) = (await busy.get("/v1/agents")).json()["items"]
    assert node["roles"] == ["scheduler", "agent", "supervisor", "server"]
    lanes = (await busy.get("/v1/lanes")).json()["items"]
    assert "tests.http.flows.add" in [lane["step"] for lane in lanes]
    assert (await busy.get("/v1/backlog")).json() == {"items": []}
    hold = {"scope": "workflow", "value": "shop.count", "note": "a pause"}
    assert (await busy.post("/v1/holds", hold)).status_code == 201
    assert (await busy.post("/v1/holds", hold)).status_code == 200
    assert [one["note"] for one in (await busy.get("/v1/holds")).json()["items"]] == ["a pause"]
    assert (await busy.post("/v1/holds/release", hold)).status_code == 200
    assert (await busy.post("/v1/holds/release", hold)).status_code == 409
    assert (await busy.post("/v1/holds", {"scope": "all", "value": "x"})).status_code == 422
    opened = await busy.post("/v1/breakers/bank/open", {"note": "announced"})
    assert (opened.json()["state"], opened.json()["forced"]) == ("open", True)
    assert (await busy.post("/v1/breakers/bank/close")).json()["state"] == "closed"
    assert (await busy.post("/v1/breakers/bank/reset")).json()["forced"] is False
    assert (await busy.post("/v1/breakers/nothing/reset")).status_code == 409
    assert [one["name"] for one in (await busy.get("/v1/breakers")).json()["items"]] == ["bank"]
    assert (await busy.get("/v1/quarantine")).json() == {"items": []}
    assert (await busy.post("/v1/quarantine/0123/release")).status_code == 404
    assert (await busy.get("/v1/alerts?all=true")).json() == {"items": []}
    assert (await busy.post("/v1/alerts/7/clear")).json() == {"cleared": False}
    verbs = [one["verb"] for one in (await busy.get("/v1/journal")).json()["items"]]
    assert verbs[:2] == ["breaker reset", "breaker closed"]
    assert (await busy.get("/v1/runs/counts")).json() == {"runs": {"succeeded": 1}, "exact": True}


async def test_figures_are_what_prometheus_reads(busy: Asked) -> None:
    """Each line is a name, labels and a number; labels come from the table of routes."""
    await busy.started(id="x")
    await busy.get("/v1/runs/nobody")
    text = (await busy.get("/metrics")).text
    assert 'holdfast_http_requests_total{route="post_runs",code="201"} 1' in text
    assert 'holdfast_http_requests_total{route="get_runs_run",code="404"} 1' in text
    assert 'holdfast_refused_total{why="unknown"} 1' in text
    assert "holdfast_store_up 1" in text
    assert 'holdfast_backlog_steps{namespace="default"} ' in text
    assert "nobody" not in text
    for line in text.splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            assert name.startswith("holdfast_")
            float(value)


async def test_figures_are_by_namespace(wide: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs, backlog and breakers of each namespace are counted by themselves; with too many, the last by name together."""
    for namespace in ("acme", "beta", "default"):
        for number in range(2):
            given = {"headers": {"Holdfast-Namespace": namespace}}
            body = {"workflow": "shop.count", "input": {"a": 1}, "id": f"x{number}"}
            assert (await wide.post("/v1/runs", body, **given)).status_code == 201
    await wide.post("/v1/breakers/bank/open", headers={"Holdfast-Namespace": "acme"})
    text = await wide.server.metrics()
    for namespace in ("acme", "beta", "default"):
        assert f'holdfast_runs{{namespace="{namespace}",state="pending"}} 2' in text
    assert 'holdfast_breakers{namespace="acme",state="open"} 1' in text
    assert 'holdfast_breakers{namespace="default",state="open"} 0' in text
    monkeypatch.setattr(metrics, "NAMESPACES_MAX", 1)
    wide.server.figures = metrics.Figures()
    text = await wide.server.metrics()
    assert 'holdfast_runs{namespace="*",state="pending"} 4' in text
    assert 'holdfast_breakers{namespace="acme",state="open"} 1' in text


@pytest.mark.parametrize(
    "given",
    ["order-42", "a.b:c@d~e", "a/b", "~a", ".", "..", "é", "a b", "x" * 300, "%2F", "?", "a//b", "..."],
)
def test_every_id_has_one_form_in_paths(given: str) -> None:
    """It needs no escaping, is no dot path, and stands for exactly that id."""
    form = path_of(given)
    assert id_of(form) == given
    assert "/" not in form
    assert set(form) - {"."}
    assert form.isascii()


@pytest.mark.parametrize("given", ["", "~", "~~", "~b3JkZXI", "~!", "~/w", "~" + "A" * 5, "a b", "é"])
def test_another_form_is_no_id(given: str) -> None:
    """Two forms of one id would be two ways to ask whether one may."""
    assert id_of(given) is None


@pytest.mark.parametrize("given", ["", "x", "~", "W10", "e30", "AAAA" * 100, "é"])
def test_what_is_no_cursor_is_none(given: str) -> None:
    """Whatever somebody writes there."""
    assert read_cursor(given, "f") is None


def test_a_cursor_keeps_its_time_exactly() -> None:
    """A time that is rounded would leave out or repeat rows."""
    digest = filter_digest({"a": 1})
    assert read_cursor(cursor_text(1_794_919_554.590759, "é/1", digest), digest) == (
        1_794_919_554.590759,
        "é/1",
    )
    assert read_cursor(cursor_text(float("nan"), "x", digest), digest) is None
