"""Values made up from types, and reading a step's code for `here.key`."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

import holdfast
from holdfast import here, step
from holdfast.testing.stand_ins import made_up, mentions_key


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Leg:
    city: str
    nights: int = 2


@dataclass
class Plane:
    wings: int


@attrs.define
class Hat:
    size: float


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    dry: bool


class Tree(msgspec.Struct):
    name: str
    branches: list[Tree] = []
    parent: Tree | None = None


class Nested(msgspec.Struct):
    inner: Nested | None


class Model(pydantic.BaseModel):
    id: int
    note: str = "-"


Even = Annotated[int, msgspec.Meta(ge=10, multiple_of=4)]
Name = Annotated[str, msgspec.Meta(min_length=12)]


@pytest.mark.parametrize(
    "kind",
    [
        None, bool, int, float, str, bytes, datetime, date, timedelta, UUID, Decimal, Colour, Leg, Leg | Plane, Hat, Point, Options,
        Tree, Nested, Model, Even, Name, Path, Any, Literal["a", "b"], int | None, list[Leg], dict[str, Leg], tuple[int, ...],
        tuple[str, int], set[int], frozenset[str],
    ],
    ids=str,
)  # fmt: skip
def test_a_value_can_be_made_up_for_what_can_be_stored(kind: Any) -> None:
    """The value fits its type: it can be encoded and decoded."""

    def made() -> Any: ...

    made.__annotations__["return"] = kind
    made.__qualname__ = f"made_{abs(hash(str(kind)))}"
    found = step(made)
    value = made_up(found)
    assert found.shape.decode_result(found.shape.encode_result(value)) == value


def test_made_up_values_are_something_rather_than_nothing() -> None:
    """Loops over it run, conditions on it hold, and texts say which field they stand in for."""

    @step
    async def fetch() -> list[Leg | None]: ...  # type: ignore[empty-body]

    assert made_up(fetch) == [Leg("city")]


def _key() -> str:
    return here.key


async def direct() -> None:
    print(here.key)


async def by_a_function() -> None:
    await asyncio.sleep(0)
    print(_key())


async def by_the_package() -> None:
    print(holdfast.here.key)


async def in_an_undo() -> None:
    print([here.undoes for _ in range(1)])


async def not_at_all() -> None:
    key = {"key": here.attempt}
    print(key["key"], here.run_id)


@pytest.mark.parametrize(
    "fn", [direct, by_a_function, by_the_package, in_an_undo], ids=lambda fn: fn.__name__
)
def test_reading_the_key_is_seen(fn: Callable[[], Awaitable[None]]) -> None:
    """The key may be read in the step itself, or in the functions it calls."""
    assert mentions_key(fn)


def test_other_uses_of_here_are_not() -> None:
    """An attempt's number is no idempotency key."""
    assert not mentions_key(not_at_all)
