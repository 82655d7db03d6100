"""What the code of a run did, as the hop that writes it."""

from typing import Any

import pytest

from holdfast.decider.commands import Finish, Turn
from holdfast.decider.decider import Decider
from holdfast.model import NewSignal
from holdfast.scheduler.hops import complete
from holdfast.scheduler.owned_run import Owned
from holdfast.store.operations import Hop
from tests.unit.test_decider import order

FOUND: dict[str, Any] = {
    "dropped": [1],
    "cancelled": [1],
    "ended": [(1, 2, b"3")],
    "sends": [NewSignal("other", "paid", "key", b"1")],
    "progress": "half",
    "published": {"key": b"1"},
    "kept_n": 1,
    "set_aside": [(1, "its type")],
    "logs": ["a part"],
    "replies": [(1, "answered", b"2")],
    "begun_waits": [1],
    "placed": [(1, 2)],
}
"""Something for each member that few turns have."""


def owned() -> Owned:
    return Owned("run-1", 1, Decider(order, "run-1", b"{}", begun_at=0.0))


def test_every_rare_member_of_a_turn_is_known_here() -> None:
    names = set(Turn.__struct_fields__) - {"issued", "finish", "is_plain"}
    assert names == FOUND.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_hop_with_anything_rare_is_not_plain(name: str) -> None:
    """Whoever writes a plain hop looks at nothing else. So a hop that is called plain and is not would lose this."""
    hop = Hop("run-1", 1, is_plain=True)
    complete(hop, Turn([], **{name: FOUND[name]}), owned(), 5.0)
    assert not hop.is_plain
    assert changed(hop) == {name}


@pytest.mark.parametrize("how", ["succeeded", "failed", "cancelled", "continued", "undoing"])
def test_only_an_end_is_plain(how: Any) -> None:
    """A run that goes on, as new or to undo itself, has more to write than its close."""
    hop = Hop("run-1", 1, is_plain=True)
    complete(hop, Turn([], Finish(how, input=b"{}"), is_plain=True), owned(), 5.0)
    assert hop.is_plain == (hop.close is not None) == (how in {"succeeded", "failed", "cancelled"})


def changed(hop: Hop) -> set[str]:
    """Return the names of the members that differ from those of an empty hop."""
    empty = Hop("run-1", 1)
    return {name for name in Hop.__struct_fields__ if getattr(hop, name) != getattr(empty, name)}


def test_a_turn_without_anything_rare_is_plain() -> None:
    decider = Decider(order, "run-1", order.shape.checked(("visa",), {})[0], begun_at=0.0)
    decider.begin()
    turn = decider.take()
    assert turn.is_plain
    assert not any(getattr(turn, name) for name in FOUND)
    decider.close()
