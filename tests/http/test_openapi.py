"""The table of routes is described as OpenAPI 3.1, and a change of that description shows in review."""

from __future__ import annotations

import json
import re
from pathlib import Path

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # it has no types

from holdfast.http.openapi import document
from holdfast.http.reference import page
from holdfast.http.routes import ROUTES
from holdfast.queues import LimitKey, QueueKey
from holdfast.wire.paths import path_of
from tests.http.conftest import Asked, made_ask, made_occasion

SNAPSHOT = Path(__file__).with_name("openapi.json")
PAGE = Path(__file__).parents[2] / "docs/reference/http.md"


def test_the_description_is_as_the_snapshot_says() -> None:
    """`python -m holdfast.http.reference` writes both files anew."""
    assert document(ROUTES) == json.loads(SNAPSHOT.read_text())


def test_the_reference_page_is_made_from_the_table() -> None:
    """Nobody writes it by hand."""
    assert PAGE.read_text() == page(ROUTES)


async def test_every_server_shows_it(lone: Asked) -> None:
    """Also to those who have no token."""
    assert (await lone.get("/v1/openapi.json")).json() == document(ROUTES)


def test_it_is_valid() -> None:
    """Every reference leads somewhere, every operation has one name, and every schema is one."""
    made = document(ROUTES)
    text = json.dumps(made)
    names = made["components"]["schemas"]
    for reference in set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', text)):
        assert reference in names
    for schema in names.values():
        Draft202012Validator.check_schema(schema)
    operations = [one for path in made["paths"].values() for one in path.values()]
    assert len({one["operationId"] for one in operations}) == len(operations) == len(ROUTES)
    for path, methods in made["paths"].items():
        for one in methods.values():
            declared = {each["name"] for each in one.get("parameters", ()) if each["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))
            assert one["responses"]


async def test_answers_fit_their_schemas(busy: Asked) -> None:
    """What is answered is what is described."""
    made = document(ROUTES)
    await busy.started("shop.family", id="x")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    await busy.post("/v1/holds", {"scope": "workflow", "value": "shop.pay"})
    await busy.post("/v1/breakers/bank/open")
    made_schedule = {"name": "nightly", "workflow": "shop.count", "times": "@hourly", "input": {"a": 1}}
    await busy.post("/v1/schedules", made_schedule)
    await busy.post("/v1/schedules/nightly/run")
    await busy.post("/v1/schedules/nightly/backfills", {"from": "2026-01-01", "to": "2026-01-02"})
    event = {"Content-Type": "application/cloudevents+json"}
    await busy.post(
        "/v1/events", {"specversion": "1.0", "type": "x", "source": "s", "id": "e"}, headers=event
    )
    ask = await made_ask(busy.hf, "default", "asking", "Ship it?", "team:finance", of=2)
    await busy.post(f"/v1/asks/{ask}/answer", {"value": True})
    await busy.hf.store.queues.number_queues([QueueKey("acme", (LimitKey("stripe", 5),))])
    occasion = await made_occasion(busy.hf, "default", "today")
    checked = 0
    planned = await busy.post("/v1/acts", {"verb": "cancel", "prefix": "x"})
    plan = planned.json()["id"]
    for route in ROUTES:
        if route.verb != "GET" or route.gives in {None, dict}:
            continue
        path = (
            route.path.replace("{act}", plan)
            .replace("{run}", "x")
            .replace("{n}", "1")
            .replace("{name}", "shop.count")
            .replace("{schedule}", "nightly")
            .replace("{source}", "s")
            .replace("{event}", "e")
            .replace("{ask}", ask)
            .replace("{limit}", "stripe")
            .replace("{occasion}", path_of(occasion))
        )
        answer = await busy.get(path)
        assert answer.status_code == 200, path
        schema = made["paths"][route.path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": made["components"]}
        Draft202012Validator(whole).validate(answer.json())
        checked += 1
    assert checked > 15
