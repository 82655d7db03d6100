"""Declaring the undo of a step."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from holdfast import Retry, Stop, codec, step
from holdfast.codec import is_unsure
from holdfast.decider.effect import undo_input
from holdfast.errors import DefinitionError, InvalidInput, UndoMissing
from holdfast.workflow import registry
from holdfast.workflow.step import Step
from holdfast.workflow.undo import UNDO_RETRY, Undo


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test an empty registry."""
    monkeypatch.setattr(registry, "steps", {})
    monkeypatch.setattr(registry, "workflows", {})


@dataclass
class Charge:
    id: str
    cents: int


def declared() -> Step[[str, int], Charge]:
    @step(timeout=30, needs=["bank"], priority=2)
    async def charge(card: str, cents: int = 5) -> Charge:
        return Charge(card, cents)

    return charge


class TestDeclaring:
    def test_an_undo_is_a_step_of_its_own(self) -> None:
        """It is registered under its own name, and the step that it undoes names it."""
        charge = declared()

        @charge.undo
        async def refund(done: Charge | None, card: str, cents: int) -> str:
            return f"{done and done.id} {card} {cents}"

        assert isinstance(refund, Undo)
        assert registry.steps[refund.name] is refund
        assert charge.undo_name == refund.name
        assert charge.undone_by is refund
        assert refund.undo_name is None
        assert repr(refund).startswith("<undo ")
        assert asyncio.run(refund(Charge("a", 1), "c", 2)) == "a c 2"

    def test_it_is_patient_and_otherwise_like_its_step(self) -> None:
        """Its retry is its own, and its priority is the highest. Timeout and needs are the step's unless they are given."""
        charge = declared()

        @charge.undo
        def refund(done: Charge | None, card: str, cents: int) -> None: ...

        assert refund.retry is UNDO_RETRY
        assert (refund.timeout_s, refund.needs, refund.priority) == (30.0, ("bank",), 9)

    def test_settings_may_be_given(self) -> None:
        """As for a step."""
        charge = declared()

        @charge.undo(name="billing.refund", retry=Retry(attempts=2), timeout=None, needs=[], priority=0)
        async def refund(done: Charge | None, card: str, cents: int = 7) -> None: ...

        assert (refund.name, refund.retry.attempts, refund.timeout_s) == ("billing.refund", 2, None)
        assert (refund.needs, refund.priority) == ((), 0)
        assert charge.undo_name == "billing.refund"

    def test_undo_failed_is_part_of_the_recorded_name(self) -> None:
        """The recorded name says which undo it is, and whether it undoes a step that failed."""

        @step(undo_failed=True)
        async def build(n: int) -> int:
            return n

        @build.undo(name="tear_down")
        async def tear_down(done: int | None, n: int) -> None: ...

        assert build.undo_name == "tear_down!"
        with pytest.raises(DefinitionError, match="ends in !"):

            @declared().undo(name="odd!")
            async def odd(done: Charge | None, card: str, cents: int) -> None: ...

    def test_undo_failed_may_name_exceptions(self) -> None:
        """It may be one class or a tuple; anything else is refused at import. The recorded name has no `!`: the agent
        that gets such an exception records that the outcome is unsure."""

        @step(undo_failed=(ConnectionError, TimeoutError))
        async def build(n: int) -> int:
            return n

        @build.undo(name="tear_down_some")
        async def tear_down(done: int | None, n: int) -> None: ...

        assert (build.undo_name, build.undo_failed) == ("tear_down_some", False)
        assert build.using(timeout=5).unsure_after == (ConnectionError, TimeoutError)
        for wrong in ("ConnectionError", (ConnectionError, 3), None):
            with pytest.raises(DefinitionError, match="undo_failed"):

                @step(undo_failed=wrong)  # type: ignore[arg-type]  # wrong on purpose
                async def odd(n: int) -> int:
                    return n

    def test_copies_made_before_it_have_it_too(self) -> None:
        """`using` copies the step, and its undo may be declared further down."""
        charge = declared()
        early = charge.using(timeout=5, needs=["gpu"])

        @charge.undo
        async def refund(done: Charge | None, card: str, cents: int) -> None: ...

        assert early.undo_name == refund.name == charge.using(key="x").undo_name
        assert refund.needs == ("bank",)

    def test_a_step_has_one(self) -> None:
        """The same function again is a reload. Another one is an error."""
        charge = declared()

        def declare() -> Any:
            @charge.undo
            async def refund(done: Charge | None, card: str, cents: int) -> None: ...

            return refund

        declare()
        again = declare()
        assert charge.undone_by is again
        with pytest.raises(DefinitionError, match=r"has two undos, .*refund and .*give_back"):

            @charge.undo
            async def give_back(done: Charge | None, card: str, cents: int) -> None: ...

    def test_an_undo_has_none(self) -> None:
        """An undo is retried until it works, or until a person decides."""
        charge = declared()

        @charge.undo
        async def refund(done: Charge | None, card: str, cents: int) -> None: ...

        with pytest.raises(DefinitionError, match="is an undo: it cannot have an undo itself"):
            refund.undo(lambda done: None)

    def test_a_step_called_undo_keeps_out_of_the_way(self) -> None:
        """Keys that begin with `undo:` belong to undos."""

        @step(name="ctrl.undo")
        async def undo(n: int) -> int:
            return n

        assert undo.using(key="x").label == "undo_:x"
        assert undo.label == "undo"


class TestSignature:
    def wrong(self, fn: Any, message: str) -> None:
        @step
        async def charge(card: str, *extra: int, cents: int, **more: str) -> Charge:
            return Charge(card, cents)

        with pytest.raises(DefinitionError, match=message):
            charge.undo(fn)
        assert charge.undo_name is None
        assert list(registry.steps) == [charge.name]

    def test_the_right_one_is_accepted(self) -> None:
        """An undo may have every kind of parameter."""

        @step
        async def charge(card: str, /, *extra: int, cents: int, **more: str) -> Charge:
            return Charge(card, cents)

        @charge.undo
        async def refund(
            done: Charge | None, card: str, /, *extra: int, cents: int, **more: str
        ) -> tuple[Any, ...]:
            return done, card, extra, cents, more

        raw, _ = charge.shape.checked(("tok", 1, 2), {"cents": 3, "why": "x"})
        bound = refund.shape.decode(undo_input(raw, b'{"id":"c","cents":3}', "run::charge"))
        assert asyncio.run(refund.shape.call(refund.fn, bound)) == (
            Charge("c", 3),
            "tok",
            (1, 2),
            3,
            {"why": "x"},
        )

    def test_a_difference_is_named(self) -> None:
        """The error comes at import, and names the difference."""

        def none() -> None: ...
        def only_kw(*, card: str) -> None: ...
        def renamed(done: Charge | None, c: str, *extra: int, cents: int, **more: str) -> None: ...
        def kind(done: Charge | None, card: str, /, *extra: int, cents: int, **more: str) -> None: ...
        def short(done: Charge | None, card: str, *extra: int) -> None: ...
        def loose(done: Charge | None, *args: Any, **more: Any) -> None: ...

        self.wrong(none, r"none\(\): its first parameter must take charge's result, or None")
        self.wrong(only_kw, r"its first parameter must take charge's result")
        self.wrong(renamed, r"renamed\(\): the second parameter must be 'card' like charge's, not 'c'")
        self.wrong(kind, r"'card' must be positional or keyword like charge's, not positional-only")
        self.wrong(short, r"short\(\): 'cents' is missing: after the result come charge's own parameters")
        self.wrong(loose, r"the second parameter must be 'card' like charge's, not 'args'")
        self.wrong(5, "takes a def or an async def")

    def test_one_parameter_more_is_an_error(self) -> None:
        """Nothing would give it a value."""
        charge = declared()

        async def refund(done: Charge | None, card: str, cents: int, reason: str = "") -> None: ...

        with pytest.raises(DefinitionError, match=r"refund\(\): 'reason' is no parameter of charge"):
            charge.undo(refund)

    def test_the_result_may_be_none(self) -> None:
        """An annotation that does not accept None is refused: the undo would fail just when it is needed."""
        charge = declared()

        async def refund(done: Charge, card: str, cents: int) -> None: ...

        with pytest.raises(DefinitionError, match=r"refund\(\): 'done' must accept None"):
            charge.undo(refund)  # type: ignore[arg-type]  # the claim

    def test_types_defined_further_down_are_found_later(self) -> None:
        """As for a step."""
        charge = declared()

        @charge.undo  # type: ignore[arg-type]  # only the order of definitions matters here
        async def refund(done: "Later | None", card: str, cents: int) -> None: ...

        @dataclass
        class Later:
            id: str

        refund._scope = {"Later": Later}
        bound: Any = refund.shape.decode(undo_input(b'{"card":"c","cents":1}', b'{"id":"x"}', "k"))
        assert bound.done == Later("x")


class TestInput:
    def test_the_recorded_bytes_are_enough(self) -> None:
        """The undo's own types read the result and the arguments, without the step's code."""
        charge = declared()

        @charge.undo
        async def refund(done: Charge | None, card: str, cents: int) -> None: ...

        raw, _ = charge.shape.checked(("tok",), {})
        bound: Any = refund.shape.decode(undo_input(raw, b'{"id":"c1","cents":5}', "run::charge"))
        assert (bound.done, bound.card, bound.cents) == (Charge("c1", 5), "tok", 5)
        assert refund.shape.decode(undo_input(raw, None, "run::charge")) == refund.shape.bind(
            (None, "tok", 5), {}
        )

    def test_a_parameter_that_came_later_needs_a_default(self) -> None:
        """Old rows do not have it."""
        charge = declared()

        @charge.undo
        async def refund(done: Charge | None, card: str, cents: int) -> None: ...

        with pytest.raises(InvalidInput, match=r"missing.*`cents`"):
            refund.shape.decode(undo_input(b'{"card":"tok"}', None, "k"))


def test_an_error_says_whether_the_effect_may_be_there() -> None:
    """It may be there if an attempt was lost or timed out, now or earlier. An error of the step's own says that it is
    not."""
    app = codec.encode_error(Stop("no"))
    assert not is_unsure(0, app)
    assert not is_unsure(0, None)
    assert not is_unsure(0, "not json")
    assert is_unsure(1, app)
    assert is_unsure(0, codec.encode_error(Stop("no"), unsure=True))
    assert is_unsure(0, codec.encode_error(TimeoutError(), ending="timed out"))
    assert is_unsure(0, codec.encode_error(ConnectionError(), ending="lost"))
    assert "unsure" not in msgspec.json.decode(app)


def test_the_error_of_a_missing_undo_says_what_to_do_next() -> None:
    """The operator reads it in `why`."""
    error = UndoMissing("billing.refund", "billing.charge")
    assert (error.undo, error.step) == ("billing.refund", "billing.charge")
    assert "deploy the code that declares it" in str(error)
