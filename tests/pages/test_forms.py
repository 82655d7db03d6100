"""Forms from JSON Schemas."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from holdfast.codec.schema import check, schema_of
from holdfast.http.pages.forms import answer, answer_fields, fields, refused, values
from holdfast.http.pages.runs import typed
from holdfast.http.pages.words import sentence
from holdfast.http.refusals import Refusal


@dataclass
class Address:
    street: str


class Arguments(msgspec.Struct):
    name: str
    cents: Annotated[int, Meta(ge=1, le=100)]
    size: Literal["small", "large"]
    address: Address
    share: float = 0.5
    is_gift: bool = False
    note: str | None = None
    tags: list[str] = []


SCHEMA: Any = msgspec.json.schema(Arguments)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("the store cannot be reached", "The store cannot be reached."),
        ("so far, nothing", "So far, nothing."),
        ("note: it is too long", "note: it is too long."),
        ("shop.count is unknown", "shop.count is unknown."),
        ("'x' has no breaker: see `holdfast breakers`", "'x' has no breaker: see `holdfast breakers`"),
        ("", ""),
    ],
)
def test_what_is_refused_is_said_in_sentences(said: str, shown: str) -> None:
    """A name stays as it is: it may have to be typed."""
    assert sentence(said) == shown


def test_each_type_gets_its_field() -> None:
    """With its bounds and its default in words."""
    found = {one.label: one for one in fields(SCHEMA)}
    kinds = {name: one.kind for name, one in found.items()}
    assert kinds == {
        "name": "text",
        "cents": "number",
        "size": "choice",
        "address": "group",
        "street": "text",
        "": "end",
        "share": "number",
        "is_gift": "choice",
        "note": "text",
        "tags": "lines",
    }
    assert found["cents"].hint == "at least 1 · at most 100"
    assert found["share"].hint == "empty: 0.5"
    assert set(found["size"].choices) == {"small", "large"}
    assert found["name"].is_required
    assert not found["note"].is_required


def test_what_was_typed_becomes_arguments() -> None:
    """Numbers, choices and JSON by their types. An empty field is left out, so that its default holds."""
    given = {
        "/input/name": ["Ada"],
        "/input/cents": ["7"],
        "/input/size": ["large"],
        "/input/address/street": ["Quay"],
        "/input/share": [""],
        "/input/is_gift": ["true"],
        "/input/note": [""],
        "/input/tags": ["a b\n\nc"],
    }
    assert values(SCHEMA, given) == {
        "name": "Ada",
        "cents": 7,
        "size": "large",
        "address": {"street": "Quay"},
        "is_gift": True,
        "tags": ["a b", "c"],
    }
    for place, wrong in (("/input/cents", "seven"), ("/input/share", "{")):
        with pytest.raises(Refusal) as refused:
            values(SCHEMA, given | {place: [wrong]})
        assert refused.value.place == place


class Card(msgspec.Struct, tag=True):
    number: str


class Transfer(msgspec.Struct, tag=True):
    iban: str
    days: int = 3


class Line(msgspec.Struct):
    sku: str
    count: Annotated[int, Meta(ge=1)] = 1


class Tree(msgspec.Struct):
    name: str
    left: Tree | None = None


class Order(msgspec.Struct):
    to: Address
    lines: list[Line]
    pay: Card | Transfer
    size: Literal[1, 2]
    on: dt.date
    at: dt.datetime | None = None
    bill_to: Address | None = None
    tree: Tree | None = None
    ref: int | str = 0
    counts: list[int] = []
    extra: dict[str, int] = {}


class Ordered(msgspec.Struct):
    order: Order


ORDER: Any = schema_of(Ordered)
AT = "/input/order"


def test_objects_are_groups_and_unions_are_choices_with_groups() -> None:
    """As deep as they are, and not without end. What stays JSON shows what may stand there."""
    found = [(one.kind, one.name.removeprefix(AT), one.label) for one in fields(ORDER)]
    assert found[:3] == [("group", "", "order"), ("group", "/to", "to"), ("text", "/to/street", "street")]
    assert [one for one in found if one[1].startswith("/pay")] == [
        ("union", "/pay", "pay"),
        ("choice", "/pay", "type"),
        ("text", "/pay/Card/number", "number"),
        ("text", "/pay/Transfer/iban", "iban"),
        ("number", "/pay/Transfer/days", "days"),
    ]
    assert sum(one[0] in {"group", "union"} for one in found) == sum(one[0] == "end" for one in found)
    by_name = {one.name.removeprefix(AT): one for one in fields(ORDER) if one.kind not in {"group", "union"}}
    assert (by_name["/on"].kind, by_name["/size"].choices) == ("date", ("1", "2"))
    assert by_name["/at"].hint == "such as 2026-11-20T14:00Z · may be empty"
    assert json.loads(by_name["/lines"].example) == [{"sku": ""}]
    assert json.loads(by_name["/extra"].example) == {"name": 0}
    assert by_name["/ref"].hint == "JSON: a number or a text in quotes · empty: 0"
    assert by_name["/tree/left"].kind == "json"
    assert by_name["/to/street"].is_required
    assert not by_name["/bill_to/street"].is_required


def test_groups_become_objects_that_fit_the_type() -> None:
    """Of a union the chosen object alone. A group in which nothing was typed is left out, if it may be."""
    given = {
        f"{AT}/to/street": ["Quay"],
        f"{AT}/lines": ['[{"sku": "a"}]'],
        f"{AT}/pay": ["Transfer"],
        f"{AT}/pay/Card/number": ["typed before"],
        f"{AT}/pay/Transfer/iban": ["NO1"],
        f"{AT}/size": ["2"],
        f"{AT}/on": ["2026-11-20"],
        f"{AT}/ref": ['"x"'],
        f"{AT}/counts": ["1\n 2 \n"],
    }
    given = {one.name: [""] for one in fields(ORDER)} | given  # a browser sends empty fields, too
    found = values(ORDER, given)
    assert found == {
        "order": {
            "to": {"street": "Quay"},
            "lines": [{"sku": "a"}],
            "pay": {"type": "Transfer", "iban": "NO1"},
            "size": 2,
            "on": "2026-11-20",
            "ref": "x",
            "counts": [1, 2],
        }
    }
    check(found, ORDER, "order")
    assert values(ORDER, given | {f"{AT}/bill_to/street": ["Pier"]})["order"]["bill_to"] == {"street": "Pier"}


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (f"{AT}/to/street", f"{AT}/to/street"),
        (f"{AT}/lines/0/sku", f"{AT}/lines"),
        (f"{AT}/pay/iban", f"{AT}/pay"),
        ("/id", None),
        ("", None),
    ],
)
def test_a_refusal_is_said_at_its_field(place: str, name: str | None) -> None:
    """Or, if no field is about it, above the form."""
    found, is_said = refused(fields(ORDER), place, "no")
    assert [one.name for one in found if one.wrong] == ([name] if name else [])
    assert is_said is (name is not None)


def test_a_type_with_very_many_members_has_fewer_groups() -> None:
    """Nobody fills in a hundred fields: what is deep is JSON then."""
    wide = msgspec.defstruct("Wide", [(f"f{n}", str) for n in range(40)])
    both = msgspec.defstruct("Both", [("a", wide), ("b", wide)])
    assert [one.kind for one in fields(schema_of(both))] == ["json", "json"]


def test_answers_have_the_same_fields() -> None:
    """Of an object each member; of anything else one field."""
    assert [one.name for one in answer_fields(schema_of(Line))] == ["/value/sku", "/value/count"]
    assert answer(schema_of(Line), {"/value/sku": ["a"], "/value/count": ["2"]}) == {"sku": "a", "count": 2}
    (one,) = answer_fields(schema_of(Literal["yes", "later"]))
    assert (one.name, one.kind, one.choices) == ("value", "choice", ("later", "yes"))
    assert answer(schema_of(bool), {"value": ["false"]}) is False
    with pytest.raises(Refusal):
        answer(schema_of(bool), {})


@pytest.mark.parametrize("schema", [None, {}, {"$ref": "#/$defs/none"}, {"type": "array"}, [1], {"$ref": 3}])
def test_a_schema_that_says_nothing_gives_one_field_for_json(schema: Any) -> None:
    """Whatever a program has declared, there is a form."""
    (field,) = fields(schema)
    assert field.kind == "json"
    assert values(schema, {"input": ['{"a": 1}']}) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("trip-8", {"prefix": "trip-8"}),
        ("failed", {"state": ["failed"]}),
        ("state:failed state:stuck", {"state": ["failed", "stuck"]}),
        ("workflow:order region=eu since:2h", {"workflow": "order", "tag.region": "eu", "since": "2h"}),
        ('error:"503 Service Unavailable"', {"error": "503 Service Unavailable"}),
        ("nightly@2026-11-16T02:00Z", {"prefix": "nightly@2026-11-16T02:00Z"}),
    ],
)
def test_what_is_typed_into_the_bar_becomes_a_filter(text: str, means: dict[str, Any]) -> None:
    """Tokens, tags and the beginning of an id."""
    assert typed(text) == means


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    """A form has a member for it, and Python's reader has an end."""
    with pytest.raises(Refusal):
        values(SCHEMA, {"input": ["[" * 100_000]})
