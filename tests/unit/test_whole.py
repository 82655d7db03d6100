"""Recorded payloads are read whole or not at all. They are never read as something else."""

import enum
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec import Payload, Shape
from holdfast.errors import InvalidInput


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class OneColour(enum.Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> "OneColour":
        return cls.RED


class FewerColours(enum.Enum):
    RED = "red"


@dataclass
class Item:
    name: str
    pieces: int = 1


@dataclass
class ItemWithTax:
    name: str
    pieces: int = 1
    tax: int = 0


@dataclass
class ItemCounted:
    """`pieces` has another name here."""

    name: str
    count: int = 1


@dataclass
class ItemRequired:
    name: str
    pieces: int
    tax: int


@dataclass
class ItemShort:
    name: str


@dataclass
class ItemTrimmed:
    """Its constructor changes what it is given."""

    name: str
    pieces: int = 1

    def __post_init__(self) -> None:
        self.name = self.name.strip()


@dataclass
class Box:
    items: list[Item] = field(default_factory=list)


@dataclass
class BoxCounted:
    items: list[ItemCounted] = field(default_factory=list)


class Pair(NamedTuple):
    a: int
    b: int


class Row(TypedDict):
    name: str


class Wire(msgspec.Struct):
    name: str
    pieces: int = 1


class WireStrict(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class Model(pydantic.BaseModel):
    name: str
    pieces: int = 1


class ModelShort(pydantic.BaseModel):
    name: str


PENCIL = Item(" pencil ", 3)
WHOLE, HELD = True, False

# What was declared, the value, what is declared now, and whether the new type reads all of it.
CHANGES: list[tuple[Any, Any, Any, bool]] = [
    (int, 5, int, WHOLE),
    (int, 5, str, HELD),
    (str, "5", int, HELD),
    (int, 5, float, WHOLE),
    (float, 5.0, int, HELD),
    (float, 5.5, int, HELD),
    (int, 1, bool, HELD),
    (bool, True, int, HELD),
    (int, 5, int | None, WHOLE),
    (int | None, None, int, HELD),
    (int | None, 5, int, WHOLE),
    (int, 5, int | str, WHOLE),
    (int | str, "x", int, HELD),
    (int, 2**60 + 1, float, HELD),
    (list[int], [3, 1, 1], tuple[int, ...], WHOLE),
    (tuple[int, ...], (3, 1), list[int], WHOLE),
    (list[int], [3, 1, 1], set[int], HELD),
    (set[int], {1, 3}, list[int], WHOLE),
    (list[int], [1, 2], tuple[int, int], WHOLE),
    (list[int], [1, 2, 3], tuple[int, int], HELD),
    (list[int], [1, 2], Pair, WHOLE),
    (list[int], [1], list[str], HELD),
    (list[int], [1], int, HELD),
    (dict[str, int], {"a": 1}, dict[str, str], HELD),
    (dict[str, int], {"1": 1}, dict[int, int], WHOLE),
    (dict[str, int], {"01": 1}, dict[int, int], HELD),
    (dict[str, Any], {"name": "x", "more": 1}, Row, HELD),
    (Colour, Colour.BLUE, FewerColours, HELD),
    (Colour, Colour.RED, FewerColours, WHOLE),
    (Colour, Colour.BLUE, OneColour, HELD),
    (Colour, Colour.BLUE, Literal["red"], HELD),
    (Colour, Colour.BLUE, str, WHOLE),
    (datetime, datetime(2026, 1, 2, 3, tzinfo=UTC), date, HELD),
    (date, date(2026, 1, 2), datetime, HELD),
    (str, "2026-01-02T03:00:00+00:00", datetime, HELD),
    (timedelta, timedelta(seconds=90), float, HELD),
    (Decimal, Decimal("1.10"), str, WHOLE),
    (Decimal, Decimal("1.10"), float, HELD),
    (str, "a//b", PurePosixPath, HELD),
    (str, "C8B8A3E0-0000-4000-8000-000000000000", UUID, HELD),
    (Item, PENCIL, ItemWithTax, WHOLE),
    (Item, PENCIL, ItemCounted, HELD),
    (Item, PENCIL, ItemRequired, HELD),
    (Item, PENCIL, ItemShort, HELD),
    (Item, PENCIL, ItemTrimmed, HELD),
    (Item, PENCIL, Wire, WHOLE),
    (Item, PENCIL, WireStrict, HELD),
    (Item, PENCIL, dict[str, Any], WHOLE),
    (Item, PENCIL, Any, WHOLE),
    (Item, PENCIL, Item | Box, HELD),
    (Item | Box, PENCIL, Item, HELD),
    (Item | Box, PENCIL, Item | Box | ItemShort, WHOLE),
    (Item | Box, PENCIL, ItemShort | Box, HELD),
    (Box, Box([PENCIL, Item("b")]), BoxCounted, HELD),
    (Box, Box([PENCIL]), Box, WHOLE),
    (list[Item], [PENCIL], list[ItemCounted], HELD),
    (Any, {"a": [1, "x", None]}, dict[str, list[Any]], WHOLE),
    (None, None, int, HELD),
    (Item, PENCIL, Model, WHOLE),
    (Model, Model(name="m", pieces=2), ModelShort, HELD),
    (Model, Model(name="m", pieces=2), ItemWithTax, WHOLE),
    (dict[str, Any], {"name": "m", "pieces": "2"}, Model, HELD),
]


@pytest.mark.parametrize(
    ("was", "value", "now", "whole"), CHANGES, ids=lambda one: str(getattr(one, "__name__", one))[:40]
)
def test_a_changed_type_reads_all_of_it_or_nothing(was: Any, value: Any, now: Any, whole: bool) -> None:
    """This holds for a result and for an argument. What is read and written again has all that was recorded."""
    raw = Payload(was, "before").encode(value)

    def fn(x: Any) -> None: ...

    fn.__annotations__["x"] = now
    shape, payload = Shape.of(fn), Payload(now, "now")
    arguments = b'{"x":' + raw + b"}"
    if not whole:
        with pytest.raises(InvalidInput, match=r"^now: "):
            payload.decode_whole(raw)
        with pytest.raises(InvalidInput, match=r"^fn\(\): "):
            shape.decode_whole(arguments)
        return
    read = payload.decode_whole(raw)
    assert shape.decode_whole(arguments).x == read  # type: ignore[attr-defined]  # its fields are made at run time
    assert payload.decode_whole(payload.encode(read)) == read


def test_what_two_types_write_as_the_same_json_is_not_distinguished() -> None:
    """Text that happens to be base64 is read as bytes. The type is not recorded, so such a change needs a new
    version."""
    raw = Payload(str, "before").encode("abcd")
    assert Payload(bytes, "now").decode_whole(raw) == b"i\xb7\x1d"


def _unfolded(time: datetime) -> datetime:
    """Drop the fold of a time without a zone: with `fold=1` it is refused when it is written."""
    return time.replace(fold=0) if time.tzinfo is None else time


SINCE = datetime(2000, 1, 1)  # noqa: DTZ001  zones are drawn beside it
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
SINCE = datetime.fromisoformat("2000-01-01")
"""Only later years are drawn. Long ago offsets from UTC had seconds, and such times are refused when they are
written."""
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    Any: PLAIN,
    datetime: st.datetimes(SINCE, timezones=st.one_of(st.none(), st.timezones())).map(_unfolded),
    timedelta: st.timedeltas(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    bytes: st.binary(),
    UUID: st.uuids(),
    set[int]: st.sets(st.integers(-(2**60), 2**60)),
    dict[int, float]: st.dictionaries(
        st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False)
    ),
    Item | Box | None: st.none()
    | st.builds(Item, st.text(), st.integers(0, 9))
    | st.builds(Box, st.lists(st.builds(Item, st.text()))),
    list[Colour]: st.lists(st.sampled_from(Colour)),
    float: st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False),
}


@given(st.sampled_from(list(BY_TYPE)).flatmap(lambda kind: BY_TYPE[kind].map(lambda value: (kind, value))))
def test_what_a_type_wrote_it_reads_whole(drawn: tuple[Any, Any]) -> None:
    """Code that has not changed never gets an error that says it has."""
    kind, value = drawn
    payload = Payload(kind, "value")
    payload.decode_whole(payload.encode(value))


def test_a_set_that_was_written_without_its_type_is_read_in_any_order() -> None:
    """A checkpoint is such a value: `here.save` knows no type, and sets have no order."""
    payload = Payload(set[str], "here.load()")
    assert payload.decode_whole(b'["b","a"]', typed=False) == {"a", "b"}
    with pytest.raises(InvalidInput, match="is recorded"):
        payload.decode_whole(b'["b","a","a"]', typed=False)
    with pytest.raises(InvalidInput, match="is recorded"):
        payload.decode_whole(b'["b","a"]')


@dataclass
class Nested:
    item: Item
    more: list[Item] = field(default_factory=list)
    note: str = "none"


def test_a_value_that_was_read_is_written_with_its_defaults() -> None:
    """So is a value that an author made. What is recorded does not depend on where the value comes from."""

    def fn(nested: Nested, either: Item | Box | None = None) -> None: ...

    shape, short = (
        Shape.of(fn),
        b'{"nested":{"item":{"name":"a"},"more":[{"name":"b"}]},"either":{"$type":"Item","name":"c"}}',
    )
    made, _ = shape.checked((Nested(Item("a"), [Item("b")]), Item("c")), {})
    assert shape.rewritten(short) == shape.rewritten(made) == made
    assert shape.from_json(short) == made
    assert Payload(Nested, "x").encode_again(Payload(Nested, "x").decode(b'{"item":{"name":"a"}}')) == (
        b'{"item":{"name":"a","pieces":1},"more":[],"note":"none"}'
    )


def test_members_that_are_not_the_authors_are_no_arguments() -> None:
    """An undo's input has the key of what it undoes beside its arguments."""

    def fn(card: str) -> None: ...

    shape = Shape.of(fn)
    assert shape.decode_whole(b'{"$key":"r::a","card":"c"}').card == "c"  # type: ignore[attr-defined]
    assert shape.rewritten(b'{ "card" : "c" , "$key":"r::a"}') == b'{"card":"c"}'
    with pytest.raises(
        InvalidInput, match=r'fn\(\): key: "r" is recorded, and nothing in this code takes it'
    ):
        shape.decode_whole(b'{"key":"r","card":"c"}')
