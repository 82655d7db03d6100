"""Durations: nodes add counts, the leader makes old counts fade, and steps that run too long are found."""

import pytest

from holdfast.store.operations import Hop
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import A, begin, call, running_call, succeeded

LIMIT = 100


async def test_counts_are_added_up(store: Store, other: Store) -> None:
    """It does not matter which node counted them."""
    await store.durations.add_durations([("step:a", 3, 2.0), ("step:a", 4, 1.0)])
    await other.durations.add_durations([("rest:w:start", -5, 1.0), ("step:a", 3, 0.5)])
    assert sorted(await store.durations.durations()) == [("step:a", 3, 2.5), ("step:a", 4, 1.0)]
    assert await store.durations.durations(["rest:w:start", "step:unknown"]) == [("rest:w:start", -5, 1.0)]


async def test_old_counts_fade(store: Store, tamper: Tamper) -> None:
    """Large counts are halved, and counts that do not grow any more are removed. A deposed leader changes nothing."""
    await store.durations.add_durations(
        [("step:a", 1, 100.0), ("step:a", 2, 1.0), ("step:b", 1, 50.0), ("step:c", 1, 1.0)]
    )
    moment = "0" if store.url.startswith("sqlite") else "to_timestamp(0)"
    tamper(f"UPDATE durations SET last_at = {moment} WHERE name = 'step:c'")
    epoch = await store.leader.lead(A, 60)
    assert epoch is not None
    wanted = {"attempts_max": 100.0, "keep_s": 3600.0, "rows_max": LIMIT}
    await store.durations.fade_durations(epoch + 1, **wanted)  # type: ignore[arg-type]
    assert len(await store.durations.durations()) == 4
    await store.durations.fade_durations(epoch, **wanted)  # type: ignore[arg-type]
    assert sorted(await store.durations.durations()) == [
        ("step:a", 1, 50.0),
        ("step:a", 2, 0.5),
        ("step:b", 1, 50.0),
    ]


async def test_there_are_never_too_many_counts(store: Store, tamper: Tamper) -> None:
    """Those that have not grown for the longest time are removed."""
    await store.durations.add_durations([("step:old", bucket, 1.0) for bucket in range(10)])
    moment = "1e9" if store.url.startswith("sqlite") else "to_timestamp(1e9)"
    tamper(f"UPDATE durations SET last_at = {moment}")
    await store.durations.add_durations([("step:new", bucket, 1.0) for bucket in range(10)])
    epoch = await store.leader.lead(A, 60)
    assert epoch is not None
    await store.durations.fade_durations(epoch, attempts_max=1e9, keep_s=1e10, rows_max=12)
    left = [name for name, _, _ in await store.durations.durations()]
    assert (left.count("step:new"), left.count("step:old")) == (10, 2)


async def test_overlong_is_what_runs_beyond_the_bound_of_its_name(store: Store, tamper: Tamper) -> None:
    """Steps without a twin come first, then the oldest, however many others run. Steps that wait, or have other names,
    are left out."""
    run_id = await begin(
        store, running_call(1), running_call(2), running_call(3, name="shop.other"), call(4), running_call(5)
    )
    earlier = "- 100" if store.url.startswith("sqlite") else "- interval '100 s'"
    tamper(f"UPDATE steps SET started_at = started_at {earlier} WHERE n IN (2, 3)")
    earlier = "- 50" if store.url.startswith("sqlite") else "- interval '50 s'"
    tamper(f"UPDATE steps SET started_at = started_at {earlier} WHERE n = 5")
    found = await store.durations.overlong_steps([("shop.charge", 30.0), ("shop.else", 0.0)], LIMIT)
    assert [(one.run_id, one.n, one.fence, one.agent) for one in found] == [
        (run_id, 2, 1, A),
        (run_id, 5, 1, A),
    ]
    assert not any(one.twinned for one in found)
    epoch = await store.leader.lead(A, 60)
    assert epoch is not None
    await store.twins.make_twins(epoch, [(run_id, 2, 1)])
    again = await store.durations.overlong_steps([("shop.charge", 30.0)], LIMIT)
    assert [(one.n, bool(one.twinned)) for one in again] == [(5, False), (2, True)]


async def test_the_landmark_of_a_run_is_what_it_asked_for_last(store: Store) -> None:
    """It does not matter whether that step has ended. A run that asked for nothing has no landmark."""
    one, none = await begin(store, running_call(1)), await begin(store)
    await store.batches.commit(
        A, [Hop(one, 1, outcomes=[succeeded(1, 1, 1)], issued=[running_call(2, name="shop.ship")])]
    )
    (found,) = await store.durations.landmarks([one, none, "unknown"])
    assert (found.run_id, found.n, found.name) == (one, 2, "shop.ship")
    assert found.issued_at == pytest.approx(await store.now(), abs=60)


async def test_what_fades_is_counted_by_rows_and_makes_room(store: Store, tamper: Tamper) -> None:
    """Counts are halved first. Then those that are too small are removed, and then the oldest beyond the limit."""
    await store.durations.add_durations([("step:a", 1, 200.0), ("step:a", 2, 0.08), ("step:b", 1, 0.01)])
    await store.durations.add_durations([("step:c", bucket, 1.0) for bucket in range(4)])
    earlier = "- 100" if store.url.startswith("sqlite") else "- interval '100 s'"
    tamper(f"UPDATE durations SET last_at = last_at {earlier} WHERE name = 'step:c' AND bucket < 2")
    epoch = await store.leader.lead(A, 60)
    assert epoch is not None
    changed = await store.durations.fade_durations(epoch, attempts_max=100.0, keep_s=3600.0, rows_max=3)
    assert sorted(await store.durations.durations()) == [
        ("step:a", 1, 100.0),
        ("step:c", 2, 1.0),
        ("step:c", 3, 1.0),
    ]
    assert changed == 2 + 2 + 2
    assert await store.durations.fade_durations(epoch, attempts_max=100.0, keep_s=3600.0, rows_max=3) == 0
