"""Events over HTTP: the three forms of the standard, sent by a library that is not ours, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import httpx2
import pytest
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

from holdfast.access import Role
from tests.http.conftest import Asked, bearer, made_token

STRUCTURED, BATCHED = "application/cloudevents+json", "application/cloudevents-batch+json"
DATA = {"street": "Quay"}


async def post(asked: Asked, body: Any, kind: str = STRUCTURED, **headers: str) -> httpx2.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Content-Type": kind} | {name.replace("_", "-"): value for name, value in headers.items()}
    return await asked.client.post("/v1/events", content=content, headers=given)


def event(name: str = "e1", **more: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "type": "parcel.sent", "source": "shop", "id": name, "data": DATA, **more}


async def result(asked: Asked, run: str) -> Any:
    return await asked.hf.run(run).result(60)


@pytest.mark.parametrize("form", [to_structured, to_binary])
async def test_an_independent_sender_starts_a_run_once(busy: Asked, form: Any) -> None:
    """In both forms that the package `cloudevents` writes."""
    sent = CloudEvent(
        {"type": "parcel.sent", "source": "https://shop.example/orders", "subject": "o 1"}, DATA
    )
    headers, body = form(sent)
    answers = await asyncio.gather(
        *(busy.client.post("/v1/events", content=body, headers=headers) for _ in range(4))
    )
    assert {one.status_code for one in answers} == {202}, answers[0].text
    items = [one.json()["items"][0] for one in answers]
    assert sum(one["new"] for one in items) == 1
    ((run,),) = {tuple(one["started"]) for one in items}
    assert await result(busy, run) == "Quay"
    (seen,) = (await busy.get("/v1/events")).json()["items"]
    assert (seen["id"], seen["source"], seen["subject"]) == (sent["id"], "https://shop.example/orders", "o 1")
    assert seen["started"] == [run]
    assert seen["data"] is None


async def test_a_batch_is_taken_whole_or_not_at_all(busy: Asked) -> None:
    wrong = [event("e1"), event("e2", data={"street": 7})]
    refused = await post(busy, wrong, BATCHED)
    assert refused.status_code == 422
    assert "/1/data" in refused.json()["detail"]
    assert (await busy.get("/v1/events")).json()["items"] == []
    taken = await post(busy, [event("e1"), event("e2"), event("e1")], BATCHED)
    assert [one["new"] for one in taken.json()["items"]] == [True, True, False]
    assert (await post(busy, [], BATCHED)).json() == {"items": []}


UNSOUND = {
    b'{"street": "Quay", "street": "Pier"}': "occurs twice",
    b'{"street": "\\u0000"}': "NUL",
    b'{"street": "\\ud800"}': "surrogate",
    b'{"street": NaN}': "NaN",
    b'{"street": 1e999}': "larger",
    b"[" * 200 + b"]" * 200: "nested",
    b"[" * 100_000: "nested",
    b'{"street": "\xff"}': "UTF-8",
    b"1" * 5_000: "digits",
    b'{"street": ': "not JSON",
}


@pytest.mark.parametrize("raw", UNSOUND)
async def test_json_is_read_strictly_wherever_it_stands(lone: Asked, raw: bytes) -> None:
    """In a body of its own, with and without a media type, and in base64. The refusal says where."""
    coded = {name: value for name, value in event().items() if name != "data"}
    coded["data_base64"] = base64.b64encode(raw).decode()
    binary = {"ce_specversion": "1.0", "ce_type": "parcel.moved", "ce_source": "shop", "ce_id": "e1"}
    binary |= {"Content_Type": ""}
    tries = {
        "the body": await post(
            lone, raw, "application/json", **binary | {"Content_Type": "application/json"}
        ),
        "the body ": await post(lone, raw, **binary),
        "data_base64": await post(lone, coded | {"type": "parcel.moved"}),
        "/1/data_base64": await post(lone, [event("e0"), coded], BATCHED),
    }
    for where, refused in tries.items():
        assert refused.status_code == 400, (where, refused.text)
        assert UNSOUND[raw] in refused.json()["detail"]
        if UNSOUND[raw] in {"nested", "UTF-8", "not JSON"}:
            assert refused.json()["detail"].startswith(f"{where.strip()} is")
    assert (await lone.get("/v1/events")).json()["items"] == []


async def test_a_binary_event_without_data_and_one_whose_data_only_sounds_like_json(lone: Asked) -> None:
    """No body is no data, whatever its media type. Lines of JSON are no JSON, and come through as bytes."""
    binary = {"ce_specversion": "1.0", "ce_type": "parcel.moved", "ce_source": "shop"}
    for number, (kind, body, data) in enumerate(
        (
            ("application/json", b"", None),
            ("text/plain", b"", None),
            ("application/x-ndjson", b"1\n2", base64.b64encode(b"1\n2").decode()),
        )
    ):
        assert (await post(lone, body, kind, ce_id=f"e{number}", **binary)).status_code == 202
        assert (await lone.get(f"/v1/events/shop/e{number}")).json()["data"] == data


async def test_an_attribute_in_quotes_is_what_stands_between_them(lone: Asked) -> None:
    """The standard asks readers of headers for that: first the quotes, then the percent signs."""
    binary = {"ce_specversion": '"1.0"', "ce_type": "parcel.moved", "ce_source": "shop"}
    for given, name in (
        ('"e 1"', "e 1"),
        ('"say \\"e2\\""', 'say "e2"'),
        ("%22e3%22", '"e3"'),
        ('"%E2%82%AC"', "€"),
        ('e"4"', 'e"4"'),
        ('"', '"'),
    ):
        taken = await post(lone, b"1", "application/json", ce_id=given, **binary)
        assert taken.json()["items"][0]["id"] == name


async def test_bytes_and_text_come_through(busy: Asked) -> None:
    headers, body = to_binary(
        CloudEvent({"type": "bytes.sent", "source": "s", "datacontenttype": "image/png"}, b"\x00\xff\x01")
    )
    headers["content-type"] = "image/png"
    sent = await busy.client.post("/v1/events", content=body, headers=headers)
    assert await result(busy, sent.json()["items"][0]["started"][0]) == 3
    coded = event("b", type="bytes.sent", datacontenttype="image/png", data_base64="AP8B")
    del coded["data"]
    sent = await post(busy, coded)
    assert await result(busy, sent.json()["items"][0]["started"][0]) == 3
    await post(
        busy,
        "héllo".encode(),
        "text/plain",
        ce_specversion="1.0",
        ce_type="x",
        ce_source="s",
        ce_id="t",
        ce_subject="%C3%A5%20b",
    )
    shown = (await busy.get("/v1/events/s/t")).json()
    assert (shown["data"], shown["subject"]) == ("héllo", "å b")
    assert shown["attributes"] == {"datacontenttype": "text/plain"}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "specversion"),
        (event() | {"specversion": "0.3"}, "specversion"),
        (event() | {"id": ""}, "id"),
        (event() | {"id": 7}, "id"),
        (event() | {"id": "x" * 501}, "id"),
        (event() | {"id": "a\nb"}, "id"),
        (event() | {"source": None}, "source"),
        (event() | {"type": "a b"}, "type"),
        (event() | {"type": "$cancel"}, "type"),
        (event() | {"time": "yesterday"}, "time"),
        (event() | {"time": "2026-11-16T08:00:00"}, "time"),
        (event() | {"time": "0001-01-01T00:00:00+23:59"}, "time"),
        (event() | {"subject": ""}, "subject"),
        (event() | {"Upper": "x"}, "Upper"),
        (event() | {"extra": {"a": 1}}, "extra"),
        (event() | {"data_base64": "AA=="}, "data"),
        ([event()], "not an event"),
    ],
)
async def test_what_is_no_event_is_refused(lone: Asked, body: Any, place: str) -> None:
    """With the place, and nothing is written."""
    refused = await post(lone, body)
    assert refused.status_code == 422, refused.text
    assert place in refused.json()["detail"]
    assert (await lone.get("/v1/events")).json()["items"] == []


async def test_what_is_no_sound_json_is_refused(lone: Asked) -> None:
    for body in (b"{", b'{"a":1,"a":2}', b'"\\ud800"', b"\xff"):
        assert (await post(lone, body)).status_code == 400, body
    assert (await post(lone, [1], BATCHED)).status_code == 422
    assert (await post(lone, [event(str(i)) for i in range(1001)], BATCHED)).status_code == 422
    assert (await post(lone, event(), "application/json")).status_code == 415
    assert (await post(lone, b"x", "text/plain")).status_code == 415
    twice = [("ce-specversion", "1.0"), ("ce-id", "a"), ("ce-id", "b"), ("ce-type", "x"), ("ce-source", "s")]
    assert (await lone.client.post("/v1/events", content=b"", headers=twice)).status_code == 400
    half = await post(
        lone, b'{"a":', "application/json", ce_specversion="1.0", ce_id="a", ce_type="x", ce_source="s"
    )
    assert half.status_code == 400


async def test_pages_of_events_neither_repeat_nor_leave_out_any(quiet: Asked) -> None:
    """Also those of one batch, which may have come at one moment. A cursor belongs to its list."""
    for batch in range(3):
        sent = [event(f"{batch}-{i}") | {"type": f"paged.{i % 2}"} for i in range(20)]
        assert (await post(quiet, sent, BATCHED)).status_code == 202
    for narrow, many in (("", 60), ("&type=paged.1", 30)):
        seen: list[str] = []
        query = f"?limit=7{narrow}"
        while True:
            page = (await quiet.get(f"/v1/events{query}")).json()
            seen += [one["id"] for one in page["items"]]
            if page["next"] is None:
                break
            query = f"?limit=7{narrow}&cursor={page['next']}"
        assert len(seen) == len(set(seen)) == many
        assert [one.partition("-")[0] for one in seen] == sorted(
            (one.partition("-")[0] for one in seen), reverse=True
        )
    first = (await quiet.get("/v1/events?limit=7")).json()
    for wrong in ("x", first["next"] + "&type=paged.1"):
        assert (await quiet.get(f"/v1/events?cursor={wrong}")).status_code == 400
    before = first["items"][-1]["received_at"].replace("+", "%2B")
    earlier = (await quiet.get(f"/v1/events?limit=200&before={before}")).json()["items"]
    assert all(one["received_at"] < first["items"][-1]["received_at"] for one in earlier)


async def test_too_much_is_refused(lone: Asked) -> None:
    large = lone.hf.config.payload_max_bytes
    assert (await post(lone, event(data="x" * large))).status_code == 422
    beyond = lone.hf.config.batch_max_bytes
    assert (await post(lone, b"x" * (beyond + 1))).status_code == 413


async def test_a_token_may_be_narrowed_to_types(quiet: Asked) -> None:
    tokens = {
        can: bearer(await made_token(quiet.hf, Role.STARTER, can=json.dumps([can] if can else [])))
        for can in ("", "events:parcel.*", "events:bank.*", "workflows:other.*")
    }
    found = {}
    for i, (can, headers) in enumerate(tokens.items()):
        found[can] = (await post(quiet, event(f"e{i}"), **headers)).status_code
    assert found == {"": 202, "events:parcel.*": 202, "events:bank.*": 403, "workflows:other.*": 202}
    viewer = bearer(await made_token(quiet.hf, Role.VIEWER, payloads=False))
    assert (await post(quiet, event("v"), **viewer)).status_code == 403
    shown = (await quiet.get("/v1/events/shop/e0", headers=viewer)).json()
    assert (shown["hidden"], shown["data"]) == (True, None)


async def test_a_token_for_workflows_cannot_start_others_by_events(busy: Asked) -> None:
    other = bearer(await made_token(busy.hf, Role.STARTER, can='["workflows:other.*"]'))
    own = bearer(await made_token(busy.hf, Role.STARTER, can='["workflows:shop.*"]'))
    assert (await post(busy, event("e1"), **other)).status_code == 403
    assert (await post(busy, event("e1"), **own)).status_code == 202
