"""Every page, without a browser: it is there, it is strict, and what others wrote is shown as text."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from httpx2 import Response

from holdfast.desk.views import VIEWS_MAX
from holdfast.http.marks import WHOLE
from holdfast.http.pages.callbacks import LIST
from holdfast.http.pages.routes import PAGES
from holdfast.http.table import TABLE
from holdfast.model import StepState
from holdfast.namespaces import stored
from holdfast.occasions import occasion_id
from holdfast.queues import LimitKey, QueueKey
from holdfast.store.answers import Answer
from holdfast.wire.paths import path_of
from tests.http import flows
from tests.http.conftest import Asked, bearer, made_ask, made_callback, made_occasion, made_token
from tests.pages.hostile import HOSTILE
from tests.store.made import A, begin, callback_steps, join, new_run, report

assert flows.count.name  # what these servers know
PLAIN = [route.path for route in PAGES if route.verb == "GET" and "{" not in route.path]


def test_pages_are_in_the_one_table() -> None:
    """With what one must be allowed to do. No page has the address of an API."""
    assert all(route in TABLE for route in PAGES)
    assert all(route.is_page for route in PAGES)
    assert not [route.path for route in PAGES if route.path.startswith("/v1")]
    paths = [(route.verb, route.path) for route in TABLE]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("path", PLAIN)
async def test_a_page_of_an_empty_store_says_what_to_do(lone: Asked, path: str) -> None:
    """It is no error, and it comes with the strict policy."""
    answer = await lone.get(path)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert "HEAD" not in answer.text


async def test_hostile_text_is_shown_as_text(quiet: Asked) -> None:
    """In ids, tags, inputs, notes, holds and breakers: as text wherever it stands."""
    made = await quiet.post(
        "/v1/runs",
        {"workflow": "shop.count", "input": {"a": 1, "note": HOSTILE}, "id": HOSTILE, "tags": {"x": HOSTILE}},
    )
    if made.status_code == 422:
        made = await quiet.post(
            "/v1/runs", {"workflow": "shop.count", "input": {"a": 1}, "id": HOSTILE, "tags": {"x": HOSTILE}}
        )
    assert made.status_code == 201, made.text
    ref = made.json()["ref"]
    assert (await quiet.post(f"/v1/runs/{ref}/hold", {"note": HOSTILE})).status_code == 200
    assert (
        await quiet.post("/v1/holds", {"scope": "dependency", "value": HOSTILE, "note": HOSTILE})
    ).status_code == 201
    opened = await quiet.post(f"/v1/breakers/{path_of(HOSTILE)}/open", {"note": HOSTILE})
    assert opened.status_code == 200
    places = ["/", "/runs", "/gates", "/audit", "/alerts", f"/runs/{ref}", f"/do/v1/runs/{ref}/cancel"]
    places += [f"/runs/{ref}?view={view}" for view in ("data", "journal", "signals")]
    places += ["/runs?error=%3Cscript%3Ealert(1)", "/find?q=%3Cscript%3E", "/start?workflow=%3Cscript%3E"]
    for place in places:
        text = (await quiet.get(place)).text
        assert "<script>alert" not in text, place
        assert "<img src=x" not in text, place
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in (await quiet.get(f"/runs/{ref}")).text


async def test_hostile_text_about_limits_and_events_is_shown_as_text(quiet: Asked) -> None:
    """In fair keys, limits, notes, types, sources, ids and subjects of events, values of occasions, hooks and views."""
    limit, fair = stored("default", f"x:{HOSTILE}"), stored("default", HOSTILE)
    keys = (LimitKey(limit, 5), LimitKey(stored("default", f"r:{HOSTILE}"), 5, per_s=60.0, burst=2))
    await quiet.hf.store.queues.number_queues([QueueKey(fair, keys)])
    ref = path_of(f"x:{HOSTILE}")
    for path, body in (
        (f"/v1/limits/{ref}", {"most": 2, "note": HOSTILE}),
        ("/v1/fair", {"key": HOSTILE, "weight": 2, "note": HOSTILE}),
        ("/v1/views", {"name": HOSTILE[:40], "query": f"error={quote(HOSTILE)}"}),
    ):
        assert (await quiet.post(path, body)).status_code == 200, path
    await made_occasion(quiet.hf, "default", HOSTILE, "<script>alert(1)</script>")
    occasion = path_of(occasion_id("report", HOSTILE))
    event = {"specversion": "1.0", "type": "<script>alert(1)</script>", "source": HOSTILE, "id": HOSTILE}
    sent = await quiet.post(
        "/v1/events",
        {**event, "subject": HOSTILE, "data": HOSTILE, "odd": HOSTILE},
        headers={"Content-Type": "application/cloudevents+json"},
    )
    assert sent.status_code == 202, sent.text
    dropped = await quiet.post(f"/v1/occasions/{occasion}/drop", {"note": HOSTILE})
    assert dropped.status_code == 200, dropped.text
    places = [
        "/limits",
        f"/limits/{ref}",
        "/events",
        f"/events/{path_of(HOSTILE)}/{path_of(HOSTILE)}",
        "/triggers",
    ]
    places += [
        f"/occasions/{occasion}",
        f"/do/v1/limits/{ref}",
        f"/do/v1/occasions/{occasion}/start",
        "/runs",
    ]
    places += ["/events?type=%3Cscript%3Ealert(1)", f"/do/v1/fair?key={quote(HOSTILE)}"]
    silent = []
    for place in places:
        answer = await quiet.get(place)
        assert answer.status_code == 200, (place, answer.text)
        assert "<script>alert" not in answer.text, place
        assert "<img src=x" not in answer.text, place
        if "&lt;script&gt;alert(1)" not in answer.text:
            silent.append(place)
    assert silent == [f"/do/v1/occasions/{occasion}/start"]  # it names parts, which code names


async def test_callbacks_that_wait_are_on_a_page(quiet: Asked) -> None:
    """The oldest first, as text, page by page, without addresses. An operator answers for the other system from there."""
    assert "No run waits for a callback" in (await quiet.get("/callbacks")).text
    address = await made_callback(quiet.hf, "default", HOSTILE, 600.0)
    for n in range(LIST):
        await made_callback(quiet.hf, "default", f"pays-{n}")
    await made_callback(quiet.hf, "acme", "theirs")
    text = (await quiet.get("/callbacks")).text
    assert f"{LIST} calls or more wait for another system" in text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert address.rpartition("/")[2] not in text
    assert (f"pays-{LIST - 2}<" in text, f"pays-{LIST - 1}<" in text, "theirs" in text) == (
        True,
        False,
        False,
    )
    (after,) = re.findall(r'href="(/callbacks\?cursor=[^"]*)" rel="next"', text)
    last = (await quiet.get(after)).text
    assert (f"pays-{LIST - 1}<" in last, "pays-0<" in last, 'rel="next"' in last) == (True, False, False)
    assert "51 calls" not in last
    assert f"{LIST} calls or more" in (await quiet.get("/callbacks?step=pay")).text
    assert "No such callback" in (await quiet.get("/callbacks?step=%3Cscript%3Ealert(1)")).text
    assert "theirs" in (await quiet.get("/callbacks?namespace=acme")).text
    form = await quiet.get("/do/v1/runs/pays-0/callback?step=pay-1")
    assert 'value="pay-1"' in form.text
    assert "holdfast callback pays-0 STEP --data JSON" in form.text


async def test_a_run_that_waits_for_another_system_leads_to_the_form(quiet: Asked) -> None:
    """What moves the run is a button, and behind it is a form."""
    store, (request, waits) = quiet.hf.store, callback_steps()
    request.state = StepState.RUNNING
    await join(store)
    await begin(store, request, waits, run=new_run("pays", workflow="shop.pay", input=b"{}"))
    assert await store.batches.commit(A, [report("pays", 1, 1)]) == [Answer.ACCEPTED]
    text = (await quiet.get("/runs/pays")).text
    moves = re.findall(r'href="(/do/[^"]*)"[^>]*>Answer for it…<', text)
    assert moves == ["/do/v1/runs/pays/callback?step=pay-1"]
    assert (await quiet.get(moves[0])).status_code == 200


async def test_a_view_is_kept_by_the_server(quiet: Asked) -> None:
    """For whoever has saved it. What is no list of runs, has a long name, or is one too many is refused."""
    for body, status in (
        ({"name": "bad", "query": "state=failed&tag.region=eu"}, 200),
        ({"name": "x", "query": "what=1"}, 422),
        ({"name": "x", "query": "ü"}, 422),
        ({"name": "x" * 41, "query": ""}, 422),
        ({"name": "x", "query": "error=" + "x" * 2000}, 422),
        ({"name": "  ", "query": ""}, 422),
        ({"name": "x"}, 422),
    ):
        assert (await quiet.post("/v1/views", body)).status_code == status, body
    assert (await quiet.get("/v1/views")).json()["items"] == [
        {"name": "bad", "ref": "bad", "query": "state=failed&tag.region=eu"}
    ]
    text = (await quiet.get("/runs?state=failed&tag.region=eu")).text
    assert (
        '<a href="/runs?state=failed&amp;tag.region=eu" title="bad" aria-current="true"><span class="cut">bad</span></a>'
        in text
    )
    viewer = bearer(await made_token(quiet.hf, "viewer"))
    assert (await quiet.get("/v1/views", headers=viewer)).json()["items"] == []
    for n in range(VIEWS_MAX):
        made = await quiet.post("/v1/views", {"name": f"v{n}", "query": ""}, headers=viewer)
        assert made.status_code == 200
    more = await quiet.post("/v1/views", {"name": "more", "query": ""}, headers=viewer)
    assert more.status_code == 409, more.text


async def test_what_does_not_exist_says_so(quiet: Asked) -> None:
    """With the status of the API, in words, as a page."""
    answer = await quiet.get("/runs/nobody")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "pruned" in answer.text
    assert (await quiet.get("/runs?state=no-state")).status_code == 422
    assert (await quiet.get("/runs?cursor=x")).status_code == 400
    assert (await quiet.get("/runs?what=x")).status_code == 422


async def test_a_page_that_is_open_hears_what_is_wrong_without_an_error(quiet: Asked) -> None:
    """It asks whether what it shows is still true, and a browser would log another status. The header says what is wrong."""
    gone = await quiet.get("/runs/nobody", headers={"HX-Request": "live"})
    assert (gone.status_code, gone.headers["holdfast-problem"]) == (200, "unknown")
    await quiet.started(id="there")
    there = await quiet.get("/runs/there", headers={"HX-Request": "live"})
    assert there.status_code == 200
    assert "holdfast-problem" not in there.headers


async def test_pages_say_what_they_listen_to(quiet: Asked) -> None:
    """Those of lists that have a topic, and no others."""
    topics = {
        path: found[1] if (found := re.search(r'data-topics="([^"]*)"', (await quiet.get(path)).text)) else ""
        for path in PLAIN
    }
    listening = {path.strip("/") for path, topic in topics.items() if topic == f"topic={path.strip('/')}"}
    assert listening == set(WHOLE) - {"attention", "occasions"}
    assert topics["/triggers"] == "topic=occasions"


async def test_the_bar_becomes_an_address(quiet: Asked) -> None:
    """What is typed is sent on to the address that says the same, and keeps what was chosen before."""
    answer = await quiet.get("/runs", params={"q": "workflow:shop.count region=eu", "state": "held"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs?state=held&workflow=shop.count&tag.region=eu"


async def test_runs_are_listed_the_oldest_first_by_the_head_of_their_column(quiet: Asked) -> None:
    """The address says it, filters keep it, and pages go on in the same direction."""
    for n in range(53):
        await quiet.started("shop.count", input={"a": 1}, id=f"x-{n:02}")
    newest = (await quiet.get("/runs?prefix=x-")).text
    assert 'aria-sort="descending"><a href="/runs?prefix=x-&amp;order=oldest"' in newest
    oldest = (await quiet.get("/runs?prefix=x-&order=oldest")).text
    assert re.findall(r'data-run="(x-\d+)"', oldest) == [f"x-{n:02}" for n in range(50)]
    assert 'aria-sort="ascending"><a href="/runs?prefix=x-"' in oldest
    assert re.search(r'href="/runs\?prefix=x-&amp;order=oldest&amp;state=pending"', oldest), (
        "a state keeps the order"
    )
    (more,) = re.findall(r'href="([^"]+)" rel="next">Newer<', oldest)
    rest = (await quiet.get(more.replace("&amp;", "&"))).text
    assert re.findall(r'data-run="(x-\d+)"', rest) == ["x-50", "x-51", "x-52"]
    assert (await quiet.get("/runs?order=longest")).status_code == 422


async def test_a_run_is_started_by_the_form_that_its_type_makes(busy: Asked) -> None:
    """What does not fit is said where it was typed, and nothing starts."""
    page = await busy.get("/start?workflow=shop.count")
    assert 'name="/input/a"' in page.text
    seal = re.search(r'name="seal" value="(\w+)"', page.text)
    assert seal is not None
    form = {"seal": seal[1], "workflow": "shop.count", "/input/a": "1", "id": "by-form", "tags": "region=eu"}
    wrong = await busy.client.post(
        "/start", data=form | {"/input/a": "one"}, headers={"Origin": "http://localhost"}
    )
    assert wrong.status_code == 422
    assert re.search(
        r'name="/input/a"[^>]* aria-invalid="true".*?<em class="err" id="wrong-at">this is no number',
        wrong.text,
    )
    assert 'value="by-form"' in wrong.text
    made = await busy.client.post("/start", data=form, headers={"Origin": "http://localhost"})
    assert (made.status_code, made.headers["location"]) == (303, "/runs/by-form")
    row = await busy.hf.store.reads.run("by-form")
    assert row is not None
    assert row.input.startswith(b'{"a":1')
    assert row.tags == '{"region": "eu"}'


async def sent(asked: Asked, path: str, fields: dict[str, str]) -> Response:
    """Send the form of a deed, as a browser does."""
    form = await asked.get(path)
    assert form.status_code == 200, form.text
    seal = re.search(r'name="seal" value="(\w+)"', form.text)
    assert seal is not None
    named = set(re.findall(r'name="(\w+)"', form.text))
    assert set(fields) <= named | {"sure"}, "the form has no such field"
    answer: Response = await asked.client.post(
        path, data={"seal": seal[1], **fields}, headers={"Origin": "http://localhost"}
    )
    return answer


async def test_a_token_of_a_person_is_made_by_the_form(quiet: Asked) -> None:
    """With who bears it, and without payloads: what answers needs a person."""
    assert (
        '<input class="check" type="checkbox" name="payloads" checked>'
        in (await quiet.get("/do/v1/tokens")).text
    )
    given = {"role": "answerer", "name": "anna", "who": "person:anna team:finance", "expires_s": "60"}
    made = await sent(quiet, "/do/v1/tokens", given)
    assert made.status_code == 200, made.text
    (one,) = (await quiet.get("/v1/tokens")).json()["items"]
    assert (one["role"], one["who"], one["payloads"]) == ("answerer", ["person:anna", "team:finance"], False)


async def test_a_schedule_is_made_and_backfilled_by_forms(busy: Asked) -> None:
    """The workflows are offered by their names. A backfill is stopped where it is listed."""
    assert "/do/v1/schedules" in (await busy.get("/schedules")).text
    given = {
        "name": "nightly",
        "workflow": "shop.count",
        "times": "0 3 * * *",
        "tz": "Europe/Oslo",
        "input": '{"a": 1}',
    }
    form = (await busy.get("/do/v1/schedules")).text
    assert "<option>shop.count</option>" in form
    wrong = await sent(busy, "/do/v1/schedules", given | {"times": "sometimes"})
    assert wrong.status_code == 422
    made = await sent(busy, "/do/v1/schedules", given)
    assert (made.status_code, made.headers["location"]) == (303, "/schedules")
    one = (await busy.get("/v1/schedules/nightly")).json()
    assert (one["times"], one["tz"], one["input"]["a"]) == ("0 3 * * *", "Europe/Oslo", 1)
    assert 'href="/do/v1/schedules/nightly/backfills"' in (await busy.get("/schedules/nightly")).text
    days = {"from": "2024-01-01", "to": "2024-12-31", "most": "1", "note": "they were lost"}
    shown = await sent(busy, "/do/v1/schedules/nightly/backfills", days)
    assert shown.status_code == 200
    assert "Start 365 runs" in shown.text
    assert 'value="they were lost"' in shown.text
    assert (await busy.get("/v1/schedules/nightly/backfills")).json()["items"] == []
    sure = re.search(r'name="sure" value="(\w+)"', shown.text)
    assert sure is not None
    other = await sent(
        busy, "/do/v1/schedules/nightly/backfills", days | {"to": "2024-02-01", "sure": sure[1]}
    )
    assert "Start 31 runs" in other.text, "what was shown is another backfill"
    assert (await busy.get("/v1/schedules/nightly/backfills")).json()["items"] == []
    filled = await sent(busy, "/do/v1/schedules/nightly/backfills", days | {"sure": sure[1]})
    assert (filled.status_code, filled.headers["location"]) == (303, "/schedules/nightly")
    (begun,) = (await busy.get("/v1/schedules/nightly/backfills")).json()["items"]
    assert begun["note"] == "they were lost"
    stop = f"/do/v1/schedules/nightly/backfills/{begun['id']}/stop"
    assert f'href="{stop}"' in (await busy.get("/schedules/nightly")).text
    assert (await sent(busy, stop, {})).status_code == 303
    (ended,) = (await busy.get("/v1/schedules/nightly/backfills")).json()["items"]
    assert ended["state"] == "stopped"
    assert f'href="{stop}"' not in (await busy.get("/schedules/nightly")).text


async def test_the_page_of_a_workflow_has_its_runs_by_state_and_how_long_they_take(busy: Asked) -> None:
    """With what became of each. It listens to its runs, and to no others."""
    await busy.started("shop.count", input={"a": 1}, id="x")
    await busy.started("shop.fail", input={}, id="y")
    ended = await busy.post("/v1/runs/ended", {"runs": ["x", "y"], "wait_s": 20})
    assert len(ended.json()["items"]) == 2, ended.text
    text = (await busy.get("/workflows/shop.fail")).text
    assert re.search(r'href="/runs\?workflow=shop.fail&amp;state=failed">.*failed <span>1</span>', text)
    assert 'title="ValueError: it failed"' in text
    assert re.search(r'<td class="id">1</td>.*<span class="num">0 %</span>', text), (
        "its version, and how that went"
    )
    assert 'data-topics="topic=runs%3Aworkflow%3Dshop.fail"' in text
    assert "nine of ten within" in (await busy.get("/workflows/shop.count")).text


async def test_what_a_form_refuses_names_its_field(quiet: Asked) -> None:
    """By the words that stand above it, and not by a path into the body."""
    await quiet.started("shop.count", input={"a": 1}, id="x")
    limit = stored("default", "bank")
    await quiet.hf.store.queues.number_queues([QueueKey(stored("default", ""), (LimitKey(limit, 5),))])
    for typed, said in (("-1", "<b>Number</b>"), ("many", "<b>Number</b>")):
        wrong = await sent(quiet, "/do/v1/limits/bank", {"most": typed})
        assert wrong.status_code == 422
        assert said in wrong.text
        assert "<code>/most</code>" not in wrong.text
    wrong = await sent(quiet, "/do/v1/runs/x/fork", {"input": '{"b": 1}'})
    assert wrong.status_code == 422
    assert "<b>Input</b>" in wrong.text


async def test_what_the_overview_has_no_room_for_leads_to_its_page(quiet: Asked) -> None:
    """In words, with a link to where it is dealt with."""
    for n in range(12):
        assert (await quiet.post(f"/v1/breakers/bank-{n}/open", {"note": "down"})).status_code == 200
    text = (await quiet.get("/")).text
    assert '<a href="/gates">4 open breakers</a>' in text
    assert "of the kind" not in text


async def test_the_overview_has_what_needs_a_person_with_its_move(quiet: Asked) -> None:
    """A form for what opens a breaker, the page of an ask, and nothing for those who may not."""
    await quiet.post("/v1/breakers/bank/open", {"note": "it is down"})
    ask = await made_ask(quiet.hf, "default", "r1", "ours", "team:finance")
    text = (await quiet.get("/")).text
    assert "The breaker of bank is open" in text
    assert 'href="/do/v1/breakers/bank/reset"' in text
    assert f'href="/asks/{ask}"' in text
    assert "no usual value yet" in text


async def test_numbers_of_runs_follow_the_filter(quiet: Asked) -> None:
    for n, region in enumerate(("eu", "eu", "us")):
        await quiet.started("shop.count", input={"a": 1}, id=f"x-{n}", tags={"region": region})
    await quiet.post("/v1/runs/x-0/hold")
    everything, some = (await quiet.get("/runs")).text, (await quiet.get("/runs?tag.region=eu")).text
    numbers = re.compile(
        r">(?:All |pending |held )<span>([\d,+]+)</span>|(?:pending|held) <span>([\d,+]+)</span>"
    )
    assert [a or b for a, b in numbers.findall(everything)] == ["3", "1", "2"]
    assert [a or b for a, b in numbers.findall(some)] == ["2", "1", "1"]


async def test_why_has_links_and_its_moves_are_buttons(quiet: Asked) -> None:
    """What a viewer may not do is no button."""
    await quiet.started("shop.count", input={"a": 1}, id="x")
    await quiet.post("/v1/runs/x/hold", {"note": "wait"})
    text = (await quiet.get("/runs/x")).text
    assert 'main-act" href="/do/v1/runs/x/release"' in text
    assert 'href="/do/v1/runs/x/fork"' in text
    viewer = bearer(await made_token(quiet.hf, "viewer"))
    assert (await quiet.get("/v1/runs/x/why", headers=viewer)).json()["moves"][0]["allowed"] is False


async def test_a_run_that_asks_somebody_leads_to_the_question(quiet: Asked) -> None:
    ask = await made_ask(quiet.hf, "default", "r1", "ours", "team:finance")
    (move,) = (await quiet.get("/v1/runs/r1/why")).json()["moves"]
    assert (move["path"], move["allowed"]) == (f"/v1/asks/{ask}/answer", True)
    assert f'href="/asks/{ask}">Answer…</a>' in (await quiet.get("/runs/r1")).text


async def test_pages_have_the_numbers_of_what_waits_for_a_person(lone: Asked, quiet: Asked) -> None:
    """A number stands beside the name of the page where it is dealt with, and none if nothing waits."""
    assert "wait for a person" not in (await lone.get("/agents")).text
    assert (await quiet.post("/v1/breakers/bank/open", {"note": "maintenance"})).status_code == 200
    rail = (await quiet.get("/agents")).text.partition("<main")[0]
    assert re.findall(r'>([^<>]*)<b class="(\w+)">(\d+)<', rail) == [("Breakers &amp; holds", "fail", "1")]
