"""The fixture `sim`: Holdfast for one test, in virtual time."""

import asyncio
import subprocess
import sys
import time
from datetime import date, timedelta
from typing import Any

import pytest

from holdfast.errors import HoldfastError, InvalidInput, RunCancelled, RunFailed, RunStuck, RunUndone, Stop
from holdfast.model import RunState
from holdfast.testing import NotEnded, Sim
from holdfast.workflow import outside
from tests.testing import kit_flows as flows
from tests.testing.kit_flows import Charge, charge, mail, paid


@pytest.fixture(autouse=True)
def clean_log() -> None:
    flows.log.clear()


class TestStubs:
    def test_a_step_without_a_stub_is_executed(self, sim: Sim) -> None:
        """The author's own code runs, with `here` as in production."""
        run = sim.start(flows.order, "tok")
        sim.advance(days=1)
        assert run.result() == "thanks for 300"
        assert flows.log == [f"charge tok {run.id}::charge", "mail thanks for 300"]

    def test_a_value_stands_in_for_the_step(self, sim: Sim) -> None:
        """The workflow gets the value, and the step's code does not run."""
        sim.stub(charge, Charge("c1", 5))
        run = sim.start(flows.order, "tok")
        sim.advance(days=1)
        assert run.result() == "thanks for 5"
        assert flows.log == ["mail thanks for 5"]

    def test_outcomes_are_taken_one_after_the_other(self, sim: Sim) -> None:
        """Exceptions are raised, and retried by the step's own policy; back-offs take no real time. The last one stays."""
        sim.stub(
            charge, ConnectionError("busy"), ConnectionError, lambda card, cents: Charge(card, cents + 1)
        )
        before = sim.now
        run = sim.start(flows.order, "tok")
        sim.advance(days=1)
        assert run.result() == "thanks for 301"
        assert [call.attempt for call in sim.calls(charge)] == [1, 2, 3]
        assert sim.calls(charge)[0].args == ("tok", 300)
        assert sim.calls(charge)[0].key == f"{run.id}::charge"
        assert (sim.now - before).total_seconds() == 86_400 + 60 + 60  # the longest delay of a policy, twice

    def test_a_stub_may_be_a_coroutine_function(self, sim: Sim) -> None:
        """It may also sleep, which takes no real time."""

        async def later(text: str) -> str:
            await asyncio.sleep(60)
            return text.upper()

        sim.stub(mail, later)
        sim.stub(charge)
        run = sim.start(flows.order, "tok")
        sim.advance(days=1)
        assert run.result() == "THANKS FOR 1"  # a charge that was made up from its type

    def test_a_value_of_the_wrong_type_is_an_error_of_the_test(self, sim: Sim) -> None:
        """It is raised at once, and says which part of the value is wrong."""
        with pytest.raises(InvalidInput, match=r"charge\(\) result: id"):
            sim.stub(charge, Charge(5, 5))  # type: ignore[arg-type]

    def test_a_failure_undoes_what_was_done(self, sim: Sim) -> None:
        """Undos are steps like others: a test can stub them, and read their calls."""
        sim.stub(charge, Charge("c1", 300))
        run = sim.start(flows.sells, "tok")
        with pytest.raises(RunUndone, match="out of stock"):
            run.result()
        assert run.state == "undone"
        assert [call.args for call in sim.calls(flows.refund)] == [(Charge("c1", 300), "tok", 300)]

    def test_steps_that_need_labels_processes_or_threads_run_here(self, sim: Sim) -> None:
        """There is one thread and one process, and every label is there."""
        assert sim.start(flows.gallery).result() == [f"page {n} attempt 1" for n in range(3)]
        assert sim.start(flows.saves).result() == [1, 42]


class TestTime:
    def test_months_pass_in_no_time(self, sim: Sim) -> None:
        """Each wait ends at its own time."""
        begun = time.monotonic()
        run = sim.start(flows.monthly, 24)
        sim.advance(days=24 * 30)
        assert run.result() == [f"{day}T08:00:00+00:00" for day in _days(24)]
        assert time.monotonic() - begun < 20

    def test_a_run_that_waits_says_for_what(self, sim: Sim) -> None:
        """`result()` does not wait for ever: it says what the run waits for, and how a test lets it go on."""
        run = sim.start(flows.order, "tok")
        with pytest.raises(NotEnded, match=r"has not ended\. It sleeps .* In a test: `sim\.advance\(…\)`"):
            run.result()
        assert run.state == "running"
        assert run.why() == "It sleeps (sleep) for another 24 h."
        waits = sim.start(flows.awaits)
        assert waits.published == {"phase": "waiting"}
        with pytest.raises(NotEnded, match=r"`sim\.send\(run, signal, value\)`"):
            waits.result()

    def test_a_timeout_comes_with_time(self, sim: Sim) -> None:
        """This holds for the timeout of a wait, of a step and of a run."""
        run = sim.start(flows.awaits)
        sim.advance(days=2.9)
        assert run.state == "running"
        sim.advance(hours=3)
        with pytest.raises(RunFailed, match="TimeoutError"):
            run.result()
        with pytest.raises(RunFailed, match="did not complete within 30 s"):
            sim.start(flows.patient.using(id="slow"), 31).result()
        hurries = sim.start(flows.hurries)
        sim.advance(60)
        with pytest.raises(RunFailed, match="deadline"):
            hurries.result()

    @pytest.mark.parametrize("begin", [0.895412, 1e-7, 0.1 + 0.2, 123.456789])
    def test_a_wait_ends_with_the_time_it_lasts(self, sim: Sim, begin: float) -> None:
        """This holds whenever it began: a float's rounding does not make it late."""
        sim.advance(begin)
        run = sim.start(flows.order, "tok")
        sim.advance(days=1)
        assert run.result() == "thanks for 300"

    def test_time_only_goes_forward(self, sim: Sim) -> None:
        """`advance` needs a time above 0."""
        with pytest.raises(HoldfastError, match="above 0"):
            sim.advance(minutes=-1)


class TestSignals:
    def test_a_signal_moves_the_run(self, sim: Sim) -> None:
        """A signal that is sent again with the same key arrives once."""
        run = sim.start(flows.awaits, 5)
        sim.send(run, paid, 10, key="event-1")
        assert run.result() == 15

    def test_a_run_can_be_cancelled(self, sim: Sim) -> None:
        """What it did is undone."""
        run = sim.start(flows.order, "tok")
        sim.cancel(run)
        with pytest.raises(RunCancelled):
            run.result()
        assert flows.log[-1] == f"refund {run.id}::charge real"

    def test_a_run_that_failed_can_be_retried(self, sim: Sim) -> None:
        """The retry goes on under an id of its own, and does again what was undone."""
        sim.stub(charge, Stop("no money"), Charge("c2", 300))
        run = sim.start(flows.order, "tok")
        assert run.state == "failed"
        again = sim.retry(run)
        sim.advance(days=1)
        assert again.id == f"{run.id}~2"
        assert again.result() == "thanks for 300"

    def test_a_run_can_be_forked(self, sim: Sim) -> None:
        """The fork has the result that was set, and never executes that step."""
        run = sim.start(flows.order, "tok")
        fork = sim.fork(run, set={"charge": {"id": "c2", "cents": 7}})
        sim.advance(days=1)
        assert (run.result(), fork.result()) == ("thanks for 300", "thanks for 7")
        assert len(sim.calls(charge)) == 1

    def test_many_runs_are_acted_on(self, sim: Sim) -> None:
        """A plan is made and carried out by a client, which can do all that one can do elsewhere."""
        runs = [sim.start(flows.order, "tok") for _ in range(3)]
        plan = sim.ask(lambda hf: hf.plan("cancel", state="running"))
        assert plan.preview.sentence == "3 runs would be cancelled"
        assert sim.ask(lambda hf: hf.act(plan.id).carry_out()).done == 3
        assert {run.state for run in runs} == {RunState.CANCELLED}


class TestDeath:
    def test_a_killed_process_is_replaced(self, sim: Sim) -> None:
        """The run goes on in another one, from where it was."""
        run = sim.start(flows.order, "tok")
        sim.kill_agent()
        sim.advance(days=1)
        assert run.result() == "thanks for 300"
        assert len(sim.calls(charge)) == 1

    def test_a_process_can_die_in_the_middle_of_a_step(self, sim: Sim) -> None:
        """It is killed from inside the step. No one records how the step ended, and it runs again, with the same
        key."""

        def dies_once(text: str) -> str:
            if len(sim.calls(mail)) == 1:
                sim.kill_agent()
            return text

        sim.stub(mail, dies_once)
        run = sim.start(flows.parent, "tok")
        assert run.result() == "real"
        assert [call.attempt for call in sim.calls(mail)] == [1, 2]
        assert len({call.key for call in sim.calls(mail)}) == 1

    def test_an_unknown_outcome_is_undone_as_such(self, sim: Sim) -> None:
        """The process dies, and the next attempt fails. The undo gets no result, because the outcome is unknown."""

        def dies_once(card: str, cents: int) -> Charge:
            if len(sim.calls(charge)) == 1:
                sim.kill_agent()
            raise Stop("declined")

        sim.stub(charge, dies_once)
        run = sim.start(flows.order, "tok")
        assert run.state == "undone"
        assert flows.log == [f"refund {run.id}::charge ?"]

    def test_a_step_that_kills_every_process_waits_for_a_person(self, sim: Sim) -> None:
        """The step goes into quarantine as in production, and the run is stuck. It is not tried for ever."""

        def kills(text: str) -> str:
            sim.kill_agent()
            return text

        sim.stub(mail, kills)
        sim.stub(charge)
        run = sim.start(flows.parent, "tok")
        sim.advance(minutes=1)
        assert run.state == "stuck"
        assert "quarantine" in run.why()
        assert len(sim.calls(mail)) < 10
        with pytest.raises(RunStuck):
            run.result()


class TestSeed:
    def test_the_same_seed_gives_the_same_ids_and_times(self) -> None:
        """Everything depends only on the test and the seed."""

        def simulated(seed: int) -> tuple[Any, ...]:
            with Sim(seed) as sim:
                sim.stub(charge, ConnectionError(), Charge("c", 1))
                run = sim.start(flows.order, "tok")
                sim.advance(days=1)
                return run.id, run.result(), sim.now, sim.calls(charge)

        assert simulated(3) == simulated(3)
        assert simulated(3)[0] != simulated(4)[0]

    def test_it_is_for_plain_tests(self, sim: Sim) -> None:
        """A simulation inside an event loop raises an error that says so."""

        async def test() -> None:
            sim.start(flows.order, "tok")

        with pytest.raises(HoldfastError, match="write the test as `def`"):
            asyncio.run(test())


def test_only_the_plugin_needs_pytest() -> None:
    """The kit works without pytest."""
    code = (
        "import sys; from holdfast.testing import Sim; from tests.testing import kit_flows as flows\n"
        "with Sim() as sim:\n"
        "    sim.stub(flows.charge); run = sim.start(flows.sells_for_good, 'tok'); print(run.result())\n"
        "assert not {'pytest', 'asyncpg'} & set(sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out == "sold\n"


def _days(count: int) -> list[str]:
    return [str(date(2027, 1, 15) + timedelta(days=30 * (n + 1))) for n in range(count)]


def test_other_settings_are_the_same_simulation() -> None:
    """What `using` returns has the same runs and the same clock, and is closed with the `Sim` it was made from."""
    with Sim() as sim:
        run = sim.using(failures=False).start(flows.order.using(id="one"), "tok")
        sim.advance(days=1)
        assert run.result() == "thanks for 300"
        assert sim.start(flows.order.using(id="one"), "tok").result() == "thanks for 300"
    assert outside.current() is None


class TestLogs:
    def test_what_is_logged_can_be_asserted(self, sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
        """A test reads what the run and its steps have logged, also after the process was killed."""
        caplog.set_level("INFO")
        run = sim.start(flows.talks, 3)
        sim.kill_agent()
        sim.advance(days=1)
        assert run.result() == 3
        assert [(line.step, line.message) for line in run.logs()] == [
            (None, "begins"),
            ("counted", "counting to 3"),
            (None, "slept"),
        ]
        assert [line.message for line in run.logs("counted")] == ["counting to 3"]

    def test_a_crash_anywhere_is_harmless(self, sim: Sim, caplog: pytest.LogCaptureFixture) -> None:
        """What is logged goes with commits that are there anyway, so there is no boundary more than without."""
        caplog.set_level("ERROR")
        silent = sim.using(trust_keys=True).crash_everywhere(flows.talks, 3)
        caplog.set_level("INFO")
        talking = sim.using(trust_keys=True).crash_everywhere(flows.talks, 3)
        assert len(talking.boundaries) == len(silent.boundaries) > 5
        assert [one.kind for one in talking.findings] == [one.kind for one in silent.findings]
