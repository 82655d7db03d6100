"""Forms from JSON Schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import Meta

from holdfast.http.pages.forms import fields, values
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
        "address": "json",
        "share": "number",
        "is_gift": "choice",
        "note": "text",
        "tags": "json",
    }
    assert found["cents"].hint == "at least 1 · at most 100"
    assert found["share"].hint == "empty: 0.5"
    assert set(found["size"].choices) == {"small", "large"}
    assert found["name"].is_required
    assert not found["note"].is_required


def test_what_was_typed_becomes_arguments() -> None:
    """Numbers, choices and JSON by their types. An empty field is left out, so that its default holds."""
    given = {
        "input.name": ["Ada"],
        "input.cents": ["7"],
        "input.size": ["large"],
        "input.address": ['{"street": "Quay"}'],
        "input.share": [""],
        "input.is_gift": ["true"],
        "input.note": [""],
        "input.tags": [""],
    }
    assert values(SCHEMA, given) == {
        "name": "Ada",
        "cents": 7,
        "size": "large",
        "address": {"street": "Quay"},
        "is_gift": True,
    }
    for place, wrong in (("input.cents", "seven"), ("input.address", "{")):
        with pytest.raises(Refusal) as refused:
            values(SCHEMA, given | {place: [wrong]})
        assert refused.value.place == place


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
