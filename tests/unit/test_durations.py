"""What is learned from durations: quantiles, when a run will end, what a straggler is, and which steps get a twin."""

import json
import math
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import Config
from holdfast.durations import (
    FULL,
    KEPT_MAX,
    DurationCounts,
    eta,
    eta_names,
    landmark_of,
    rest_name,
    sketches,
    span,
    start_name,
    step_name,
)
from holdfast.model import AlertKind, Landmark, Lane, Level, NodeRow, RunRow, RunState
from holdfast.namespaces import ALL
from holdfast.scheduler.landmarks import Landmarks
from holdfast.sketch import GROWTH, Sketch, bucket_of, middle_of
from holdfast.store.answers import Overlong
from holdfast.supervisor import hedge, stragglers


def sketch_of(*seconds: float) -> Sketch:
    durations = DurationCounts()
    for one in seconds:
        durations.add("x", one)
    return sketches(durations.take(10_000))["x"]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.34, "340 ms"), (0.9996, "1.0 s"), (9.94, "9.9 s"), (9.96, "10 s"), (65, "65 s"), (720, "12 min")],
)
def test_a_duration_in_words_has_two_or_three_digits(seconds: float, words: str) -> None:
    """Never `10.0 s` between `9.9 s` and `10 s`."""
    assert span(seconds) == words


@given(st.floats(1e-6, 1e9))
def test_a_buckets_middle_is_near_what_is_in_it(seconds: float) -> None:
    """Within 5 %, from a microsecond to thirty years."""
    assert middle_of(bucket_of(seconds)) == pytest.approx(seconds, rel=math.sqrt(GROWTH) - 1 + 1e-9)


@given(st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=200), st.floats(0, 1))
def test_a_quantile_is_near_the_true_one(seconds: list[float], q: float) -> None:
    """The difference is at most the width of a bucket."""
    true = sorted(seconds)[max(0, math.ceil(q * len(seconds) - 1e-9) - 1)]
    found = sketch_of(*seconds).quantile(q)
    assert found == pytest.approx(true, rel=0.11)


def test_sketches_are_merged_by_adding() -> None:
    """Counting apart and adding gives the same as counting together."""
    dice = random.Random(1)
    one, two = ([dice.lognormvariate(0, 2) for _ in range(500)] for _ in range(2))
    apart = DurationCounts(), DurationCounts()
    for counted, seconds in zip(apart, (one, two), strict=True):
        for each in seconds:
            counted.add("x", each)
    merged = sketches([*apart[0].take(10_000), *apart[1].take(10_000)])["x"]
    together = sketch_of(*one, *two)
    assert merged.total == together.total == 1000
    assert [merged.quantile(q / 10) for q in range(11)] == [together.quantile(q / 10) for q in range(11)]


def test_nothing_counted_says_nothing() -> None:
    """There is neither a quantile nor a remaining time."""
    assert Sketch({}).quantile(0.5) is None
    assert Sketch({}).left(1.0) is None


def test_what_is_left_is_that_of_those_that_took_longer() -> None:
    """Half took 10 s and half 100 s. After 20 s it is one of the latter, and after 200 s nobody knows."""
    sketch = sketch_of(*[10.0] * 50, *[100.0] * 50)
    assert sketch.left(0.0) == pytest.approx(10, rel=0.05)
    assert sketch.left(20.0) == pytest.approx(80, rel=0.1)
    assert sketch.left(200.0) is None


def test_a_busy_node_counts_some_with_their_weight() -> None:
    """It samples beyond some hundred attempts since it last reported, until it reports again."""
    durations = DurationCounts()
    for _ in range(FULL):
        assert durations.stride == 1
        durations.add("x", 1.0)
    assert durations.stride > 1
    durations.take(10)
    assert durations.stride == 1


def test_what_waits_to_be_reported_is_bounded() -> None:
    """Names beyond the limit are not kept, and the size of one report is bounded, too."""
    durations = DurationCounts()
    for number in range(KEPT_MAX + 100):
        durations.add(f"x{number}", 1.0)
    first = durations.take(100)
    assert len(first) == 100
    assert len(first) + len(durations.take(10**6)) == KEPT_MAX
    assert durations.take(10) == []


def test_landmarks_are_exact_at_first_and_few_in_all() -> None:
    """The first 31 steps are distinguished, and of a hundred thousand about two hundred."""
    assert [landmark_of(place) for place in range(1, 32)] == list(range(1, 32))
    assert len({landmark_of(place) for place in range(1, 100_000)}) < 250
    assert all(0.93 * place < landmark_of(place) <= place for place in range(1, 5_000))


def run_of(state: RunState = RunState.RUNNING, **more: object) -> RunRow:
    values = dict.fromkeys(RunRow.__struct_fields__) | {
        "id": "r", "workflow": "shop.order", "state": state, "generation": 1, "base_n": 0, "started_at": 100.0
    }  # fmt: skip
    return RunRow(**(values | more))  # type: ignore[arg-type]


def test_the_eta_is_what_is_left_at_the_newest_landmark() -> None:
    """The time since then is subtracted. If no run passed the landmark before, the time of whole runs is used."""
    mark = Landmark("r", 2, "ship", 110.0)
    known = {
        start_name("shop.order"): sketch_of(*[60.0] * 10),
        rest_name("shop.order", "ship", 2): sketch_of(*[20.0] * 10),
    }
    found = eta(run_of(), mark, known, 115.0)
    assert found is not None
    assert found.left_s == pytest.approx(15, rel=0.1)
    assert found.samples == 10
    other = eta(run_of(), Landmark("r", 2, "never seen", 110.0), known, 115.0)
    assert other is not None
    assert other.left_s == pytest.approx(45, rel=0.1)


def test_no_eta_where_nothing_is_known() -> None:
    """There were too few runs before it, all of them were faster, or the run is not under way."""
    few = {start_name("shop.order"): sketch_of(60.0, 60.0)}
    assert eta(run_of(), None, few, 101.0) is None
    fast = {start_name("shop.order"): sketch_of(*[1.0] * 100)}
    assert eta(run_of(), None, fast, 200.0) is None
    assert eta(run_of(RunState.HELD), None, fast, 100.1) is None
    assert eta_names(run_of(generation=2), None) == []


# --- stragglers -----------------------------------------------------------------------------------------------------


def overlong(run_id: str = "r", name: str = "pay", **more: object) -> Overlong:
    values = {"n": 1, "fence": 1, "key": name, "lane": 1, "agent": "a", "started_at": 0.0, "twinned": False}
    return Overlong(run_id=run_id, name=name, **(values | more))  # type: ignore[arg-type]


def test_a_straggler_runs_for_twice_what_99_of_100_took() -> None:
    """It also runs for longer than the floor. Without enough attempts there is no bound."""
    config = Config(straggler_floor_s=1.0)
    assert stragglers.bound_of(sketch_of(*[10.0] * 29), config) is None
    assert stragglers.bound_of(sketch_of(*[10.0] * 100), config) == pytest.approx(20, rel=0.05)
    assert stragglers.bound_of(sketch_of(*[0.01] * 100), config) == 1.0
    known = {step_name("pay"): sketch_of(*[10.0] * 100), step_name("new"): sketch_of(1.0)}
    assert stragglers.bounds_of(known, config) == {"pay": pytest.approx(20, rel=0.05)}


def test_stragglers_of_one_step_are_one_alert() -> None:
    """It is about the oldest, and says how many there are. Its level is only `info`."""
    late = [overlong("r1"), overlong("r2"), overlong("r3", "ship")]
    pay, ship = stragglers.judge(late, {"pay": 20.0, "ship": 1.0}, 30.0)
    assert (pay.kind, pay.level, pay.run_id, pay.times) == (AlertKind.STRAGGLER, Level.INFO, "r1", 2)
    assert "has been running for 30 s, and such steps usually take at most 20 s" in pay.message
    assert (ship.run_id, ship.times) == ("r3", 1)


# --- twins ----------------------------------------------------------------------------------------------------------


def node(name: str, *labels: str, hedged: tuple[str, ...] = ("pay",), **more: object) -> NodeRow:
    offers = {"steps": list(hedged), "hedged": list(hedged), "labels": list(labels)}
    values = {"host": "h", "pid": 1, "roles": "agent", "capacity": 1, "started_at": 0.0, "lease_until": 100.0}
    return NodeRow(id=name, offers=json.dumps(offers), **(values | {"retired_at": None} | more))  # type: ignore[arg-type]


def rich(name: str = "pay", room: float = 10.0) -> dict[str, hedge.Allowance]:
    allowance = hedge.Allowance()
    allowance.room = room
    return {name: allowance}


def test_a_twin_needs_another_live_agent_that_can_take_it() -> None:
    """The step's own agent does not count, nor one that is dead or leaving, has not the label, or does not hedge the
    step."""
    mine = node("a")
    draining = node("e")
    offers_draining = json.loads(draining.offers) | {"pulse": {"draining": True}}
    others = [
        node("b", lease_until=1.0),
        node("c", retired_at=5.0),
        node("d", roles="scheduler"),
        node("e", hedged=("ship",)),
        NodeRow("f", "h", 1, "agent", json.dumps(offers_draining), 1, 0.0, 100.0, None),
    ]
    offers = hedge.offers_of([mine, *others], now=50.0)
    assert [offer.agent for offer in offers["pay"]] == ["a"]
    late = [(1.0, overlong())]
    assert hedge.choose(late, offers, {}, rich()) == []
    able = hedge.offers_of([mine, node("g", "gpu")], now=50.0)
    assert hedge.choose(late, able, {1: ("gpu",)}, rich()) == [overlong()]
    assert hedge.choose(late, able, {1: ("tpu",)}, rich()) == []
    assert hedge.choose([(1.0, overlong(twinned=True))], able, {}, rich()) == []


def test_a_bound_needs_enough_attempts_and_has_a_floor() -> None:
    """The bound is half more than what 95 of 100 attempts took."""
    assert hedge.bound_of(sketch_of(*[1.0] * 19), Config()) is None
    assert hedge.bound_of(sketch_of(*[1.0] * 98, 50.0, 50.0), Config()) == pytest.approx(1.5, rel=0.05)
    assert hedge.bound_of(sketch_of(*[0.001] * 50), Config()) == Config().hedge_floor_s


def test_twins_are_a_share_of_the_attempts() -> None:
    """They are gained as attempts are counted, spent one by one, and saved up only to a limit."""
    allowance = hedge.Allowance()
    allowance.gain(100, 0.04, at=0.0)
    assert [allowance.spend() for _ in range(5)] == [True] * 4 + [False]
    allowance.gain(125, 0.04, at=1.0)
    assert [allowance.spend() for _ in range(2)] == [True, False]
    allowance.gain(60, 0.04, at=2.0)  # halved meanwhile
    assert not allowance.spend()
    allowance.gain(110, 0.04, at=3.0)
    assert [allowance.spend() for _ in range(3)] == [True, True, False]
    for at in range(4, 100):
        allowance.gain(110 + 25 * at, 0.04, at=float(at))
    assert allowance.room <= hedge.BURST + 1


def test_a_busy_step_may_use_what_it_gained_lately() -> None:
    """At a thousand attempts a second there are forty twins a second, however the counts arrive."""
    allowance, spent = hedge.Allowance(), 0
    for at in range(60):
        allowance.gain(1000 * at, 0.04, at=float(at))
        while allowance.spend():
            spent += 1
    assert spent == 59 * 40


def test_a_new_leader_does_not_use_what_its_predecessor_may_have_used() -> None:
    """This holds however many attempts are counted when it begins."""
    allowance = hedge.Allowance()
    allowance.gain(10_000, 0.04, at=0.0)
    assert allowance.room == hedge.BURST


def test_an_agent_for_all_namespaces_offers_a_step_wherever_there_is_a_lane_of_it() -> None:
    """It says what it hedges by bare names. One for a single namespace says stored names."""
    lanes = [Lane(n, name, (), None, name) for n, name in enumerate(("pay", "acme//pay", "acme//ship"))]
    everywhere, here = node("a"), node("b", hedged=("acme//pay",))
    offers = json.loads(everywhere.offers) | {"namespaces": [ALL]}
    everywhere = msgspec.structs.replace(everywhere, offers=json.dumps(offers))
    found = hedge.offers_of([everywhere, here], 50.0, lanes)
    assert {name: [one.agent for one in who] for name, who in found.items()} == {
        "pay": ["a"],
        "acme//pay": ["a", "b"],
    }


def test_when_everything_is_slow_twins_stay_few() -> None:
    """If all steps are beyond their bound at once, there are no more twins than the allowance has room for."""
    offers = hedge.offers_of([node("a"), node("b")], now=50.0)
    slow = [(9.0, overlong(f"r{number}")) for number in range(1000)]
    assert len(hedge.choose(slow, offers, {}, rich(room=10.4))) == 10


def test_what_is_scarce_is_kept_for_the_latest() -> None:
    """Steps that are a little late get a twin only while there is plenty of room. The latest come first."""
    offers = hedge.offers_of([node("a"), node("b")], now=50.0)
    little = [(1.1, overlong(f"r{number}")) for number in range(20)]
    room = rich(room=10.0)
    chosen = hedge.choose([*little, (5.0, overlong("late")), (3.0, overlong("later"))], offers, {}, room)
    assert [step.run_id for step in chosen[:2]] == ["late", "later"]
    assert len(chosen) == 6
    assert hedge.choose([(3.0, overlong("x"))], offers, {}, room) == [overlong("x")]
    assert hedge.choose(little, offers, {}, room) == []
    now_and_then = hedge.lateness([overlong(started_at=10.0)], {"pay": 20.0}, 70.0)
    assert now_and_then == [(3.0, overlong(started_at=10.0))]


def test_a_landmark_is_the_place_in_its_generation() -> None:
    """A run that continues as new counts its steps anew, so its second generation has the landmarks of the first one.
    The first step at a landmark counts."""
    counts = DurationCounts()
    landmarks = Landmarks("w", 20, 5.0)
    landmarks.issued(21, "pay", 10.0)
    landmarks.issued(22, "pay", 11.0)
    landmarks.issued(21, "pay", 12.0)
    landmarks.count(counts, 13.0)
    taken = {name: bucket for name, bucket, _ in counts.take(10)}
    assert taken == {
        start_name("w"): bucket_of(8.0),
        rest_name("w", "pay", 1): bucket_of(3.0),
        rest_name("w", "pay", 2): bucket_of(2.0),
    }
