"""Types and values as authors use them. Each comes back as it was, or is refused when it is written."""

# ruff: noqa: DTZ001, DTZ901, SLOT000
# These cases need times without a zone, and subclasses as people write them.

from __future__ import annotations

import collections
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional, TypedDict
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic

OSLO = ZoneInfo("Europe/Oslo")
TWICE = datetime(2026, 10, 25, 2, 30, fold=1)
"""A time of day that comes twice."""
SHIFTED = timezone(timedelta(hours=5, minutes=30, seconds=7))


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.StrEnum):
    S = "s"
    L = "l"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.Flag):
    A = 1
    B = 2


@dataclass
class Animal:
    name: str


@dataclass
class Dog(Animal):
    tricks: int = 0


@dataclass
class Puppy(Animal):
    """A subclass that adds nothing."""


@dataclass(frozen=True, order=True)
class Point:
    x: int
    y: int = 0


@dataclass(slots=True)
class Slotted:
    x: int
    when: datetime | None = None


@dataclass(eq=False)
class Unequal:
    x: int


@dataclass
class Herd:
    animals: list[Animal]
    by_name: dict[str, Animal] = field(default_factory=dict)


@dataclass
class Growing:
    """It has another value each time it is read."""

    size: int

    def __post_init__(self) -> None:
        self.size += 1


@dataclass
class Cleaned:
    """It is checked and put in order, and stays the same however often it is read."""

    name: str

    def __post_init__(self) -> None:
        self.name = self.name.strip()


@dataclass
class Stamped:
    name: str
    made: int = field(default=0, compare=False)

    def __post_init__(self) -> None:
        self.made += 1


@dataclass
class Loose:
    parts: Sequence[str] = ()
    more: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Bag:
    anything: Any


class Pair(NamedTuple):
    a: int
    b: str


class Wider(Pair):
    pass


class Options(TypedDict):
    fast: bool
    name: NotRequired[str]


@attrs.define
class Cheque:
    bank: str


def _increased(value: int) -> int:
    return value + 1


@attrs.define
class Coerced:
    amount: int = attrs.field(converter=_increased)


class Transfer(msgspec.Struct):
    iban: str
    cents: int = 0


class Tagged(msgspec.Struct, tag=True):
    x: int


class Other(msgspec.Struct, tag=True):
    y: int


class Parcel(pydantic.BaseModel):
    weight: float
    sent: datetime | None = None


class Fragile(Parcel):
    layers: int = 0


class Secretive(pydantic.BaseModel):
    name: str
    password: str = pydantic.Field(default="", exclude=True)


class Private(pydantic.BaseModel):
    name: str
    _seen: int = pydantic.PrivateAttr(default=0)


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(populate_by_name=True)
    own: str = pydantic.Field(alias="Own")


def seen() -> Private:
    made = Private(name="x")
    made._seen = 3
    return made


class UserId(str):
    pass


class Count(int):
    pass


KEPT: list[tuple[Any, Any]] = [
    (int, 0),
    (int, -(2**63)),
    (int, 2**70),
    (int, 10**300),
    (bool, True),
    (float, 1.5),
    (float, -0.0),
    (float, 5e-324),
    (float, 1.7976931348623157e308),
    (float, 3),
    (str, ""),
    (str, "naïve ☂ \U0001f600"),
    (str, "a\0b"),
    (str, 'quote " and \\ and \n'),
    (str, "null"),
    (None, None),
    (bytes, b""),
    (bytes, b"\0\xff"),
    (bytearray, bytearray(b"\0\xff")),
    (int | None, None),
    (Optional[Optional[int]], 3),  # noqa: UP045  as people write it
    (int | str, "1"),
    (int | str, 1),
    (int | float, 1),
    (int | float, 1.0),
    (bool | int, True),
    (list[int], [1, 2]),
    (list[list[int]], [[], [1]]),
    (list[int | None], [1, None]),
    (list[float], [1, 2.5]),
    (list, [1, "a", None, [2.5]]),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2)),
    (tuple[int, ...], ()),
    (list[tuple[int, str]], [(1, "a")]),
    (set[int], {3, 1, 2}),
    (set[str], {"b", "a"}),
    (set[int | str], {1, "a", 2}),
    (set[int | None], {1, None}),
    (set[Color], {Color.RED, Color.BLUE}),
    (set[Point], {Point(2), Point(1)}),
    (set[tuple[int, str]], {(1, "a"), (2, "b")}),
    (set, {1, "a"}),
    (frozenset[int], frozenset({2, 1})),
    (frozenset[Color], frozenset({Color.RED, Color.BLUE})),
    (list[set[Color]], [{Color.RED, Color.BLUE}]),
    (dict[str, int], {"a": 1}),
    (dict[str, int], {"": 1, "\0": 2}),
    (dict[int, str], {1: "a", -5: "b"}),
    (dict[float, int], {1.5: 1}),
    (dict[uuid.UUID, int], {uuid.UUID(int=1): 1}),
    (dict[date, int], {date(2026, 1, 2): 1}),
    (dict[Color, int], {Color.RED: 1}),
    (dict[bytes, int], {b"\xff": 1}),
    (dict[str, list[float]], {"a": [1.0]}),
    (dict[str, Any], {"a": {"b": [1, None, "x", 1.5, True]}}),
    (dict, {"a": 1}),
    (Mapping[str, int], {"a": 1}),
    (Sequence[int], [1, 2]),
    (datetime, datetime(2026, 2, 3, 4, 5, 6, 789)),
    (datetime, datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)),
    (datetime, datetime(2026, 2, 3, tzinfo=OSLO)),
    (datetime, TWICE.replace(tzinfo=OSLO)),
    (datetime, datetime.min),
    (datetime, datetime.max),
    (list[datetime | None], [None, datetime(2026, 1, 1)]),
    (date, date(2026, 2, 3)),
    (time, time(4, 5, 6, 7)),
    (time, time(4, 5, tzinfo=UTC)),
    (timedelta, timedelta(days=-2, microseconds=5)),
    (timedelta, timedelta.max),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0")),
    (Decimal, Decimal("1E+400")),
    (Decimal, 5),
    (uuid.UUID, uuid.UUID(int=7)),
    (Path, Path("a/b")),
    (PurePosixPath, PurePosixPath("/a")),
    (Color, Color.RED),
    (Size, Size.L),
    (Level, Level.LOW),
    (Literal["a", 1], 1),
    (Annotated[int, msgspec.Meta(ge=1)], 3),
    (Animal, Animal("Rex")),
    (Dog, Dog("Rex", 3)),
    (Animal | None, None),
    (Animal | Dog, Dog("Rex", 3)),
    (Animal | Dog, Animal("Rex")),
    (list[Animal | Dog], [Animal("a"), Dog("b")]),
    (dict[str, Animal | Dog], {"a": Dog("b")}),
    (set[Point | None], {Point(1), None}),
    (Point, Point(1, 2)),
    (Slotted, Slotted(1, datetime(2026, 1, 1))),
    (Herd, Herd([Animal("a")], {"b": Animal("b")})),
    (Cleaned, Cleaned(" x ")),
    (Loose, Loose(["a"], {"b": 1})),
    (Bag, Bag({"a": [1]})),
    (Pair, Pair(1, "a")),
    (list[Pair], [Pair(1, "a")]),
    (Options, {"fast": True}),
    (Options, {"fast": True, "name": "x"}),
    (Cheque, Cheque("b")),
    (Coerced, Coerced(1)),
    (Transfer, Transfer("NO1", 5)),
    (Tagged | Other, Other(1)),
    (Parcel, Parcel(weight=1.5, sent=datetime(2026, 1, 1, tzinfo=UTC))),
    (list[Parcel], [Parcel(weight=1)]),
    (Parcel | Animal, Animal("Rex")),
    (Secretive, Secretive(name="x")),
    (Private, Private(name="x")),
    (Aliased, Aliased(Own="x")),
    (Any, None),
    (Any, 5),
    (Any, "text"),
    (Any, {"a": [1, None, "x", 1.5, {"b": []}]}),
    (Any, 2**70),
    (object, [1]),
]

REFUSED: list[tuple[Any, Any, str]] = [
    # a subclass where its base was declared
    (Animal, Dog("Rex", 3), "a Dog would come back as a Animal"),
    (Animal, Puppy("Rex"), "a Puppy would come back as a Animal"),
    (Animal | None, Dog("Rex"), "a Dog would come back"),
    (list[Animal], [Animal("a"), Dog("Rex")], r"\[1\]: a Dog would come back"),
    (dict[str, Animal], {"a": Dog("Rex")}, "a: a Dog would come back"),
    (Herd, Herd([Dog("Rex")]), r"animals\[0\]: a Dog would come back"),
    (Herd, Herd([], {"rex": Puppy("Rex")}), r"by_name\.rex: a Puppy would come back"),
    (Pair, Wider(1, "a"), "a Wider would come back as a Pair"),
    (list[Pair], [Wider(1, "a")], r"\[0\]: a Wider would come back"),
    (Parcel, Fragile(weight=1, layers=3), "a Fragile would come back as a Parcel"),
    (list[Parcel], [Fragile(weight=1)], r"\[0\]: a Fragile would come back"),
    (str, Size.L, "a Size would come back as a str"),
    (int, Level.LOW, "a Level would come back as a int"),
    (dict[str, int], collections.OrderedDict(a=1), "a OrderedDict would come back as a dict"),
    (dict[str, int], collections.Counter("ab"), "a Counter would come back as a dict"),
    (str, UserId("u"), "a UserId cannot be stored"),
    (int, Count(3), "a Count cannot be stored"),
    # one thing where another was declared
    (str, b"abc", "a bytes would come back as a str"),
    (str, uuid.UUID(int=1), "a UUID would come back as a str"),
    (str, datetime(2026, 1, 1), "a datetime would come back as a str"),
    (str, Decimal(1), "a Decimal would come back as a str"),
    (str, Path("a"), "would come back as a str"),
    (str, Color.RED, "a Color would come back as a str"),
    (list[str], [b"abc"], r"\[0\]: a bytes would come back as a str"),
    (Animal, Animal(b"Rex"), "name: a bytes would come back as a str"),  # type: ignore[arg-type]  # on purpose
    (datetime, "2026-01-01T00:00:00", "a str would come back as a datetime"),
    (Color, "red", "a str would come back as a Color"),
    (uuid.UUID, "00000000-0000-0000-0000-000000000001", "a str would come back as a UUID"),
    (bytes, "YWJj", "a str would come back as a bytes"),
    (Decimal, 1.5, "a float would come back as a Decimal"),
    (float, 2**53 + 1, "a int would come back as a float"),
    (list[int], (1, 2), "a tuple would come back as a list"),
    (tuple[int, ...], [1, 2], "a list would come back as a tuple"),
    (set[int], frozenset({1}), "a frozenset would come back as a set"),
    (list[int], {1}, "a set would come back as a list"),
    (tuple[int, str], Pair(1, "a"), "a Pair would come back as a tuple"),
    (PurePosixPath, Path("a"), "would come back as a PurePosixPath"),
    (int, True, "expected `int`, got `bool`"),
    (int, 1.0, "expected `int`, got `float`"),
    (int, "1", "expected `int`, got `str`"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "`int` >= 1"),
    # what a class does to its values
    (Growing, Growing(1), "size: it would come back as another value"),
    (list[Growing], [Growing(1)], r"\[0\]\.size: it would come back as another value"),
    (Stamped, Stamped("x"), "made: it would come back as another value"),
    (Secretive, Secretive(name="x", password="y"), "without some of its parts"),
    (Private, seen(), "without some of its parts"),
    (Options, {"fast": True, "slow": 1}, "the key 'slow' would be lost"),
    # times
    (datetime, TWICE, "fold=1 would be lost"),
    (list[datetime], [TWICE], r"\[0\]: its fold=1 would be lost"),
    (Slotted, Slotted(1, TWICE), "when: its fold=1 would be lost"),
    (time, time(1, fold=1), "fold=1 would be lost"),
    (datetime, datetime(2026, 1, 1, tzinfo=SHIFTED), "offset from UTC has seconds"),
    # keys
    (dict[int | str, int], {1: 1, "1": 2}, "same in JSON"),
    (dict[str, int], {1: 1}, "the key '1', a int, would come back as something else"),
    (dict[tuple[int, int], int], {(1, 2): 1}, "a tuple cannot be the key of a dict"),
    # numbers
    (float, float("nan"), "is not a number that JSON has"),
    (float | None, float("inf"), "is not a number that JSON has"),
    (list[float], [1.0, float("-inf")], r"\[1\]: -inf is not a number"),
    (Decimal, Decimal("NaN"), "comes back changed"),
    (str, "\ud800", "half of a surrogate pair"),
    # under Any
    (Any, b"abc", "a bytes would come back as a str"),
    (Any, date(2026, 1, 2), "a date would come back as a str"),
    (Any, datetime(2026, 1, 2), "a datetime would come back as a str"),
    (Any, timedelta(1), "a timedelta would come back as a str"),
    (Any, uuid.UUID(int=1), "a UUID would come back as a str"),
    (Any, Decimal("1.5"), "a Decimal would come back as a str"),
    (Any, (1, 2), "a tuple would come back as a list"),
    (Any, [{"a": (1, 2)}], r"\[0\]\.a: a tuple would come back as a list"),
    (Any, {1, 2}, "a set would come back as a list"),
    (Any, {1: "a"}, "the key '1', a int"),
    (Any, {1: "a", "1": "b"}, "the key '1'"),
    (Any, {None: 1}, "a NoneType cannot be the key of a dict"),
    (Any, Color.RED, "a Color would come back as a str"),
    (Any, Size.L, "a Size would come back as a str"),
    (Any, Level.LOW, "a Level would come back as a int"),
    (Any, Mode.A | Mode.B, "cannot be stored|would come back"),
    (Any, Animal("Rex"), "a Animal would come back as a dict"),
    (Any, Pair(1, "a"), "a Pair would come back as a list"),
    (Any, Parcel(weight=1), "a Parcel would come back as a dict"),
    (Any, collections.OrderedDict(a=1), "a OrderedDict would come back as a dict"),
    (Any, collections.defaultdict(int, a=1), "a defaultdict would come back as a dict"),
    (Any, collections.deque([1]), "a deque cannot be stored"),
    (Any, range(3), "a range cannot be stored"),
    (Any, 1 + 2j, "a complex cannot be stored"),
    (Any, SimpleNamespace(a=1), "a SimpleNamespace cannot be stored"),
    (Any, float("nan"), "is not a number that JSON has"),
    (dict[str, Any], {"a": {"b": (1,)}}, r"a\.b: a tuple would come back"),
    (dict[str, Any], {"a": Size.L}, "a: a Size would come back as a str"),
    (list[Any], [b"x"], r"\[0\]: a bytes would come back"),
    (Bag, Bag(date(2026, 1, 2)), "anything: a date would come back as a str"),
]
