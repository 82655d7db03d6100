"""What people look at, over HTTP: runs in time, what would be undone."""

from __future__ import annotations

import asyncio
import re

import msgspec

from holdfast import Retry, here, step, workflow
from holdfast.queues import LimitKey, Queue, QueueKey
from holdfast.store.walk import Turns
from holdfast.supervisor.facts import QUEUES_MAX
from tests.http.conftest import Asked, asking, bearer, made_ask, made_token
from tests.store.made import A, begin, call, join, new_run, number_lane, start


@step
async def book(what: str) -> str:
    return what


@book.undo
async def unbook(done: str | None, what: str) -> None:
    """Give it back."""


@step(retry=Retry(attempts=3, delay=0.01, jitter="none"))
async def flaky(to: int) -> int:
    if here.attempt < to:
        raise ValueError(f"not yet {here.attempt}")
    return here.attempt


@step(retry=Retry(attempts=3, delay=3_600, jitter="none"))
async def refuse() -> None:
    raise OSError("no")


@workflow(name="shop.patient")
async def patient() -> None:
    await refuse()


@step
async def look() -> int:
    return 1


@workflow(name="shop.trip")
async def trip() -> None:
    await book("flight")
    await asyncio.gather(book("hotel"), book("car"))
    await look()
    await asyncio.sleep(3_600)


@workflow(name="shop.flaky")
async def tries(a: int = 1) -> int:
    await flaky(3)
    return a


def digits_out(text: str) -> str:
    """A sentence without its durations."""
    return re.sub(r"\d", "", text)


async def sleeping(asked: Asked, run: str) -> None:
    """Wait until the trip sleeps."""
    while True:
        steps = (await asked.get(f"/v1/runs/{run}/steps")).json()["items"]
        if any(one["kind"] == "timer" for one in steps):
            return
        await asyncio.sleep(0.02)


async def test_a_timeline_has_a_bar_for_each_attempt(busy: Asked) -> None:
    """Back-off and waiting are apart from work, because each attempt says from when it could be claimed."""
    await busy.started("shop.flaky", input={}, id="x")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    answer = await busy.get("/v1/runs/x/timeline")
    assert answer.status_code == 200
    found = answer.json()
    (row,) = [row for row in found["rows"] if row["kind"] == "step"]
    work = [bar for bar in row["bars"] if bar["kind"] == "work"]
    assert [bar["fill"] for bar in work] == ["fail", "fail", "ok"]
    assert [bar["words"] for bar in work[:2]] == ["ValueError: not yet 1", "ValueError: not yet 2"]
    assert "off" in [bar["kind"] for bar in row["bars"]]
    tried = (await busy.get("/v1/runs/x/attempts")).json()["items"]
    assert all(one["ready_at"] <= one["started_at"] for one in tried)
    assert (await busy.get("/v1/runs/x/timeline?only=open")).json()["rows"] == []


async def test_a_timeline_that_has_not_changed_is_not_sent_again(busy: Asked) -> None:
    await busy.started("shop.flaky", input={}, id="x")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    first = await busy.get("/v1/runs/x/timeline")
    again = await busy.get("/v1/runs/x/timeline", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await busy.get("/v1/runs/x/timeline?only=wrong", headers={"If-None-Match": first.headers["etag"]})
    assert other.status_code == 200


async def test_an_open_run_says_what_would_be_undone(busy: Asked) -> None:
    """In the order in which that would happen. After the cancel, exactly that has happened."""
    await busy.started("shop.trip", input={}, id="x")
    async with asyncio.timeout(30):
        await sleeping(busy, "x")
    plan = (await busy.get("/v1/runs/x/undo")).json()["items"]
    assert [one["wave"] for one in plan] == [1, 1, 2]
    assert plan[-1]["key"] == "book"
    assert all(one["is_certain"] for one in plan)
    assert {one["undo"].rpartition(".")[2] for one in plan} == {"unbook"}
    await busy.post("/v1/runs/x/cancel")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    found = (await busy.get("/v1/runs/x/timeline")).json()
    undo = found["undo"]
    assert (undo["done"], undo["total"], undo["kept"]) == (3, 3, ["look"])
    assert found["turn"]["words"] == "cancelled"
    assert {row["name"].removeprefix("undo:") for row in undo["rows"]} == {one["key"] for one in plan}
    assert (await busy.get("/v1/runs/x/undo")).json()["items"] == []


async def test_what_is_wrong_is_refused_with_its_place(quiet: Asked) -> None:
    await quiet.started("shop.flaky", input={}, id="x")
    for query, place in (
        ("only=closed", "?only"),
        ("after=-1", "?after"),
        (f"group={'x' * 3_000}", "?group"),
    ):
        answer = await quiet.get(f"/v1/runs/x/timeline?{query}")
        assert (answer.status_code, answer.json()["place"]) == (422, place), answer.text
    assert (await quiet.get("/v1/runs/x/timeline?group=g:no%3Csuch%3E")).json()["rows"] == []
    assert (await quiet.get("/v1/runs/nobody/timeline")).status_code == 404
    assert (await quiet.get("/v1/runs/nobody/undo")).status_code == 404


async def test_names_are_those_of_the_namespace(store_url: str) -> None:
    """Neither a run nor a step shows the namespace before its name."""
    async with asking(store_url, namespace="acme", roles=("scheduler", "agent")) as asked:
        headers = {"Holdfast-Namespace": "acme"}
        await asked.post("/v1/runs", {"workflow": "shop.flaky", "input": {}, "id": "x"}, headers=headers)
        await asked.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20}, headers=headers)
        text = (await asked.get("/v1/runs/x/timeline", headers=headers)).text
        assert "acme//" not in text
        assert '"run":"x"' in text


async def test_why_has_parts_and_moves(quiet: Asked) -> None:
    """The sentence is the one of the command line. A move can be posted as it is."""
    await quiet.started("shop.trip", input={}, id="x")
    await quiet.post("/v1/runs/x/hold", {"note": "<b>wait</b>"})
    found = (await quiet.get("/v1/runs/x/why")).json()
    assert "".join(part["text"] for part in found["parts"]) == found["text"]
    assert digits_out(found["text"]) == digits_out(await quiet.hf.run("x").why())
    assert found["state"] == "held"
    kinds = {part["kind"] for part in found["parts"]}
    assert {"text", "duration", "command"} <= kinds
    (move,) = found["moves"]
    assert (move["verb"], move["command"], move["allowed"], move["danger"]) == (
        "release", "holdfast release x", True, False,
    )  # fmt: skip
    assert [act["verb"] for act in found["acts"]] == ["fork", "cancel"]
    assert (await quiet.post(move["path"], move["body"])).json()["state"] == "pending"
    assert [act["verb"] for act in (await quiet.get("/v1/runs/x/why")).json()["acts"]] == [
        "hold",
        "fork",
        "cancel",
    ]


async def test_a_viewer_is_shown_no_move_as_allowed(quiet: Asked) -> None:
    await quiet.started("shop.trip", input={}, id="x")
    headers = bearer(await made_token(quiet.hf, "viewer"))
    found = (await quiet.get("/v1/runs/x/why", headers=headers)).json()
    assert {act["allowed"] for act in found["acts"]} == {False}


async def test_a_run_that_backs_off_can_be_tried_now(busy: Asked) -> None:
    await busy.started("shop.patient", input={}, id="x")
    async with asyncio.timeout(30):
        found = (await busy.get("/v1/runs/x/why")).json()
        while found["state"] != "backing off":
            await asyncio.sleep(0.02)
            found = (await busy.get("/v1/runs/x/why")).json()
    assert [(move["verb"], move["label"]) for move in found["moves"]] == [("retry", "Try now")]
    assert {"step", "error", "duration"} <= {part["kind"] for part in found["parts"]}
    (row,) = (await busy.get("/v1/runs?words=true")).json()["items"]
    assert "refuse attempt 2 of" in row["words"]
    assert (await busy.get("/v1/runs")).json()["items"][0]["words"] is None


async def test_a_list_of_runs_says_which_limit_has_no_room(quiet: Asked) -> None:
    """And not that an agent or a scheduler is waited for. Beyond the limits that were read, it says neither."""
    store = quiet.hf.store
    await join(store)
    lane = await number_lane(store, "shop.charge")

    async def queue(*limits: LimitKey, fair: str = "") -> Queue:
        return (await store.queues.number_queues([QueueKey(fair, limits)]))[0]

    async def waits(run: str, where: Queue | None) -> None:
        await begin(store, call(lane=lane, queue=where), run=new_run(run))

    async def words() -> dict[str, str]:
        return {
            one["id"]: one["words"]
            for one in (await quiet.get("/v1/runs?words=true&limit=200")).json()["items"]
        }

    mail = await queue(LimitKey("mail", 1, per_s=3600.0, burst=1))
    for run in ("mail-1", "mail-2"):
        await waits(run, mail)
    (begun,) = await store.agents.claim_steps(A, [lane], 10, turns=Turns())
    bank, rooms = await queue(LimitKey("bank", 1)), await queue(LimitKey("rooms", 1))
    await waits("charges", bank)
    await waits("fair", await queue(fair="acme"))
    await waits("plain", None)
    await start(store, new_run("enters", queue=rooms))
    await start(store, new_run("ready"))
    later = {"workflow": "shop.count", "input": {"a": 1}, "id": "later", "begin_in_s": 7200}
    assert (await quiet.post("/v1/runs", later)).status_code == 201
    assert (await words())["charges"] == "charge#1 waits for an agent"  # there is room
    for limit in ("bank", "rooms"):
        await store.limits.set_limit(limit, 0, "test", "")
    found = await words()
    (left,) = {"mail-1", "mail-2"} - {begun.run_id}
    assert found[left] == "charge#1 waits for its turn under mail"
    assert found["charges"] == "charge#1 waits for a slot under bank"
    assert found["enters"] == "waits for a slot under rooms"
    assert found["fair"] == found["plain"] == "charge#1 waits for an agent"
    assert found["ready"] == "waits for a scheduler"
    assert re.fullmatch(r"begins in (1\.9|2\.0|2|119|120) (h|min)", found["later"]), found["later"]
    for n in range(QUEUES_MAX + 1):
        await waits(f"many-{n}", await queue(LimitKey(f"limit-{n:02}", 1)))
        await store.limits.set_limit(f"limit-{n:02}", 0, "test", "")
    found = await words()
    assert found["many-0"] == "charge#1 waits for a slot under limit-00"
    assert found[f"many-{QUEUES_MAX}"] == "charge#1 waits to begin"


async def test_what_needs_a_person_is_listed_with_its_move(quiet: Asked) -> None:
    """Nobody executes anything here, so the run waits for a scheduler that does not exist."""
    empty = (await quiet.get("/v1/attention")).json()
    assert (empty["headline"], empty["items"], empty["solved"]) == ("Nothing needs a person", [], None)
    await quiet.started("shop.trip", input={}, id="x")
    await quiet.post("/v1/breakers/bank/open", {"note": "it is down"})
    found = (await quiet.get("/v1/attention")).json()
    assert [one["kind"] for one in found["items"]] == ["nobody can do this", "breaker open"]
    assert (found["total"], found["rest"]) == (2, [])
    assert "shop.trip" in found["items"][0]["title"]
    move = found["items"][1]["moves"][0]
    assert (await quiet.post(move["path"], move["body"])).status_code == 200
    short = (await quiet.get("/v1/attention?limit=1")).json()
    assert (len(short["items"]), short["rest"]) == (1, [{"kind": "breaker open", "count": 1}])
    await quiet.post("/v1/runs/x/hold", {"note": "by hand"})
    await quiet.post("/v1/runs/x/release")
    assert (await quiet.get("/v1/attention")).json()["solved"]["verb"] == "release"
    headers = bearer(await made_token(quiet.hf, "viewer"))
    assert (await quiet.get("/v1/attention", headers=headers)).json()["solved"] is None


async def test_an_open_ask_needs_a_person_until_it_is_answered(quiet: Asked) -> None:
    """Who may not answer sees it, and that they may not."""
    ask = await made_ask(quiet.hf, "default", "r1", "ours", "team:finance")
    found = (await quiet.get("/v1/attention")).json()
    (one,) = [each for each in found["items"] if each["kind"] == "ask"]
    assert (one["ask"], one["run"], one["title"], one["count"]) == (ask, "r1", "1 ask waits", 1)
    headers = bearer(await made_token(quiet.hf, "viewer"))
    seen = (await quiet.get("/v1/attention", headers=headers)).json()["items"]
    assert [each["moves"][0]["allowed"] for each in seen if each["kind"] == "ask"] == [False]
    answer = await quiet.post(
        f"/v1/asks/{ask}/answer", {"value": True}, headers=bearer(await made_token(quiet.hf, "admin"))
    )
    assert answer.status_code == 200, answer.text
    left = (await quiet.get("/v1/attention", headers=headers)).json()["items"]
    assert "ask" not in [each["kind"] for each in left]


async def test_the_backlog_says_who_is_missing(quiet: Asked) -> None:
    await quiet.started("shop.trip", input={}, id="x")
    (one,) = (await quiet.get("/v1/backlog")).json()["items"]
    assert (one["kind"], one["name"], one["ready"], one["able"], one["is_hopeless"]) == (
        "workflow", "shop.trip@1", 1, 0, True,
    )  # fmt: skip
    assert one["start"].startswith("holdfast scheduler ")
    await quiet.post("/v1/holds", {"scope": "workflow", "value": "shop.trip"})
    (one,) = (await quiet.get("/v1/backlog")).json()["items"]
    assert (one["is_hopeless"], one["parked"]) == (False, one["parked"])
    assert one["parked"].startswith("is held by")


async def test_attention_of_others_is_not_shown(wide: Asked) -> None:
    """Each namespace has its own."""
    await wide.post("/v1/breakers/bank/open", headers={"Holdfast-Namespace": "acme"})
    own = (await wide.get("/v1/attention", headers={"Holdfast-Namespace": "acme"})).json()
    assert own["items"][0]["id"] == "breaker:bank"
    other = (await wide.get("/v1/attention", headers={"Holdfast-Namespace": "umbrella"})).json()
    assert other["items"] == []


async def test_a_preview_says_what_would_happen_and_changes_nothing(busy: Asked) -> None:
    """In words, with what would be undone, and as a command."""
    await busy.started("shop.trip", input={}, id="x")
    async with asyncio.timeout(30):
        await sleeping(busy, "x")
    found = (await busy.post("/v1/runs/x/cancel", {"preview": True})).json()
    assert (found["verb"], found["allowed"], found["command"]) == ("cancel", True, "holdfast cancel x")
    assert found["sentence"] == "x would be cancelled; 3 steps would be undone"
    assert found["undo"][-1] == "book"
    assert (await busy.get("/v1/runs/x")).json()["state"] == "running"
    release = (await busy.post("/v1/runs/x/release", {"preview": True})).json()
    assert (release["allowed"], release["sentence"]) == (False, "x cannot be released")
    for act in ("hold", "retry", "skip", "fork"):
        answer = await busy.post(f"/v1/runs/x/{act}", {"preview": True})
        assert (answer.status_code, answer.json()["verb"]) == (200, act), answer.text
    assert (await busy.get("/v1/runs/x/journal")).json()["items"] == []
    assert (await busy.post("/v1/runs/nobody/cancel", {"preview": True})).status_code == 404


async def test_a_step_is_shown_with_its_attempts(busy: Asked) -> None:
    await busy.started("shop.flaky", input={}, id="x")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    found = (await busy.get("/v1/runs/x/steps/1")).json()
    assert (found["here_key"], found["needs"], found["undo"]) == ("x::flaky", [], None)
    assert [one["error"]["message"] for one in found["tried"]] == ["not yet 1", "not yet 2"]
    assert found["depends"].endswith(".flaky")


async def test_statistics_count_what_ended(busy: Asked) -> None:
    for number in range(3):
        await busy.started("shop.flaky", input={}, id=f"x{number}")
    await busy.started("shop.fail", input={}, id="y")
    for run in ("x0", "x1", "x2", "y"):
        await busy.post("/v1/runs/ended", {"runs": [run], "wait_s": 20})
    found = (await busy.get("/v1/stats?window=1h&by=workflow")).json()
    assert found["ended"] == {"failed": 1, "succeeded": 3}
    assert sum(sum(one["ended"].values()) for one in found["slices"]) == 4
    assert (len(found["slices"]), found["is_exact"], found["usual"]) == (60, True, None)
    assert [(one["workflow"], one["success"]) for one in found["workflows"]] == [
        ("shop.fail", 0.0), ("shop.flaky", 1.0),
    ]  # fmt: skip
    assert found["took"]["half_s"] > 0
    assert found["versions"] == []
    versions = (await busy.get("/v1/stats?by=version&workflow=shop.flaky")).json()["versions"]
    assert [(one["version"], one["success"], one["ended"]) for one in versions] == [
        ("1", 1.0, {"succeeded": 3})
    ]
    only = (await busy.get("/v1/stats?workflow=shop.fail")).json()
    assert (only["ended"], only["workflows"]) == ({"failed": 1}, [])
    for window in ("1y", "0s", "30d", "now"):
        assert (await busy.get(f"/v1/stats?window={window}")).json()["place"] == "?window"


async def test_counts_follow_the_filter(quiet: Asked) -> None:
    """All filters but the state."""
    for number in range(3):
        await quiet.started("shop.trip", input={}, id=f"a{number}", tags={"team": "red"})
    await quiet.started("shop.flaky", input={}, id="b")
    await quiet.post("/v1/runs/a0/hold")
    assert (await quiet.get("/v1/runs/counts")).json() == {"runs": {"held": 1, "pending": 3}, "exact": True}
    for query in ("workflow=shop.trip", "workflow=trip", "prefix=a", "tag.team=red"):
        found = (await quiet.get(f"/v1/runs/counts?{query}")).json()
        assert found == {"runs": {"held": 1, "pending": 2}, "exact": True}, query
    assert (await quiet.get("/v1/runs/counts?since=tomorrow")).json()["place"] == "?since"
    held = (await quiet.get("/v1/runs?state=held")).json()["items"]
    assert [one["id"] for one in held] == ["a0"]
    trips = (await quiet.get("/v1/runs?workflow=trip&limit=2")).json()
    assert [one["id"] for one in trips["items"]] == ["a2", "a1"]
    rest = (await quiet.get(f"/v1/runs?workflow=trip&limit=2&cursor={trips['next']}")).json()
    assert [one["id"] for one in rest["items"]] == ["a0"]
    assert (await quiet.get("/v1/runs?workflow=nothing")).json()["items"] == []


async def test_a_search_finds_runs_and_workflows(busy: Asked) -> None:
    await busy.started("shop.trip", input={}, id="trip-1")
    found = (await busy.get("/v1/search?q=trip")).json()
    assert [one["id"] for one in found["runs"]] == ["trip-1"]
    assert "shop.trip" in found["workflows"]
    assert (await busy.get("/v1/search?q=%25")).json()["runs"] == []
    assert (await busy.get("/v1/search")).json()["runs"] == []


async def test_bare_steps_are_the_steps_without_payloads(busy: Asked) -> None:
    """Field by field, so that no column is taken for another."""
    await busy.started("shop.family", id="x")
    await busy.started("shop.flaky", input={}, id="y")
    for run in ("x", "y"):
        await busy.post("/v1/runs/ended", {"runs": [run], "wait_s": 20})
        reads = busy.hf.store.reads
        whole, bare = await reads.steps(run), await reads.bare_steps(run)
        left_out = {
            "input": None,
            "digest": None,
            "output": None,
            "retry": None,
            "checkpoint": None,
            "progress": None,
        }
        assert bare == [msgspec.structs.replace(one, **left_out) for one in whole]
    assert await busy.hf.store.reads.child_ids("x") == {1: "child/1"}
