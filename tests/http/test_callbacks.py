"""Callbacks over HTTP: whoever has the address ends the call once, and nobody learns anything from another address."""

from __future__ import annotations

import random
import string
from datetime import datetime
from typing import Any

import httpx2
import pytest

from holdfast.access.signed_texts import signed
from holdfast.model import StepState
from holdfast.wire.cursors import cursor_text, filter_digest
from tests.http.conftest import Asked, bearer, made_callback, made_token

FORGED = 3000
"""How many forged addresses are tried."""
ALPHABET = string.ascii_letters + string.digits + "-_."


async def row_of(asked: Asked, run: str) -> Any:
    return (await asked.hf.store.reads.steps(run))[1]


async def send(asked: Asked, path: str, body: Any) -> httpx2.Response:
    return await asked.client.post(path, json=body)


async def test_an_answer_is_taken_once(quiet: Asked) -> None:
    """Without a token. The same answer again is a duplicate, another one is gone."""
    await made_token(quiet.hf, "admin")  # from now on nobody gets in without a token
    path = await made_callback(quiet.hf, "default", "pays")
    first, again = await send(quiet, path, {"output": 7}), await send(quiet, path, {"output": 7})
    assert (first.status_code, first.json()) == (200, {"new": True})
    assert (again.status_code, again.json()) == (200, {"new": False})
    for other in ({"output": 8}, {"error": {"message": "no"}}):
        refused = await send(quiet, path, other)
        assert (refused.status_code, refused.json()["type"]) == (410, "urn:holdfast:problem:gone")
        assert path.rpartition("/")[2] not in refused.text
    assert (await row_of(quiet, "pays")).output == b"7"


async def test_looking_changes_nothing(quiet: Asked) -> None:
    """Scanners and previews follow addresses."""
    path = await made_callback(quiet.hf, "default", "looked-at")
    before = await row_of(quiet, "looked-at")
    for verb in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        assert (await quiet.client.request(verb, path)).status_code == 405
    assert await row_of(quiet, "looked-at") == before


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"output": "seven"}, "/output"),
        ({"output": None}, "/output"),
        ({}, ""),
        ({"output": 1, "error": {"message": "no"}}, ""),
        ({"error": "no"}, "/error"),
        ({"error": {"kind": "no"}}, "/error"),
        ({"output": 1, "more": 2}, ""),
    ],
)
async def test_the_wrong_form_names_the_place_and_spends_nothing(quiet: Asked, body: Any, place: str) -> None:
    """The address is as good as before."""
    path = await made_callback(quiet.hf, "default", "misfit")
    refused = await send(quiet, path, body)
    assert refused.status_code == 422, refused.text
    assert refused.json().get("place", "").startswith(place)
    assert (await row_of(quiet, "misfit")).state is StepState.WAITING
    assert (await send(quiet, path, {"output": 7})).status_code == 200


async def test_what_is_no_json_is_refused(quiet: Asked) -> None:
    path = await made_callback(quiet.hf, "default", "garbage")
    headers = {"Content-Type": "application/json"}
    broken = await quiet.client.post(path, content=b'{"output": ', headers=headers)
    typed = await quiet.client.post(path, content=b"output=7")
    assert (broken.status_code, typed.status_code) == (400, 415)
    assert (await row_of(quiet, "garbage")).state is StepState.WAITING


async def test_an_error_ends_the_call(quiet: Asked) -> None:
    path = await made_callback(quiet.hf, "default", "fails")
    body = {"error": {"type": "CardDeclined", "message": "no money"}}
    assert (await send(quiet, path, body)).json() == {"new": True}
    assert (await send(quiet, path, body)).json() == {"new": False}
    row = await row_of(quiet, "fails")
    assert row.state is StepState.FAILED
    assert "CardDeclined: no money" in row.error


async def test_extending(quiet: Asked) -> None:
    """A system that still works on it says so. What is over stays over."""
    path = await made_callback(quiet.hf, "default", "slow", 600.0)
    before = (await row_of(quiet, "slow")).complete_by
    answer = await quiet.client.post(f"{path}/extend")
    assert answer.status_code == 200
    assert answer.json()["until"] is not None
    assert (await row_of(quiet, "slow")).complete_by > before
    await send(quiet, path, {"output": 7})
    assert (await quiet.client.post(f"{path}/extend")).status_code == 410


async def test_forged_addresses_are_all_the_same_404(quiet: Asked) -> None:
    """Thousands of them, with flipped bits, other runs, other purposes, other keys: none is taken, and all are answered in
    the bytes of something that does not exist."""
    path = await made_callback(quiet.hf, "default", "guarded")
    await made_callback(quiet.hf, "default", "other")
    head, _, good = path.rpartition("/")
    keys = await quiet.hf.store.signing_keys.signing_keys()
    request = (await quiet.hf.store.reads.steps("guarded"))[0]
    parts = ("guarded", "1", f"{request.issued_at:.6f}")
    content, name, mac = good.split(".")
    forged = {
        signed(keys, "ask", parts),
        signed({"1": b"x" * 32}, "callback", parts),
        signed({"2": keys["1"]}, "callback", parts),
        signed(keys, "callback", ("nobody", *parts[1:])),
        signed(keys, "callback", ("acme//guarded", *parts[1:])),
        signed(keys, "callback", ("guarded", "2", parts[2])),
        signed(keys, "callback", ("guarded", "1", "1.000000")),
        signed(keys, "callback", ("other", "1", parts[2])),
        f"{content}.{name}.{mac[:-1]}",
        f"{content}.{name}",
        f"{content}..{mac}",
        good + "=",
        good.upper(),
    }
    dice = random.Random(7)
    while len(forged) < FORGED:
        text = list(good)
        for _ in range(dice.choice((1, 1, 2, 5))):
            text[dice.randrange(len(text))] = dice.choice(ALPHABET)
        forged.add("".join(text) if dice.random() < 0.8 else "".join(dice.choices(ALPHABET, k=len(good))))
    forged.discard(good)
    unknown = await quiet.client.get("/v1/runs/nobody-has-this-id")
    found = set()
    for token in forged:
        answer = await send(quiet, f"{head}/{token}", {"output": 7})
        found.add((answer.status_code, answer.content))
    assert found == {(404, unknown.content)}
    assert (await quiet.client.post(f"{head}/{dice.choice(ALPHABET)}/extend")).content == unknown.content
    for run in ("guarded", "other"):
        assert (await row_of(quiet, run)).state is StepState.WAITING
    assert (await send(quiet, path, {"output": 7})).json() == {"new": True}


async def test_operators_answer_by_the_run(quiet: Asked) -> None:
    """An operator may, a starter and a viewer may not. The journal says who it was."""
    await made_callback(quiet.hf, "default", "by-hand")
    body = {"output": 7, "step": "pay-1", "note": "they phoned"}
    for role, status in (("viewer", 403), ("starter", 403), ("agent", 403), ("answerer", 403)):
        headers = bearer(await made_token(quiet.hf, role))
        assert (await quiet.post("/v1/runs/by-hand/callback", body, headers=headers)).status_code == status
    headers = bearer(await made_token(quiet.hf, "operator"))
    misfit = await quiet.post("/v1/runs/by-hand/callback", {"output": "x"}, headers=headers)
    assert (misfit.status_code, misfit.json()["place"]) == (422, "/output")
    taken = await quiet.post("/v1/runs/by-hand/callback", body, headers=headers)
    assert (taken.status_code, taken.json()) == (200, {"new": True})
    (entry,) = [one for one in await quiet.hf.store.reads.journal("by-hand") if one.verb == "answer"]
    assert "they phoned" in entry.note
    assert entry.actor not in {"", "callback"}


async def test_callbacks_that_wait_are_listed_without_their_addresses(quiet: Asked) -> None:
    """Each with its run, its step, since when and until when. What was answered is not in the list, and whoever reads it
    cannot end anything by it."""
    path = await made_callback(quiet.hf, "default", "pays", 600.0)
    other = await made_callback(quiet.hf, "default", "odd/id ü")
    answer = await quiet.get("/v1/callbacks")
    pays, odd = answer.json()["items"]
    row = await row_of(quiet, "pays")
    assert (pays["run"], pays["run_ref"], pays["n"], pays["key"]) == ("pays", "pays", 2, "pay-1")
    assert (pays["step"], pays["workflow"], pays["namespace"]) == ("shop.pay", "shop.pay", "default")
    assert datetime.fromisoformat(pays["issued_at"]).timestamp() == pytest.approx(row.issued_at)
    assert datetime.fromisoformat(pays["expires_at"]).timestamp() == pytest.approx(row.complete_by)
    assert (pays["since"], pays["expires_s"], pays["number"], pays["of"]) == (None, 600.0, 1, 1)
    assert (odd["run"], odd["expires_at"], odd["expires_s"]) == ("odd/id ü", None, None)
    assert (await quiet.get(f"/v1/runs/{odd['run_ref']}")).json()["id"] == odd["run"]
    for address in (path, other):
        for part in address.rpartition("/")[2].split("."):
            assert part not in answer.text or len(part) < 10
    await send(quiet, path, {"output": 7})
    assert [one["run"] for one in (await quiet.get("/v1/callbacks")).json()["items"]] == ["odd/id ü"]


async def test_a_list_of_callbacks_is_filtered_and_paged(quiet: Asked) -> None:
    """By run, workflow and step. A cursor belongs to its list, and what is no cursor is refused."""
    for n in range(5):
        await made_callback(quiet.hf, "default", f"run {n}")

    async def runs(query: str) -> list[str]:
        return [one["run"] for one in (await quiet.get(f"/v1/callbacks{query}")).json()["items"]]

    expected = [f"run {n}" for n in range(5)]
    assert await runs("") == expected
    assert await runs("?workflow=pay&step=shop.pay") == expected
    assert await runs("?run=run%203") == ["run 3"]
    for query in ("?run=nobody", "?workflow=count", "?step=ay", "?run=run%203&step=x"):
        assert await runs(query) == [], query
    seen: list[str] = []
    cursors: list[str] = []
    query = "?limit=2"
    while True:
        page = (await quiet.get(f"/v1/callbacks{query}")).json()
        seen += [one["run"] for one in page["items"]]
        if page["next"] is None:
            break
        cursors.append(page["next"])
        query = f"?limit=2&cursor={page['next']}"
    assert (seen, len(cursors)) == (expected, 2)
    digest = filter_digest([None, None, None, "default"])
    assert (await quiet.get(f"/v1/callbacks?cursor={cursor_text(0.0, 'run 0 2', digest)}")).status_code == 200
    made_up = [
        cursor_text(0.0, f"run{n}", digest)
        for n in ("", " ", " -1", " x", " ²", " 2147483648", " " + "9" * 99)
    ]
    for cursor in (*made_up, "x", f"{cursors[0]}x"):
        refused = await quiet.get(f"/v1/callbacks?cursor={cursor}")
        assert (refused.status_code, refused.json().get("place")) == (400, "?cursor"), (cursor, refused.text)
    assert (await quiet.get(f"/v1/callbacks?step=pay&cursor={cursors[0]}")).status_code == 400
    assert (await quiet.get(f"/v1/callbacks?step={'x' * 5000}")).json()["place"] == "?step"
    for query in ("?limit=0", "?limit=201", "?limit=x", "?who=me"):
        assert (await quiet.get(f"/v1/callbacks{query}")).status_code == 422, query


async def test_a_list_of_callbacks_has_those_of_ones_own_namespace(quiet: Asked) -> None:
    """Names are bare there. A run of another namespace is none, also if it is named."""
    await made_callback(quiet.hf, "acme", "theirs")
    await made_callback(quiet.hf, "default", "ours")
    token = await made_token(quiet.hf, "viewer", "acme")
    own = bearer(token)
    (found,) = (await quiet.get("/v1/callbacks", headers=own)).json()["items"]
    assert (found["run"], found["workflow"], found["step"], found["namespace"]) == (
        "theirs",
        "shop.pay",
        "shop.pay",
        "acme",
    )
    for query in ("?run=theirs", "?workflow=shop.pay", "?step=shop.pay"):
        assert len((await quiet.get(f"/v1/callbacks{query}", headers=own)).json()["items"]) == 1
    for name in ("ours", "default//ours"):
        answer = await quiet.get(f"/v1/callbacks?run={name}", headers=own)
        assert answer.json() == {"items": [], "next": None}
    everything = bearer(await made_token(quiet.hf, "viewer", "*"))
    for namespace, run in (("acme", "theirs"), ("default", "ours")):
        answer = await quiet.get("/v1/callbacks", headers={**everything, "Holdfast-Namespace": namespace})
        assert [one["run"] for one in answer.json()["items"]] == [run]


async def test_an_address_of_another_namespace_names_its_own_run(quiet: Asked) -> None:
    """The namespace is a part of what is signed: nobody chooses it by a header."""
    path = await made_callback(quiet.hf, "acme", "theirs")
    headers = {"Holdfast-Namespace": "default"}
    assert (await quiet.client.post(path, json={"output": 7}, headers=headers)).json() == {"new": True}
    assert (await row_of(quiet, "acme//theirs")).output == b"7"
