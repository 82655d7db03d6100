"""Payloads are JSON by declared type, checked when they are written."""

import asyncio
import collections
import io
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from email.message import Message
from enum import Enum
from functools import partialmethod
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple, TypedDict
from urllib.error import HTTPError

import attrs
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import codec, config, step
from holdfast.codec import Payload, Shape, decode_error, describe_error, encode_error
from holdfast.errors import DefinitionError, InvalidInput, StepFailed, StepLost, StepTimeout
from tests.unit.payload_cases import KEPT, REFUSED, Animal, Loose, Transfer


class Color(Enum):
    RED = "red"


@dataclass
class Card:
    number: str
    limits: list[int] = field(default_factory=list)


@dataclass
class Cash:
    cents: int
    paid: datetime | None = None


@attrs.define
class Cheque:
    bank: str


class Parcel(pydantic.BaseModel):
    weight: float
    sent: datetime
    code: bytes = b"x"


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict):
    fast: bool


class Plain:
    """A class that nobody can store."""


WHEN = datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC)


def numbered(cases: Sequence[tuple[Any, ...]]) -> list[str]:
    """Return names of test cases that are the same in every process: sets have no order of their own."""
    return [f"{number}-{case[0]}" for number, case in enumerate(cases)]


@pytest.mark.parametrize(("kind", "value"), KEPT, ids=numbered(KEPT))
def test_values_come_back_as_they_were(kind: Any, value: Any) -> None:
    """They are equal and of the same class, as argument, result and signal. A value that can be changed comes back as a
    new object."""
    payload = Payload(kind, "it")
    raw = payload.encode(value)
    json.loads(raw)

    def work(value: Any) -> None: ...

    work.__annotations__["value"] = kind
    shape = Shape.of(work)
    for args, kwargs in (((value,), {}), ((), {"value": value})):
        bound_raw, bound = shape.checked(args, kwargs)
        for back in (bound.value, shape.decode(bound_raw).value, payload.decode(raw)):  # type: ignore[attr-defined]
            if isinstance(value, datetime) and value.tzinfo is not None:
                assert (back.timestamp(), back.utcoffset()) == (value.timestamp(), value.utcoffset())
            else:
                assert back == value
            assert type(back) is (
                type(value) if type(value) is not int else kind if kind in (float, Decimal) else int
            )
        if isinstance(value, list | dict | set | bytearray | Animal | Transfer):
            assert bound.value is not value  # type: ignore[attr-defined]  # a struct made at run time


@pytest.mark.parametrize(("kind", "value", "why"), REFUSED, ids=numbered(REFUSED))
def test_values_that_would_come_back_as_something_else_are_refused(kind: Any, value: Any, why: str) -> None:
    """They are refused when they are written, as argument, result and signal. The error names the place."""

    def work(value: Any) -> None: ...

    work.__annotations__["value"] = kind
    with pytest.raises(InvalidInput, match=why) as caught:
        Shape.of(work).checked((value,), {})
    assert str(caught.value).startswith("work(): value")
    with pytest.raises(InvalidInput, match=why):
        Shape.of(work).checked((), {"value": value})
    with pytest.raises(InvalidInput, match=why):
        Payload(kind, "it").encode(value)


def test_where_an_interface_is_asked_for_its_plain_form_comes_back() -> None:
    """`names: Sequence[str] = ()` is what people write: a tuple may be passed, and a list comes back."""

    def work(names: Sequence[str] = (), ages: Mapping[str, int] = MappingProxyType({"a": 1})) -> None: ...

    _, bound = Shape.of(work).checked((("a", "b"), collections.OrderedDict(b=2)), {})
    assert (bound.names, bound.ages) == (["a", "b"], {"b": 2})  # type: ignore[attr-defined]  # a struct made at run time
    assert Payload(Loose, "it").decode(Payload(Loose, "it").encode(Loose(("a",)))) == Loose(["a"])


def test_sets_that_cannot_be_sorted_are_refused_in_a_class_when_it_is_declared() -> None:
    """msgspec writes these sets by itself, and would fail at the first one with two members."""

    @dataclass
    class Palette:
        colors: set[Color]

    with pytest.raises(DefinitionError, match="Palette its members cannot be sorted: make it a list"):
        Payload(Palette, "it")


MOODS: list[str] = []


@dataclass
class Moody:
    """It exits the program when it is read at the wrong time."""

    name: str

    def __post_init__(self) -> None:
        if MOODS:
            raise SystemExit(3)


def test_a_class_that_exits_when_it_is_read_or_written_is_refused() -> None:
    """Whatever an author's class raises means that the value does not fit. It does not end the process that reads
    it."""

    def work(value: Moody) -> None: ...

    shape, payload, value = Shape.of(work), Payload(Moody, "it"), Moody("x")
    raw, _ = shape.checked((value,), {})
    MOODS.append("bad")
    try:
        with pytest.raises(InvalidInput, match="work"):
            shape.checked((value,), {})
        with pytest.raises(InvalidInput, match="work"):
            shape.decode(raw)
        with pytest.raises(InvalidInput, match="it"):
            payload.encode(value)
        with pytest.raises(InvalidInput, match="it"):
            payload.decode(b'{"name":"x"}')
    finally:
        MOODS.clear()


def test_values_are_not_shown_in_errors() -> None:
    """They may be secret, and errors are shown and logged."""
    with pytest.raises(InvalidInput) as caught:
        Payload(dict[str, Any], "it").encode({"card": ("4111 1111", b"secret")})
    assert "4111" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_several_record_types_are_distinguished_by_a_tag() -> None:
    """The JSON of a union says which of its types the value has."""
    assert Payload(Card | Cash, "it").encode(Cash(5)) == b'{"$type":"Cash","cents":5,"paid":null}'


@pytest.mark.parametrize(
    ("kind", "advice"),
    [
        (Plain, "make it a dataclass"),
        (list[Plain], "make it a dataclass"),
        (complex, "make it a dataclass"),
        (Callable[[], int], "dataclass"),
        (Path | int, "use str instead"),
    ],
    ids=str,
)
def test_types_that_cannot_be_stored_are_refused_at_import(kind: Any, advice: str) -> None:
    """The author gets the error when the step is declared, not when the first run comes."""
    with pytest.raises(DefinitionError, match=advice) as caught:
        Payload(kind, "charge(): card")
    assert str(caught.value).startswith("charge(): card: values of type ")


@dataclass
class Wallet:
    holds: Card | Cash


def test_a_union_inside_an_authors_own_class_is_refused_with_the_way_out() -> None:
    """Holdfast cannot replace the union there, so the error says what to write instead."""
    with pytest.raises(DefinitionError, match="tag=True"):
        Payload(Wallet, "it")


def charge(card: str, cents: int, note: str | None = None) -> int:
    return cents


class TestArguments:
    """Calls are bound as Python binds them, and checked. Errors use the author's names."""

    shape = Shape.of(charge)

    def test_checked_arguments_share_nothing_with_the_caller(self) -> None:
        """What an agent in the same process gets was read from JSON."""

        def work(card: Card) -> None: ...

        mine = Card("1", [1])
        raw, bound = Shape.of(work).checked((mine,), {})
        assert raw == b'{"card":{"number":"1","limits":[1]}}'
        assert bound.card == mine  # type: ignore[attr-defined]  # a struct made at run time
        assert bound.card is not mine  # type: ignore[attr-defined]  # a struct made at run time

    @pytest.mark.parametrize(
        ("args", "kwargs", "message"),
        [
            (("a", "b"), {}, "charge(): cents: expected `int`, got `str`"),
            (("a",), {}, "charge(): missing a required argument: 'cents'"),
            ((), {"cents": 1, "card": 2}, "charge(): card: expected `str`, got `int`"),
            (("a", 1, "x", 2), {}, "charge(): too many positional arguments"),
            (("a", 1), {"cent": 2}, "charge(): got an unexpected keyword argument 'cent'"),
            (("a", 1), {"card": 2}, "charge(): multiple values for argument 'card'"),
            (("\ud800", 1), {}, "charge(): card: the text contains half of a surrogate pair"),
            ((Plain(), 1), {}, "charge(): card: a Plain cannot be stored: make it a dataclass"),
        ],
    )
    def test_a_wrong_call_names_function_and_parameter(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], message: str
    ) -> None:
        """It raises InvalidInput, in the words of Python and of the declared types."""
        with pytest.raises(InvalidInput) as caught:
            self.shape.checked(args, kwargs)
        assert str(caught.value).startswith(message)

    def test_the_place_inside_a_value_is_named(self) -> None:
        """The error names the field and index, also inside a union."""

        def pay(ways: list[Card | Cash], by: dict[str, Card]) -> None: ...

        shape = Shape.of(pay)
        with pytest.raises(InvalidInput, match=r"pay\(\): ways\[1\]\.cents: expected `int`, got `str`"):
            shape.checked(([Card("1"), Cash("x")], {}), {})  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(InvalidInput, match=r"pay\(\): by\[\.\.\.\]\.limits\[0\]: expected `int`"):
            shape.checked(([], {"a": Card("1", ["x"])}), {})  # type: ignore[list-item]  # wrong on purpose
        with pytest.raises(
            InvalidInput, match=r"ways\[0\]: expected an object whose `\$type` is `Card` or `Cash`"
        ):
            shape.decode(b'{"ways":[{"$type":"Other"}],"by":{}}')

    def test_every_kind_of_parameter(self) -> None:
        """Positional-only, defaults, *args, keyword-only and **kwargs work as in a plain call."""

        def every(a: int, /, b: str = "b", *rest: float, c: bool, d: list[int] = [1], **more: date) -> Any:  # noqa: B006
            return a, b, rest, c, d, more

        shape = Shape.of(every)
        calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
            ((1,), {"c": True}),
            ((1, "x", 2.5, 3.5), {"c": False, "d": [], "when": WHEN.date()}),
            ((1,), {"b": "y", "c": True}),
        ]
        for args, kwargs in calls:
            raw, bound = shape.checked(args, kwargs)
            assert shape.call(every, bound) == every(*args, **kwargs)
            assert shape.decode(raw) == bound
        with pytest.raises(InvalidInput, match=r"every\(\): .*'a'"):
            shape.checked((), {"a": 1, "c": True})

    def test_a_default_of_none_makes_the_parameter_optional(self) -> None:
        """`note: str = None` is what people write."""

        def work(note: str = None) -> None: ...  # type: ignore[assignment]  # on purpose  # noqa: RUF013

        assert Shape.of(work).checked((), {})[0] == b'{"note":null}'

    @pytest.mark.parametrize(
        "value", [float("nan"), float("inf"), [float("-inf")], {"a": {"b": float("nan")}}]
    )
    def test_nan_and_infinity_are_refused_wherever_they_hide(self, value: Any) -> None:
        """JSON would say null, which means something else."""

        def work(value: Any, also: float | None = None) -> None: ...

        with pytest.raises(InvalidInput, match=r"work\(\): value.*(nan|inf) is not a number that JSON has"):
            Shape.of(work).checked((value,), {})
        with pytest.raises(InvalidInput, match=r"work\(\): also: nan"):
            Shape.of(work).checked((1, float("nan")), {})
        assert Shape.of(work).checked((None, None), {})[0] == b'{"value":null,"also":null}'

    def test_a_payload_over_the_limit_says_where_to_put_it(self) -> None:
        """This holds for arguments and for results."""
        big = "x" * config.DEFAULT.payload_max_bytes
        with pytest.raises(InvalidInput, match=r"charge\(\): 2,097,\d+ bytes .* object store"):
            self.shape.checked((big, 1), {})
        with pytest.raises(InvalidInput, match="object store"):
            Payload(str, "it").encode(big)

    def test_a_value_that_contains_itself_is_refused(self) -> None:
        """It raises an error, and does not crash."""
        loop: list[Any] = []
        loop.append(loop)

        def work(value: Any) -> None: ...

        with pytest.raises(InvalidInput, match="contains itself"):
            Shape.of(work).checked((loop,), {})

    def test_results_are_checked_against_the_return_type(self) -> None:
        """The error begins with `charge() result:`."""
        assert self.shape.decode_result(self.shape.encode_result(5)) == 5
        with pytest.raises(InvalidInput, match=r"charge\(\) result: expected `int`, got `str`"):
            self.shape.encode_result("5")
        with pytest.raises(InvalidInput, match=r"charge\(\) result"):
            self.shape.decode_result(b'"5"')

    def test_annotations_that_do_not_exist_at_run_time_are_refused(self) -> None:
        """A name from `if TYPE_CHECKING:` is noticed when the shape is needed. The error says what to do."""

        def work(card: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821  on purpose

        assert Shape.early(work) is None
        with pytest.raises(DefinitionError, match=r"'Missing'.*TYPE_CHECKING"):
            Shape.of(work)


class TestFromJson:
    """What a person writes after `--input`."""

    shape = Shape.of(charge)

    @pytest.mark.parametrize(
        "text",
        [
            '{"card": "a", "cents": 3}',
            '["a", 3]',
            '["a", 3, null]',
            b' {"cents":3,\n"card":"a","note":null} ',
        ],
    )
    def test_names_or_positions(self, text: str | bytes) -> None:
        """A person may write an object of parameters, or an array of them."""
        assert self.shape.from_json(text) == b'{"card":"a","cents":3,"note":null}'

    def test_one_parameter_may_be_bare(self) -> None:
        """It may be a number or text. Objects and arrays are always names and positions."""

        def greet(name: str) -> None: ...

        assert Shape.of(greet).from_json('"Ada"') == b'{"name":"Ada"}'

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ('{"card": "a", "cents": "x"}', "charge(): cents: expected `int`, got `str`"),
            ('{"card": "a"}', "charge(): missing `cents`"),
            (
                '{"card": "a", "cents": 1, "cent": 1}',
                "charge(): unknown parameter `cent`: it takes `card`, `cents`",
            ),
            ('{"card": "a", "card": "b", "cents": 1}', 'charge(): the key "card" occurs twice'),
            ('{"card": "a", "cents": NaN}', "charge(): NaN is not JSON"),
            (
                '{"card": "a", "cents": 1} x',
                "charge(): the input is not JSON: Extra data at line 1, column 27",
            ),
            ("", "charge(): the input is not JSON"),
            ("[1, 2, 3, 4]", "charge(): the array has 4 values, and there are 3 parameters for them"),
            ("5", "charge(): expected an object of parameters by name"),
            (b"\xff", "charge(): the input is not UTF-8"),
            ('["\\ud800", 1]', "charge(): the text contains half of a surrogate pair"),
            ("[" * 100_000, "charge(): the input is nested too deeply"),
        ],
    )
    def test_what_is_wrong_is_named(self, text: str | bytes, message: str) -> None:
        """The error names the place, and what is expected."""
        with pytest.raises(InvalidInput) as caught:
            self.shape.from_json(text)
        assert str(caught.value).startswith(message)

    def test_more_arguments(self) -> None:
        """*args and **kwargs take the remaining arguments."""

        def work(first: int, *rest: int, **more: str) -> Any:
            return first, rest, more

        shape = Shape.of(work)
        assert shape.call(work, shape.decode(shape.from_json("[1, 2, 3]"))) == (1, (2, 3), {})
        assert shape.call(work, shape.decode(shape.from_json('{"first": 1, "x": "y"}'))) == (
            1,
            (),
            {"x": "y"},
        )

    @given(st.text() | st.binary())
    def test_nothing_else_ever_comes_out(self, text: str | bytes) -> None:
        """Whatever a person writes, the answer is a payload or InvalidInput."""
        try:
            self.shape.decode(self.shape.from_json(text))
        except InvalidInput:
            pass


def test_sets_are_written_in_one_order_in_every_process() -> None:
    """Hashes of text differ from process to process; the digest of an input must not."""
    program = (
        "from holdfast.codec import Shape, digest\n"
        "def work(names: set[str]) -> None: ...\n"
        "print(digest(Shape.of(work).checked(({'a', 'b', 'c', 'd', 'e'},), {})[0]).hex())"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


@step
async def home() -> None:
    """A step in this module, so that the exceptions that the module can name are rebuilt."""


class BadCardError(Exception):
    __recorded__ = ("card", "code")

    def __init__(self, card: str, *, code: int) -> None:
        raise AssertionError("an author's __init__ must not run again")

    @classmethod
    def made(cls, card: str, code: int) -> "BadCardError":
        error = cls.__new__(cls, card)
        error.args, error.card, error.code = (card,), card, code
        return error

    card: str
    code: int


class AnnotatedError(Exception):
    code: int


@dataclass
class DataError(Exception):
    card: str
    code: int = 0


class HttpError(ConnectionError):
    """Its arguments are those that Python's own class reads."""


class TestErrors:
    """Exceptions as JSON and back."""

    def test_the_authors_own_exception_comes_back(self) -> None:
        """Its class, arguments, attributes and notes come back. Its __init__ does not run."""
        error = BadCardError.made("tok", 7)
        error.add_note("see the log")
        back = decode_error(encode_error(error, step="shop.charge"))
        assert type(back) is BadCardError
        assert (back.args, back.card, back.code) == (("tok",), "tok", 7)
        assert back.__notes__ == ["see the log", "in step shop.charge"]

    @pytest.mark.parametrize(
        "error",
        [
            ValueError("bad", 3),
            KeyError("k"),
            FileNotFoundError(2, "No such file", "a.txt"),
            HttpError("refused"),
            UnicodeDecodeError("utf-8", b"", 0, 1, "odd"),
            ZeroDivisionError(),
            StepFailed("x", error_type="a.B", step="s"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_common_exceptions_keep_their_words(self, error: Exception) -> None:
        """str() and the class are the same on the other side, or a StepFailed has the message."""
        back = decode_error(encode_error(error))
        if type(back) is type(error):
            assert str(back) == str(error)
            assert getattr(back, "errno", None) == getattr(error, "errno", None)
        else:
            assert isinstance(back, StepFailed)
            assert str(error) in str(back)

    @pytest.mark.parametrize(
        "error",
        [
            asyncio.CancelledError("x"),
            KeyboardInterrupt("x"),
            SystemExit(3),
            StopIteration(1),
            GeneratorExit(),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_control_signals_never_come_back_as_themselves(self, error: BaseException) -> None:
        """In a workflow they would mean something else."""
        assert type(decode_error(encode_error(error))) is StepFailed

    def test_an_exception_that_is_not_loaded_here_keeps_its_message(self) -> None:
        """Nothing is imported because an error names it."""
        raw = json.dumps({"type": "this.Error", "message": "odd", "step": "a.b"})
        back = decode_error(raw)
        assert isinstance(back, StepFailed)
        assert (str(back), back.error_type, back.step) == ("Error: odd", "this.Error", "a.b")
        assert "this" not in sys.modules

    @pytest.mark.parametrize(("ending", "kind"), [("timed out", StepTimeout), ("lost", StepLost)])
    def test_endings_have_their_own_classes(self, ending: str, kind: type[StepFailed]) -> None:
        """A timeout is a TimeoutError too."""
        back = decode_error(encode_error(TimeoutError("30 s"), step="a.b", ending=ending))
        assert type(back) is kind
        assert isinstance(back, TimeoutError) == (ending == "timed out")

    def test_the_traceback_shows_the_authors_frames(self) -> None:
        """It is bounded, and has no frames of asyncio and Holdfast."""

        async def outer() -> None:
            deep(30)

        def deep(n: int) -> None:
            if n == 0:
                raise ValueError("here")
            deep(n - 1)

        with pytest.raises(ValueError, match="here") as caught:
            asyncio.run(outer())
        record = json.loads(encode_error(caught.value))
        assert "raise ValueError" in record["traceback"]
        assert "asyncio/" not in record["traceback"]
        assert len(record["traceback"]) <= 6_000

    def test_the_traceback_shows_the_line_that_failed_this_time(self) -> None:
        """How a frame looks is remembered, for this frame and this place in it."""

        def fails(at: int) -> None:
            if at == 1:
                raise ValueError("one")
            raise ValueError("two")

        def shown(at: int) -> str:
            with pytest.raises(ValueError, match=r"one|two") as caught:
                fails(at)
            return str(json.loads(encode_error(caught.value))["traceback"])

        assert [('"one"' in text, '"two"' in text) for text in map(shown, (1, 2, 1))] == [
            (True, False),
            (False, True),
            (True, False),
        ]

    def test_a_group_is_rebuilt_with_its_members(self) -> None:
        """Nested groups keep their notes and classes, so that `except*` works in the workflow."""
        inner = ExceptionGroup("inner", [HttpError("no", 503), KeyError("k")])
        inner.exceptions[1].add_note("a note")
        back = decode_error(encode_error(ExceptionGroup("outer", [ValueError("v"), inner]), step="s"))
        assert type(back) is ExceptionGroup
        assert back.message == "outer"
        assert [type(one) for one in back.exceptions] == [ValueError, ExceptionGroup]
        deep = back.exceptions[1]
        assert isinstance(deep, ExceptionGroup)
        assert [str(one) for one in deep.exceptions] == [str(one) for one in inner.exceptions]
        assert deep.exceptions[1].__notes__ == ["a note"]
        assert back.subgroup(KeyError) is not None

    def test_a_member_that_cannot_be_rebuilt_keeps_its_message(self) -> None:
        """The group itself is rebuilt all the same."""

        class LocalError(Exception):
            pass

        back = decode_error(encode_error(ExceptionGroup("outer", [LocalError("x")])))
        assert isinstance(back, ExceptionGroup)
        assert isinstance(back.exceptions[0], StepFailed)
        assert str(back.exceptions[0]) == "LocalError: x"

    def test_a_group_with_what_is_no_exception_keeps_its_message(self) -> None:
        """An error that could end the process is not raised in a workflow."""
        back = decode_error(encode_error(BaseExceptionGroup("two", [SystemExit(1), ValueError("v")])))
        assert isinstance(back, StepFailed)
        assert "SystemExit: 1; ValueError: v" in str(back)

    @pytest.mark.parametrize(
        "error",
        [
            UnicodeDecodeError("utf-8", b"\xff\x00", 0, 1, "invalid start byte"),
            UnicodeEncodeError("ascii", "ä", 0, 1, "ordinal not in range"),
            OSError(2, "No such file", "a.txt"),
            KeyError("a"),
            LookupError(b"bytes", 1, None),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_pythons_own_are_rebuilt_with_their_arguments(self, error: Exception) -> None:
        """This holds for bytes among them, too."""
        back = decode_error(encode_error(error))
        assert type(back) is type(error)
        assert (str(back), back.args) == (str(error), error.args)

    def test_causes_are_rebuilt(self) -> None:
        """A whole chain of `raise … from …` is rebuilt. An exception that was being handled is rebuilt as the
        context."""
        try:
            try:
                try:
                    raise KeyError("first")
                except KeyError as first:
                    raise ConnectionError("second") from first
            except ConnectionError:
                raise ValueError("third")  # noqa: B904  on purpose
        except ValueError as error:
            back = decode_error(encode_error(error))
        assert back.__cause__ is None
        assert isinstance(back.__context__, ConnectionError)
        assert isinstance(back.__context__.__cause__, KeyError)
        assert back.__context__.__cause__.args == ("first",)

    def test_what_a_chain_costs_is_bounded(self) -> None:
        """Neither a circle nor a group of thousands costs much."""
        first, second = ValueError("a"), ValueError("b")
        first.__cause__, second.__cause__ = second, first
        assert len(encode_error(first)) < 20_000
        assert len(encode_error(ExceptionGroup("many", [ValueError("x" * 100)] * 5000))) < 50_000

    def test_attributes_that_are_none_come_back(self) -> None:
        """`error.code` exists, and is None."""
        error = BadCardError.made("tok", 7)
        error.__dict__.update(card=None, code=object())
        back = decode_error(encode_error(error))
        assert vars(back)["card"] is None
        assert not hasattr(back, "code"), "what is no JSON is left out"

    @pytest.mark.parametrize("error", [HttpError("no"), BadCardError.made("tok", 7)], ids=["other", "opted"])
    def test_attributes_that_nobody_named_are_not_recorded(self, error: Exception) -> None:
        """A client's exception may carry headers, tokens or a whole reply."""
        error.__dict__.update(headers={"authorization": "Bearer s3cret"}, token="s3cret")
        raw = encode_error(error)
        assert "s3cret" not in raw
        assert not hasattr(decode_error(raw), "token")

    def test_fields_of_a_dataclass_are_recorded(self) -> None:
        """An author who writes an exception as a dataclass says that its fields are data."""
        back = decode_error(encode_error(DataError("tok", 3)))
        assert isinstance(back, DataError)
        assert (back.card, back.code) == ("tok", 3)

    def test_annotations_count_in_the_packages_of_the_steps(self) -> None:
        """`code: int` in the body of the author's own class is recorded. A library's class is annotated for other
        readers."""
        error = AnnotatedError("no")
        error.code, error.token = 3, "s3cret"  # type: ignore[attr-defined]  # nobody declared a token
        raw = encode_error(error)
        assert "s3cret" not in raw
        assert vars(decode_error(raw)).get("code") == 3
        foreign = type("Foreign", (Exception,), {"__module__": "unrelated", "__annotations__": {"code": int}})
        error = foreign("no")
        error.__dict__.update(code=3)
        assert "attributes" not in json.loads(encode_error(error))

    def test_a_rebuilt_exception_can_be_asked_anything(self) -> None:
        """Also one whose class looks for what is not there in a reply, which is not recorded."""
        for fp in (None, io.BytesIO(b"s3cret")):
            error = HTTPError("http://x/", 404, "Not Found", Message(), fp)
            back = decode_error(encode_error(error, step="get"))
            assert isinstance(back, HTTPError)
            assert (back.code, back.reason, str(back)) == (404, "Not Found", "HTTP Error 404: Not Found")
            assert not hasattr(back, "no such thing")
            assert traceback.format_exception(back)[-2:] == [
                "urllib.error.HTTPError: HTTP Error 404: Not Found\n",
                "in step get\n",
            ]

    def test_known_attributes_of_pythons_own(self) -> None:
        """The attributes that `str` needs are recorded."""
        back = decode_error(encode_error(subprocess.CalledProcessError(3, ["make"], output="s3cret")))
        assert isinstance(back, subprocess.CalledProcessError)
        assert (back.returncode, back.cmd) == (3, ["make"])
        assert not hasattr(back, "output")

    def test_rows_written_by_others_import_and_run_nothing(self) -> None:
        """No lazy attribute of a module, no property, no descriptor of a class and no author's `__init__` runs."""
        ran: list[str] = []

        class Lazy(ModuleType):
            def __getattr__(self, name: str) -> object:
                ran.append(name)
                return ValueError

        class WithProperty:
            @property
            def Error(self) -> type[Exception]:  # noqa: N802  named like a class
                ran.append("property")
                return ValueError

        def called(*_: object) -> None:
            ran.append("called")

        class OddError(Exception):
            __init__ = partialmethod(called)

        here = sys.modules[__name__]
        for name, value in (
            ("lazy", Lazy("lazy")),
            ("with_property", WithProperty()),
            ("OddError", OddError),
        ):
            setattr(here, name, value)
        sys.modules[f"{__name__}.lazy"] = Lazy("lazy")
        try:
            for path in ("lazy.Error", "with_property.Error", "Nothing.Error", "lazy.a.b.Error"):
                back = decode_error(json.dumps({"type": f"{__name__}.{path}", "message": "m"}))
                assert type(back) is StepFailed, path
            odd = decode_error(json.dumps({"type": f"{__name__}.OddError", "message": "m"}))
        finally:
            del sys.modules[f"{__name__}.lazy"]
            for name in ("lazy", "with_property", "OddError"):
                delattr(here, name)
        assert ran == []
        assert str(odd) in {"m", "OddError: m"}

    def test_only_classes_that_loaded_code_can_name(self) -> None:
        """A class is not rebuilt if no module with a step or workflow belongs to its package or uses it."""
        module = ModuleType("unrelated")
        module.Error = type("Error", (Exception,), {"__module__": "unrelated"})  # type: ignore[attr-defined]
        sys.modules["unrelated"] = module
        raw = encode_error(module.Error("odd"))
        try:
            assert type(decode_error(raw)) is StepFailed
            setattr(sys.modules[__name__], "unrelated", module)  # noqa: B010  as `import unrelated` does
            assert type(decode_error(raw)) is module.Error
        finally:
            del sys.modules["unrelated"]
            vars(sys.modules[__name__]).pop("unrelated", None)

    @pytest.mark.parametrize(
        "row",
        [
            {"type": "a" + ".b" * 40_000, "message": "m"},
            {"type": "builtins." + "E" * 4_000_000, "message": "m"},
            {"type": f"{__name__}.BadCardError", "message": "m", "attributes": {"__notes__": "text"}},
            {"type": f"{__name__}.BadCardError", "message": "m", "attributes": {"__class__": "x", "args": 1}},
            {"type": f"{__name__}.BadCardError", "message": "m", "args": [{"$bytes": "not base64"}]},
            {"type": "builtins.ValueError", "message": "m", "notes": ["n"] * 100_000},
        ],
        ids=["dots", "long", "notes", "class", "bytes", "many notes"],
    )
    def test_hostile_rows_cost_nothing(self, row: dict[str, Any]) -> None:
        """A row that Holdfast did not write is read at once, and the exception can be raised, noted and printed."""
        raw = json.dumps(row)
        began = time.process_time()
        back = decode_error(raw)
        assert time.process_time() - began < 0.5
        back.add_note("more")
        assert len("".join(traceback.format_exception(back))) < 5_000_000
        assert encode_error(back)

    def test_a_chain_that_is_too_long_is_cut(self) -> None:
        """Nobody notices the recursion limits of the reader and of Python."""
        deep = '{"type":"builtins.ValueError","message":"m","cause":' * 30_000 + "null" + "}" * 30_000
        assert isinstance(decode_error(deep), Exception)
        wide = {
            "type": "builtins.ExceptionGroup",
            "message": "m",
            "args": ["m"],
            "group": [{"type": "builtins.KeyError", "message": "k"}] * 50_000,
        }
        back = decode_error(json.dumps(wide))
        assert isinstance(back, ExceptionGroup)
        assert len(back.exceptions) < 100

    @given(st.text())
    def test_messages_are_kept_in_a_form_that_every_store_accepts(self, text: str) -> None:
        """NUL and halves of characters are escaped."""
        line = describe_error(encode_error(ValueError(text + "\0\ud800")))
        assert "\0" not in line
        line.encode()

    def test_causes_groups_and_odd_exceptions(self) -> None:
        """Any exception can be written."""

        class OddError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no")

        error = ValueError("outer")
        error.__cause__ = KeyError("inner")
        cause = json.loads(encode_error(error))["cause"]
        assert (cause["type"], cause["message"]) == ("builtins.KeyError", "'inner'")
        group = ExceptionGroup("two", [ValueError("a"), OddError()])
        assert "ValueError: a; OddError: (its message cannot be shown" in describe_error(encode_error(group))
        assert isinstance(decode_error(encode_error(group)), Exception)
        huge = ValueError("x" * 100_000, b"\xff", object())
        assert len(encode_error(huge)) < 20_000

    def test_one_line_for_people(self) -> None:
        """It is `ValueError: bad card`, however many lines the message has. Text that is no error's JSON is shown as it
        is."""
        assert describe_error(encode_error(ValueError("bad\n card"))) == "ValueError: bad card"
        assert describe_error(encode_error(ValueError())) == "ValueError"
        assert describe_error("lost") == "Exception: lost"


def test_digests_distinguish_inputs() -> None:
    """A digest is sixteen bytes of blake2b."""
    assert len(codec.digest(b"a")) == 16
    assert codec.digest(b"a") != codec.digest(b"b")
