"""What authors write: steps, workflows, signals and `here`, inside and outside of a run."""

import asyncio
import contextvars
import functools
import sys
import threading
import types
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, timedelta
from typing import Any

import pytest

import holdfast
from holdfast import (
    Retry,
    Signal,
    WorkflowError,
    continue_as_new,
    here,
    now,
    publish,
    random,
    set_progress,
    step,
    uuid4,
    workflow,
)
from holdfast.codec import Shape
from holdfast.config import DEFAULT
from holdfast.errors import DefinitionError, InvalidInput, UnknownWorkflow
from holdfast.policy import DEFAULT_RETRY
from holdfast.workflow import outside, registry
from holdfast.workflow.here import CurrentAttempt, here_var
from tests.unit.recorder import Recorder


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test an empty registry."""
    monkeypatch.setattr(registry, "steps", {})
    monkeypatch.setattr(registry, "workflows", {})


def test_the_public_names_are_few() -> None:
    """A newcomer can read the list; adding to it is a decision."""
    assert holdfast.__all__ == sorted(holdfast.__all__)
    assert set(holdfast.__all__) == {
        "Conflict", "Holdfast", "HoldfastError", "HoldfastWarning", "InvalidInput", "Refused", "Retry", "RetryIn", "Run", "RunFailed", "RunInfo",
        "RunState", "RunView", "Secret", "Signal", "StepFailed", "StepInfo", "StepTimeout", "Stop", "Update", "UpdateFailed", "WorkflowError", "ask", "continue_as_new",
        "here", "keep", "now", "patched", "publish", "random", "saga", "set_progress", "step", "undo_with", "uuid4", "workflow",
    }  # fmt: skip
    assert len(holdfast.__all__) <= 40
    assert set(holdfast.__all__) <= set(dir(holdfast))
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    with pytest.raises(AttributeError):
        holdfast.nothing  # noqa: B018  the access is the test


class TestSteps:
    """Declaring and calling steps."""

    def test_a_bare_decorator_takes_the_defaults(self) -> None:
        """Its name is made from file and function; it has three attempts and no timeout."""

        @step
        async def charge(card: str) -> int:
            """Take money."""
            return 1

        assert (
            charge.name
            == "tests.unit.test_workflow.TestSteps.test_a_bare_decorator_takes_the_defaults.charge"
        )
        assert (charge.is_async, charge.retry, charge.timeout_s, charge.needs) == (
            True,
            DEFAULT_RETRY,
            None,
            (),
        )
        assert (charge.priority, charge.isolate, charge.doc, charge.__name__) == (
            0,
            False,
            "Take money.",
            "charge",
        )
        assert charge.__doc__ == "Take money."
        assert registry.steps[charge.name] is charge

    def test_settings(self) -> None:
        """Authors may give numbers or timedeltas, a policy or a count, and labels in any order."""

        @step(
            name="pay",
            retry=5,
            timeout=timedelta(minutes=1),
            needs=["gpu", "eu", "gpu"],
            priority=2,
            isolate=True,
        )
        def charge(card: str) -> int:
            return 1

        assert (charge.name, charge.retry, charge.timeout_s) == ("pay", Retry(attempts=5), 60.0)
        assert (charge.needs, charge.priority, charge.isolate, charge.is_async) == (
            ("eu", "gpu"),
            2,
            True,
            False,
        )

    def test_using_changes_a_copy(self) -> None:
        """The step itself keeps its settings. None removes a timeout. The copy is of the same type."""

        @step(timeout=5)
        async def charge(card: str) -> int:
            return 1

        other = charge.using(timeout=None, retry=Retry(attempts=9), key="k", priority=4, needs=("gpu",))
        assert (other.timeout_s, other.retry.attempts, other.priority, other.needs) == (None, 9, 4, ("gpu",))
        assert (other.name, other.fn, other.shape) == (charge.name, charge.fn, charge.shape)
        assert (charge.timeout_s, charge.retry, charge.needs) == (5.0, DEFAULT_RETRY, ())
        assert type(other) is type(charge)

    async def test_outside_of_a_run_a_step_is_its_function(self) -> None:
        """`async def` runs in this loop, `def` in a thread. `fn` is the bare function."""

        @step
        async def double(n: int) -> int:
            return 2 * n

        @step
        def where() -> bool:
            return threading.current_thread() is threading.main_thread()

        assert await double(4) == 8
        assert await where() is False
        assert where.fn() is True
        assert await double.map([1, 2, 3], limit=1) == [2, 4, 6]

    async def test_map_outside_of_a_run_tolerates_too(self) -> None:
        """The same rules apply on any loop."""

        @step
        async def work(n: int, odd: bool) -> int:
            if odd:
                raise ValueError(n)
            return n

        found = await work.map([(1, True), (2, False)], tolerate=1)
        assert [str(value) for value in found] == ["1", "2"]
        assert await work.map([]) == []
        with pytest.raises(ValueError, match="1"):
            await work.map([(1, True), (2, False)])
        settings: list[dict[str, Any]] = [{"limit": 0}, {"tolerate": 1.5}, {"tolerate": -1}]
        for wrong in settings:
            with pytest.raises(DefinitionError, match="map"):
                await work.map([(1, False)], **wrong)

    def test_types_may_be_defined_below(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the types of a shape do not exist yet, it is made when it is first needed."""
        module = types.ModuleType("below")
        monkeypatch.setitem(sys.modules, "below", module)
        exec(
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "from holdfast import step\n"
            "@step\n"
            "async def charge(card: Card) -> Card: return card\n"
            "@dataclass\n"
            "class Card: number: str\n",
            module.__dict__,
        )
        raw, _ = module.charge.shape.checked((module.Card("1"),), {})
        assert raw == b'{"card":{"number":"1"}}'
        assert isinstance(module.charge.shape, Shape)

    def test_a_closure_may_be_filled_later(self) -> None:
        """A nested step may use a function that is defined below it."""

        @step
        async def first() -> int:
            return second()

        def second() -> int:
            return 2

        assert asyncio.run(first()) == 2

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"timeout": 0}, "above 0"),
            ({"timeout": "1 minute"}, "seconds as a number"),
            ({"retry": "often"}, "a Retry, or the number"),
            ({"retry": 0}, "at least 1"),
            ({"needs": "gpu"}, r"needs=\['gpu'\]"),
            ({"priority": 1.5}, "whole number from 0 to 9"),
            ({"name": ""}, "printable"),
            ({"name": "$x"}, r"begin with \$"),
            ({"isolate": True}, "make it a plain def"),
        ],
    )
    def test_wrong_settings_are_refused_at_import(self, settings: dict[str, Any], message: str) -> None:
        """They raise a DefinitionError that says what is expected."""
        with pytest.raises(DefinitionError, match=message):

            @step(**settings)
            async def charge() -> None: ...

    def test_only_functions_that_return_once(self) -> None:
        """Generators, classes, and lambdas without a name are refused."""

        def many() -> Iterator[int]:
            yield 1

        for wrong in (many, int, lambda: 1):
            with pytest.raises(DefinitionError):
                step(wrong)
        assert step(name="one")(lambda: 1).name == "one"

    @pytest.mark.parametrize("decorator", [step, workflow])
    def test_what_belongs_to_a_class_is_refused_where_it_is_written(self, decorator: Any) -> None:
        """A run calls by name and without an object: a method would get its first argument as `self`."""

        async def plain(self: object, card: str) -> str:
            return card

        wraps: tuple[Any, ...] = (lambda fn: fn, staticmethod, classmethod, property)
        for wrap in wraps:

            async def charge(self: object, card: str) -> str:
                return card

            charge.__qualname__ = "Till.charge"
            with pytest.raises(DefinitionError, match=r"belongs to a class.*function of the module"):
                decorator(wrap(charge))
        with pytest.raises(DefinitionError, match="belongs to a class"):

            class Till:
                @decorator  # type: ignore[untyped-decorator]
                async def charge(self, card: str) -> str:
                    return card

        assert decorator(plain).fn is plain  # a function inside a function does not belong to a class

    @pytest.mark.parametrize("decorator", [step, workflow])
    def test_what_is_no_function_is_refused_with_what_to_write(self, decorator: Any) -> None:
        """What another decorator made of a function is refused, too."""

        async def charge(card: str) -> str:
            return card

        async def many() -> AsyncIterator[int]:
            yield 1

        @functools.wraps(charge)
        def blocks(*args: Any) -> Any:
            return charge(*args)

        @functools.wraps(charge)
        async def passes_on(*args: Any) -> Any:
            return await charge(*args)

        for wrong, said in (
            ("charge", r"name='charge'"),
            (many, "generator"),
            (functools.partial(charge, "x"), "is no function"),
            (print, "is no function"),
            (blocks, "would never be awaited"),
            (step(name="a step")(charge), "is a step already"),
            (workflow(name="a flow")(charge), "is a workflow already"),
        ):
            with pytest.raises(DefinitionError, match=said):
                decorator(wrong)
        assert decorator(passes_on).shape.parameters[0].name == "card"


class TestRegistry:
    """Names are how runs find their code."""

    def test_two_functions_of_one_name_are_refused(self) -> None:
        """The later one would take over the runs of the first."""

        @step(name="charge")
        async def one() -> None: ...

        with pytest.raises(DefinitionError, match=r"defined twice.*give one of them name="):

            @step(name="charge")
            async def two() -> None: ...

    def test_a_reloaded_function_replaces_itself(self) -> None:
        """The same file and function again is a reload."""

        def declare() -> Any:
            @step
            async def charge() -> None: ...

            return charge

        first, second = declare(), declare()
        assert first is not second
        assert registry.steps[first.name] is second

    def test_workflows_are_found_by_name_and_newest_version(self) -> None:
        """The full name or its last part finds a workflow. Version 10 is newer than 9."""
        made = {}
        for version in ("9", "10", "1.5"):

            @workflow(name="shop.order", version=version)
            async def order() -> None: ...

            made[version] = order

        @workflow(name="bar.order")
        async def other() -> None: ...

        assert registry.find_workflow("shop.order") is made["10"]
        with pytest.raises(UnknownWorkflow, match=r"bar\.order or shop\.order"):
            registry.find_workflow("order")
        del registry.workflows["bar.order", "1"]
        assert registry.find_workflow("order") is made["10"]
        with pytest.raises(UnknownWorkflow, match=r"known: shop\.order"):
            registry.find_workflow("nothing")


class TestWorkflows:
    """Declaring workflows."""

    async def test_outside_of_a_run_a_workflow_is_its_function(self) -> None:
        """It can be tested as plain asyncio."""

        @step
        async def double(n: int) -> int:
            return 2 * n

        @workflow
        async def flow(n: int) -> int:
            return sum(await asyncio.gather(double(n), double(n)))

        assert await flow(2) == 8
        assert (flow.version, flow.timeout_s, flow.priority, flow.id, flow.tags) == ("1", None, 0, None, {})

    def test_using(self) -> None:
        """Settings for one run, on a copy."""

        @workflow(timeout=timedelta(days=1), priority=3)
        async def flow() -> None: ...

        one = flow.using(id="order-42", tags={"team": "a"}, timeout=None, priority=5)
        assert (one.id, one.tags, one.timeout_s, one.priority) == ("order-42", {"team": "a"}, None, 5)
        assert (flow.id, flow.tags, flow.timeout_s, flow.priority) == (None, {}, 86400.0, 3)
        with pytest.raises(DefinitionError, match="printable"):
            flow.using(id="")

    def test_only_async_functions(self) -> None:
        """A plain `def` is refused, and so is a version that is no text."""

        def sync() -> None: ...

        with pytest.raises(DefinitionError, match="async def"):
            workflow(sync)  # type: ignore[arg-type]  # wrong on purpose
        with pytest.raises(DefinitionError, match="version"):

            @workflow(version=2)  # type: ignore[call-overload, untyped-decorator]  # wrong on purpose
            async def flow() -> None: ...


class TestSignals:
    """Sending from outside."""

    async def test_send_goes_through_the_open_door(self) -> None:
        """The value is checked against the type, and then handed to the open Holdfast."""
        sent: list[object] = []

        class Office:
            config = DEFAULT

            async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None:
                sent.append((run_id, name, payload, key))

            async def call_update(
                self, run_id: str, name: str, payload: bytes, key: str | None, patience_s: float | None
            ) -> bytes:
                raise NotImplementedError

            async def output_of(self, run_id: str) -> bytes | None:
                raise NotImplementedError

        paid = Signal("paid", int)
        with pytest.raises(WorkflowError, match="needs an open Holdfast"):
            await paid.send("run-1", 5)
        office = Office()
        outside.enter(office)
        await paid.send("run-1", 5, key="event-7")
        outside.enter(later := Office())
        outside.leave(later)
        await paid.send("run-1", 6)  # of two that were open, the other one
        outside.leave(office)
        assert sent.pop() == ("run-1", "paid", b"6", None)
        assert sent == [("run-1", "paid", b"5", "event-7")]
        with pytest.raises(InvalidInput, match="signal paid: expected `int`, got `str`"):
            await paid.send("run-1", "5")  # type: ignore[arg-type]  # wrong on purpose

    async def test_waiting_is_for_workflows(self) -> None:
        """Outside there is no run that a signal could be sent to."""
        with pytest.raises(WorkflowError, match="in a workflow only"):
            await Signal("paid", int).wait()
        with pytest.raises(DefinitionError):
            Signal("$paid", int)


class TestAmbient:
    """Functions that work in workflow code, and what they do elsewhere."""

    def test_outside_of_a_run_time_and_chance_are_real(self) -> None:
        """The same helper function works in a step."""
        assert now().tzinfo is UTC
        assert uuid4().version == 4
        assert uuid4() != uuid4()
        assert random().random() != random().random()

    def test_what_needs_a_run_says_so(self) -> None:
        """Outside of a run they raise an error that says so."""
        with pytest.raises(WorkflowError, match="in a workflow only"):
            set_progress(0.5)
        with pytest.raises(WorkflowError, match="in a workflow only"):
            publish("a", 1)
        with pytest.raises(WorkflowError, match="in a workflow only"):
            continue_as_new()

    def test_progress_is_a_share(self) -> None:
        """It is a number from 0 to 1."""

        @workflow
        async def flow() -> None:
            set_progress(50)

        assert "a number from 0 to 1" in Recorder(flow).begin().failure()


class TestHere:
    """What a running step knows."""

    def attempting(self, **more: Any) -> tuple[CurrentAttempt, list[object]]:
        heard: list[object] = []

        async def on_save(raw: bytes) -> None:
            await asyncio.sleep(0)
            heard.append(raw)

        at = CurrentAttempt(
            run_id="run-1",
            key="run-1/charge",
            attempt=2,
            step="shop.charge",
            on_beat=lambda progress, note: heard.append((progress, note)),
            on_save=on_save,
            **more,
        )
        return at, heard

    async def test_it_describes_the_attempt(self) -> None:
        """It has the key, run, attempt and step. Beats go to the agent, and a cancellation is seen."""
        at, heard = self.attempting()
        here_var.set(at)
        assert (here.key, here.run_id, here.attempt, here.step) == ("run-1/charge", "run-1", 2, "shop.charge")
        here.beat(0.4, "half")
        here.beat()
        assert heard == [(0.4, "half"), (None, "")]
        before = here.cancelled
        at.cancelled = True
        assert (before, here.cancelled) == (False, True)
        with pytest.raises(WorkflowError):
            here.beat(40)

    async def test_save_is_durable_when_awaited_and_written_either_way(self) -> None:
        """This is so in an `async def` step."""
        at, heard = self.attempting(saved_raw=b'{"page":3}')
        here_var.set(at)
        assert here.saved == {"page": 3}
        assert here.load(dict[str, int]) == {"page": 3}
        await here.save({"page": 4})
        assert heard == [b'{"page":4}']
        here.save({"page": 5})
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard[-1] == b'{"page":5}'
        assert here.saved == {"page": 5}

    async def test_save_blocks_in_a_thread(self) -> None:
        """In a `def` step it returns when the checkpoint is durable."""
        at, heard = self.attempting(loop=asyncio.get_running_loop())
        here_var.set(at)

        def work() -> int:
            here.save([1])
            return len(heard)

        assert await asyncio.to_thread(work) == 1

    def test_a_bare_call_has_a_key_of_its_own(self) -> None:
        """Steps can be tested without a run: it is the first attempt, with a stable key and checkpoints in memory."""

        def bare() -> None:
            assert here.key == here.key
            assert (here.attempt, here.saved, here.cancelled) == (1, None, False)
            here.beat(0.5)
            here.save([1])
            assert here.saved == [1]

        contextvars.Context().run(bare)

    def test_it_is_not_for_workflow_code(self) -> None:
        """A workflow has no attempts."""

        @workflow
        async def flow() -> str:
            return here.key

        assert "`here` is for steps" in Recorder(flow).begin().failure()
