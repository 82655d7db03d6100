"""Forged links, tokens, signatures of webhooks and addresses of callbacks. Each kind of door stands open for who has the right
key. Ten thousand others try, and none gets in."""

from __future__ import annotations

import random
import string
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from holdfast.access import Role
from holdfast.access.signatures import Scheme, read_secret
from holdfast.access.tokens import TokenText, make, read
from holdfast.http.ask_page import WHOLE
from holdfast.model import StepState
from tests.http.conftest import Asked, bearer, made_ask, made_callback, made_token
from tests.unit.test_signatures import BODY, SIGNERS, forged_delivery

TRIED = [400, pytest.param(10_000, marks=pytest.mark.long)]
"""How many forgeries are tried."""
LETTERS = string.ascii_letters + string.digits + "-_."
Answer = httpx2.Response


def _turned(keys: list[str], doors: list[str]) -> list[str]:
    """Return the keys of other doors, tried at these ones."""
    head = doors[0].rpartition("/")[0]
    return [f"{head}/{one.rpartition('/')[2]}" for one in keys]


class Doors:
    """A server with an open ask, a call that waits for its callback, a token and a hook of each scheme. All of it twice, so that
    parts of two good ones can be put together."""

    def __init__(self, asked: Asked, links: list[str], callbacks: list[str], tokens: list[TokenText]) -> None:
        self.asked, self.links, self.callbacks, self.tokens = asked, links, callbacks, tokens
        self.secrets: dict[Scheme, bytes] = {}
        self.dice = random.Random(7)

    @classmethod
    async def open(cls, asked: Asked) -> Doors:
        asks = [
            await made_ask(asked.hf, "default", f"ask-{n}", "Ship?", "person:anna", "person:bob")
            for n in range(2)
        ]
        links = [await asked.hf.asks.link(ask, who) for ask in asks for who in ("person:anna", "person:bob")]
        callbacks = [await made_callback(asked.hf, "default", f"call-{n}") for n in range(2)]
        tokens = [read(await made_token(asked.hf, role)) for role in (Role.VIEWER, Role.ADMIN)]
        doors = cls(asked, links, callbacks, [one for one in tokens if one is not None])
        for scheme in Scheme:
            made = await asked.hf.desk.hooks.create(asked.hf.who, scheme, scheme)
            doors.secrets[scheme] = read_secret(scheme, made.secret)
        return doors

    # --- who knocks ---------------------------------------------------------------------------------------------------

    async def by_link(self, path: str) -> Answer:
        return await self.asked.client.post(path, data={WHOLE: "true"})

    async def by_callback(self, path: str) -> Answer:
        return await self.asked.post(path, {"output": 7})

    async def by_token(self, token: TokenText) -> Answer:
        return await self.asked.get("/v1/me", headers=bearer(token.text))

    async def by_hook(self, scheme: Scheme, headers: dict[str, str], body: bytes) -> Answer:
        given = {name.encode(): text.encode() for name, text in headers.items()}
        given[b"Content-Type"] = b"application/json"
        return await self.asked.client.post(f"/v1/in/{scheme}", content=body, headers=given)

    # --- forgeries ----------------------------------------------------------------------------------------------------

    def _address(self, good: list[str]) -> str:
        """Another one than the good ones: letters changed, parts of two put together, something cut off or
        added, or the good one of another door."""
        head, _, one = self.dice.choice(good).rpartition("/")
        other = self.dice.choice(good).rpartition("/")[2]
        parts, others = one.split("."), other.split(".")
        how = self.dice.randrange(6)
        if how == 0:
            parts[2] = others[2]
        elif how == 1:
            parts[self.dice.choice((0, 2))] = "".join(self.dice.choices(LETTERS[:-1], k=22))
        elif how == 2:
            parts = ["".join(self.dice.choices(LETTERS, k=len(one)))]
        elif how == 3:
            cut = self.dice.randrange(1, len(one))
            parts = [one[:cut] + self.dice.choice(("", "=", "A", "%20", one[cut:] + "A", other[cut:]))]
        elif how == 4:
            text = list(one)
            for _ in range(self.dice.choice((1, 1, 2, 5))):
                text[self.dice.randrange(len(text))] = self.dice.choice(LETTERS)
            parts = ["".join(text)]
        made = f"{head}/{'.'.join(parts)}"
        return made if made not in {*self.links, *self.callbacks} else self._address(good)

    def _token(self) -> TokenText:
        """Another one than the good ones, with a checksum that fits."""
        one, other = self.dice.sample(self.tokens, 2)
        made = make(self.dice.choice(list(Role)), self.dice.randbytes(12), self.dice.randbytes(32))
        at = self.dice.randrange(len(one.secret))
        letter = self.dice.choice([each for each in LETTERS[:62] if each != one.secret[at]])
        return self.dice.choice(
            (
                made,
                made._replace(id=one.id, role=one.role),
                made._replace(id=one.id),
                one._replace(role=self.dice.choice([role for role in Role if role is not one.role])),
                one._replace(secret=other.secret),
                one._replace(id=other.id),
                one._replace(secret=one.secret[:at] + letter + one.secret[at + 1 :]),
            )
        )

    def forgery(self, number: int) -> tuple[str, Callable[[], Any]]:
        """Return what kind it is, and the attempt."""
        kind = number % 4
        if kind == 0:
            path = self._address([*self.links, *_turned(self.callbacks, self.links)])
            return "link", lambda: self.by_link(path)
        if kind == 1:
            path = self._address([*self.callbacks, *_turned(self.links, self.callbacks)])
            return "callback", lambda: self.by_callback(path)
        if kind == 2:
            token = self._token()
            return "token", lambda: self.by_token(token)
        scheme, other = self.dice.choice(list(Scheme)), self.dice.choice(list(Scheme))
        body = BODY + b" " * number
        key = self.secrets[scheme]
        if other is scheme:
            now = time.time()
            headers, body = forged_delivery(self.dice, SIGNERS[scheme](key, body, now), body, now)
        else:  # what the holder of another hook signs
            headers = SIGNERS[scheme](self.secrets[other], body, time.time())
        return "hook", lambda: self.by_hook(scheme, headers, body)

    # --- what is behind the doors -------------------------------------------------------------------------------------

    async def behind(self) -> Any:
        """Return what somebody who had got in would have changed."""
        store = self.asked.hf.store
        found = [await store.reads.steps(f"call-{n}") for n in range(2)]
        return (
            [
                (one.row.state, [each.value for each in one.people])
                for one in await store.asks.open_asks(None)
            ],
            [[step.state for step in steps] for steps in found],
            await store.events.events("default"),
        )


@pytest.mark.parametrize("many", TRIED)
@pytest.mark.timeout(600)
async def test_of_all_forgeries_none_is_accepted(quiet: Asked, many: int) -> None:
    """Each kind is refused in one way, whatever is wrong, and nothing behind the doors has changed. The good ones get in."""
    doors = await Doors.open(quiet)
    before = await doors.behind()
    assert before[2] == []
    tried: Counter[tuple[str, int]] = Counter()
    for number in range(many):
        kind, attempt = doors.forgery(number)
        tried[kind, (await attempt()).status_code] += 1
    assert tried == {(kind, 404 if kind in {"link", "callback"} else 401): many // 4 for kind, _ in tried}
    assert tried.total() == many
    assert await doors.behind() == before
    for token in doors.tokens:
        assert (await doors.by_token(token)).status_code == 200
    for scheme, key in doors.secrets.items():
        headers = SIGNERS[scheme](key, BODY, time.time())
        assert (await doors.by_hook(scheme, headers, BODY)).status_code == 202, scheme
    for path in doors.links[::2]:
        assert (await doors.by_link(path)).status_code == 200
    for path in doors.callbacks:
        assert (await doors.by_callback(path)).status_code == 200
    asks, steps, _ = await doors.behind()
    assert asks == []
    assert {one[-1] for one in steps} == {StepState.SUCCEEDED}
    print(f"{many:,} forgeries tried, 0 accepted: {dict(tried)}")
