"""JSON Schemas of types, and their checker. It never refuses what the type reads, and hardly ever accepts what the type
refuses."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import jsonschema  # type: ignore[import-untyped]  # it has no types
import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct

from holdfast.codec import Payload
from holdfast.codec.schema import check, data_option, example, schema_of
from holdfast.errors import InvalidInput


@dataclass
class Payment:
    cents: int
    note: str = ""


@dataclass
class Refund:
    reason: str
    of: list[Payment] = field(default_factory=list)


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)
    above: Tree | None = None


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Row(TypedDict, total=False):
    id: int
    label: str


class Cat(Struct, tag=True):
    lives: int = 9


class Dog(Struct, tag=True, forbid_unknown_fields=True):
    name: str


class Pair(Struct, array_like=True):
    left: int
    right: str = ""


class Model(pydantic.BaseModel):
    count: int


@dataclass
class Odd:
    where: Path = Path()


TYPES: list[Any] = [
    int,
    float,
    str,
    bool,
    None,
    Any,
    bytes,
    Decimal,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    UUID,
    Path,
    int | None,
    int | str | None,
    list[int],
    set[int],
    dict[str, int],
    dict[int, str],
    tuple[int, str],
    tuple[int, ...],
    Literal["a", 1, None],
    Colour,
    Payment,
    Refund,
    Tree,
    Point,
    Row,
    Cat,
    Dog,
    Pair,
    Cat | Dog,
    Cat | Dog | None,
    Payment | None,
    Payment | Refund,
    Payment | Refund | None,
    list[Payment | Refund],
    Payment | str,
    dict[str, Payment],
    Model,
    list[Model],
    Odd,
    Annotated[int, Meta(ge=1, lt=10)],
    Annotated[float, Meta(gt=0, multiple_of=0.5)],
    Annotated[str, Meta(min_length=2, max_length=4, pattern="^[a-z]+$")],
    Annotated[bytes, Meta(min_length=2, max_length=4)],
    Annotated[list[int], Meta(min_length=1, max_length=2)],
    dict[Annotated[str, Meta(min_length=2)], int],
]

WORDS = [
    "",
    "a",
    "b",
    "red",
    "ab",
    "12",
    "1.5",
    "AA==",
    "2026-01-01",
    "2026-01-01T00:00:00Z",
    "10:00:00",
    "P1D",
    "PT0S",
]
WORDS += [
    "00000000-0000-0000-0000-000000000000",
    "Payment",
    "Refund",
    "Cat",
    "Dog",
    "cents",
    "note",
    "reason",
    "of",
    "x",
]
KEYS = [
    "cents",
    "note",
    "reason",
    "of",
    "name",
    "children",
    "above",
    "id",
    "label",
    "lives",
    "type",
    "$type",
    "count",
]
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, 1.0, -2.5, 1e300]),
    st.sampled_from(WORDS),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from([*KEYS, "1", "zz"]), inner, max_size=4)
    ),
    max_leaves=6,
)
LOOSE: list[Any] = [Model, list[Model], Payment | Refund | None, Odd, dict[int, str]]
LOOSE.append(Annotated[bytes, Meta(min_length=2, max_length=4)])
"""Types whose schema accepts more than they do. All others are checked exactly as they are read."""


def reads(payload: Payload, value: Any) -> bool:
    try:
        payload.decode(json.dumps(value).encode())
    except InvalidInput:
        return False
    return True


def fits(value: Any, schema: dict[str, Any]) -> bool:
    try:
        check(value, schema, "it")
    except InvalidInput:
        return False
    return True


FORMS = [(kind, Payload(kind, "it"), schema_of(Payload(kind, "it").form.type)) for kind in TYPES]
REFERENCES = {id(schema): jsonschema.Draft202012Validator(schema) for _, _, schema in FORMS}


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(form=st.sampled_from(FORMS), value=values)
def test_a_value_fits_when_its_type_can_read_it(
    form: tuple[Any, Payload, dict[str, Any]], value: Any
) -> None:
    """Nothing right is ever refused. Where the schema says all that the type does, nothing wrong is accepted. Another
    checker says the same, except that it takes 1.0 for an integer and does not check formats of text."""
    kind, payload, schema = form
    fit = fits(value, schema)
    if reads(payload, value):
        check(value, schema, "it")
    elif kind not in LOOSE:
        assert not fit, value
    other = REFERENCES[id(schema)].is_valid(value)
    if fit:
        assert other or kind in (Cat, Dog)  # alone, a struct does not need its tag
    elif other:
        assert any(text in json.dumps(value) for text in (".0", "e+300")) or '"format"' in json.dumps(schema)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_values_of_a_type_fit_its_schema(kind: Any) -> None:
    """The schema is valid, and an example that is made from it fits."""
    schema = schema_of(Payload(kind, "it").form.type)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert fits(example(schema), schema) or "pattern" in json.dumps(schema)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_an_example_can_be_read(kind: Any) -> None:
    """The suggested option works without a change."""
    payload = Payload(kind, "it")
    schema = schema_of(payload.form.type)
    words = data_option(schema)
    if words == " --data JSON":
        assert "pattern" in json.dumps(schema)
    elif words:
        _, text = shlex.split(words)
        payload.decode(text.encode())
    elif kind is not Odd:
        payload.decode(b"null")


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Payment, {"cents": "9"}, "pay: cents: expected `int`, got `str`"),
        (Payment, {}, "pay: missing `cents`"),
        (Payment, None, "pay: expected `object`, got `null`"),
        (
            Refund,
            {"reason": "x", "of": [{"cents": 1}, {"cents": 1.5}]},
            "pay: of[1].cents: expected `int`, got `float`",
        ),
        (int | None, "x", "pay: expected `int | null`, got `str`"),
        (Payment | None, {"cents": True}, "pay: cents: expected `int`, got `bool`"),
        (Colour, "green", 'pay: expected "blue" or "red", got "green"'),
        (Payment | Refund, {"cents": 1}, "pay: expected an object whose `$type` is `Payment` or `Refund`"),
        (Dog, {"type": "Dog", "name": "Rex", "age": 3}, "pay: object contains unknown field `age`"),
        (Cat | Dog, {"type": "Dog", "name": 1}, "pay: name: expected `str`, got `int`"),
        (UUID, "zz", "pay: invalid UUID"),
        (tuple[int, str], [1], "pay: expected `array` of length >= 2, got 1"),
        (Annotated[int, Meta(ge=1)], 0, "pay: expected `int` >= 1"),
    ],
    ids=str,
)
def test_errors_name_the_place(kind: Any, value: Any, message: str) -> None:
    """They use the words of the errors that reading by the type raises."""
    with pytest.raises(InvalidInput) as caught:
        check(value, schema_of(Payload(kind, "pay").form.type), "pay")
    assert str(caught.value) == message


def test_a_value_that_is_nested_too_deeply_is_refused() -> None:
    """It raises an error, and does not crash."""
    value: Any = {"name": "leaf"}
    for _ in range(20_000):
        value = {"name": "branch", "children": [value]}
    with pytest.raises(InvalidInput, match="nested too deeply"):
        check(value, schema_of(Tree), "it")


def test_what_cannot_be_described_accepts_anything() -> None:
    """A default that is no JSON does not make the type's values wrong."""
    assert schema_of(Odd) == {}
    check({"where": 3}, schema_of(Odd), "it")
    assert example({}) is None
    assert msgspec.json.schema(Payment)["$defs"]["Payment"]["required"] == ["cents"]
