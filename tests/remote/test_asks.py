"""Questions to people through a server, from Python and the command line."""

from __future__ import annotations

import json

import pytest

from holdfast import Holdfast, InvalidInput
from holdfast.errors import UnknownAsk, WrongState
from holdfast.model import AskState
from tests.http import flows
from tests.http.conftest import made_ask
from tests.remote.conftest import Served


async def test_asks_are_listed_answered_and_handed_over(remote: Holdfast, busy: Served) -> None:
    """With the same values and the same errors as on the store."""
    ask = await made_ask(busy.hf, "default", "r1", "Ship it?", "person:anna", "team:finance", of=2)
    (listed,) = await remote.asks.list()
    assert (listed.id, listed.question, json.loads(bytes(listed.form))) == (
        ask,
        "Ship it?",
        {"type": "boolean"},
    )
    handed = await remote.asks.delegate(ask, "person:bob", "away", by="person:anna")
    assert [one.handed_to for one in handed.who if one.who == "person:anna"] == ["person:bob"]
    assert (await remote.asks.answer(ask, True, by="person:bob")).new
    with pytest.raises(WrongState, match="bob has answered"):
        await remote.asks.answer(ask, False, by="person:bob")
    with pytest.raises(InvalidInput, match="answer: expected `bool`"):
        await remote.asks.answer(ask, 1, by="person:cy")
    assert (await remote.asks.answer(ask, True, by="person:cy")).ask.state is AskState.ANSWERED
    assert [one.id for one in await remote.asks.list(ended=True)] == [ask]
    with pytest.raises(UnknownAsk):
        await remote.asks.get("nobody")


async def test_the_token_says_who_starts(remote: Holdfast) -> None:
    """Not the program."""
    with pytest.raises(InvalidInput, match="from the token"):
        await remote.start(flows.count.using(by="person:anna"), 1)
