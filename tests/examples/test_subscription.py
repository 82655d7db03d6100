"""A payment provider that calls back."""

from __future__ import annotations

from typing import Any

import pytest

from examples import subscription
from examples.subscription import Receipt, subscribe
from holdfast import RunFailed
from holdfast.errors import Gone, InvalidInput
from holdfast.testing import NotEnded, Sim


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What the provider gets."""
    found: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(subscription, "send", lambda path, **body: found.append((path, body)))
    return found


def test_the_provider_calls_back(sim: Sim, sent: list[Any]) -> None:
    """It is asked once, with the address. What it says once counts."""
    run = sim.start(subscribe, "tok", 900)
    with pytest.raises(NotEnded, match="call_back"):
        run.result()
    ((_, asked),) = sent
    assert asked["notify"].startswith("https://")
    with pytest.raises(InvalidInput, match="receipt"):
        sim.call_back(run, {"receipt": 7})
    assert sim.call_back(run, Receipt("r-1"), step="charge").new
    assert run.result() == "subscription of tok"
    assert not sim.call_back(run, Receipt("r-1")).new
    with pytest.raises(Gone):
        sim.call_back(run, Receipt("r-2"))


def test_a_provider_that_forgets_is_asked_again_and_then_refunded(sim: Sim, sent: list[Any]) -> None:
    """After two hours each. Nobody knows what it did, so both charges are undone by their keys."""
    run = sim.start(subscribe, "tok", 900)
    sim.advance(hours=2, minutes=1)
    assert len(sent) == 2
    assert sent[0][1]["key"] != sent[1][1]["key"]
    assert sent[0][1]["notify"] != sent[1][1]["notify"]
    sim.advance(hours=2, minutes=1)
    with pytest.raises(RunFailed, match="did not answer"):
        run.result()
    keys = {body["key"] for path, body in sent if path == "/refunds"}
    assert keys == {body["key"] for path, body in sent if not path}


def test_a_declined_card_is_no_charge(sim: Sim, sent: list[Any]) -> None:
    """The provider says so, so nothing is refunded."""

    class CardDeclinedError(Exception):
        """What the provider calls it."""

    run = sim.start(subscribe, "tok", 900)
    sim.call_back(run, CardDeclinedError("no money"))
    with pytest.raises(RunFailed, match="CardDeclinedError"):
        run.result()
    assert [path for path, _ in sent] == [""]


def test_a_cancelled_run_refunds_without_a_receipt(sim: Sim, sent: list[Any]) -> None:
    """The undo gets None, and the key of the charge."""
    run = sim.start(subscribe, "tok", 900)
    sim.cancel(run)
    with pytest.raises(RunFailed):
        run.result()
    assert sent[1] == ("/refunds", {"receipt": None, "key": sent[0][1]["key"]})
    with pytest.raises(Gone):
        sim.call_back(run, Receipt("r-1"))
