"""Gates: steps behind a breaker or a hold are not claimed, a wave has a fixed number of probes, and only the leader
decides."""

import asyncio

import pytest

from holdfast.breaker import BreakerChange
from holdfast.model import Breaker, BreakerState, HoldScope, Outcome, StepState
from holdfast.store.answers import Observation
from holdfast.store.operations import HandBack
from holdfast.store.store import Store
from tests.store.conftest import Tamper
from tests.store.made import (
    ENVIRONMENT,
    LONG_S,
    A,
    B,
    begin,
    broken,
    call,
    new_run,
    number_lane,
    running_call,
    step,
)

CLOSED, OPEN, PROBING = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.PROBING
WINDOW_S = 10.0


async def lane(store: Store, name: str = "shop.charge", depends: str | None = "stripe") -> int:
    return await number_lane(store, name, (), None, depends)


async def one(store: Store, name: str = "stripe") -> Breaker:
    (found,) = [row for row in await store.gates.breakers() if row.name == name]
    return found


async def opened(store: Store, name: str = "stripe", open_s: float = LONG_S) -> int:
    """Make a breaker that the leader has opened. Return the leader's epoch."""
    epoch = await store.leader.lead(A, LONG_S)
    assert epoch is not None
    await store.gates.observe([Observation(name, 0, 30, "ConnectionError: refused")], WINDOW_S)
    assert await store.gates.change_breaker(epoch, name, 0, BreakerChange(OPEN, 0, open_s, "30 of 30 failed"))
    return epoch


async def probing(store: Store, wave: int, name: str = "stripe") -> int:
    """Make a breaker that is probing, with a wave of this size. Return the leader's epoch."""
    epoch = await opened(store, name)
    assert await store.gates.change_breaker(epoch, name, 1, BreakerChange(PROBING, wave, 5.0, ""))
    return epoch


async def test_lanes_are_distinct_by_what_they_depend_on(store: Store) -> None:
    """A step that now depends on something else gets another lane. Without a declaration it depends on its own name."""
    first, second = await lane(store), await lane(store, depends=None)
    assert first != second
    assert await number_lane(store, "shop.charge", (), None, "stripe") == first
    assert {found.id: found.depends for found in await store.agents.lanes()} == {
        first: "stripe",
        second: "shop.charge",
    }


class TestBreakers:
    @pytest.mark.parametrize("state", [OPEN, PROBING])
    async def test_lanes_behind_a_breaker_are_not_claimed(self, store: Store, state: BreakerState) -> None:
        """They are not claimed while the breaker is open or probing. Other lanes are."""
        shut, free = await lane(store), await lane(store, "shop.print", None)
        run_id = await begin(store, call(1, lane=shut), call(2, lane=free))
        await (opened(store) if state is OPEN else probing(store, 5))
        claimed = await store.agents.claim_steps(B, [shut, free], 10)
        assert [found.n for found in claimed] == [2]
        assert (await step(store, run_id)).attempt == 0

    async def test_all_lanes_of_a_dependency_are_shut(self, store: Store) -> None:
        """Steps that share a dependency share its breaker."""
        lanes = [await lane(store, name) for name in ("shop.charge", "shop.refund")]
        await begin(store, call(1, lane=lanes[0]), call(2, lane=lanes[1]))
        epoch = await opened(store)
        assert await store.agents.claim_steps(B, lanes, 10) == []
        assert await store.gates.change_breaker(epoch, "stripe", 1, BreakerChange(CLOSED, note="well"))
        assert len(await store.agents.claim_steps(B, lanes, 10)) == 2

    async def test_a_wave_allows_a_fixed_number_of_probes(self, store: Store) -> None:
        """The oldest steps are claimed first, and no more than the allowance has left. Each claim lowers the
        allowance."""
        shut = await lane(store)
        await begin(store, *(call(n, lane=shut) for n in range(1, 8)))
        await probing(store, 5)
        first = await store.gates.claim_probes(B, "stripe", [shut], 2)
        assert ([found.n for found in first.steps], first.round) == ([1, 2], 2)
        assert (await one(store)).allowance == 3
        second = await store.gates.claim_probes(B, "stripe", [shut], 100)
        assert [found.n for found in second.steps] == [3, 4, 5]
        assert (await store.gates.claim_probes(B, "stripe", [shut], 100)).steps == []
        assert (await one(store)).allowance == 0

    async def test_an_open_or_closed_breaker_gives_no_probes(self, store: Store) -> None:
        """Neither does the breaker of another dependency, nor one that does not exist."""
        shut, other = await lane(store), await lane(store, "shop.print", "printer")
        await begin(store, call(1, lane=shut), call(2, lane=other))
        assert (await store.gates.claim_probes(B, "stripe", [shut], 9)).steps == []
        epoch = await opened(store)
        assert (await store.gates.claim_probes(B, "stripe", [shut], 9)).steps == []
        await store.gates.change_breaker(epoch, "stripe", 1, BreakerChange(PROBING, 9, 5.0, ""))
        assert (await store.gates.claim_probes(B, "stripe", [other], 9)).steps == []
        assert [
            found.n for found in (await store.gates.claim_probes(B, "stripe", [shut, other], 9)).steps
        ] == [1]

    async def test_the_allowance_is_never_overspent(self, store: Store, other: Store) -> None:
        """Several agents that claim at the same time, through any connections, together get the wave and not one
        more."""
        shut = await lane(store)
        await begin(store, *(call(n, lane=shut) for n in range(1, 61)))
        await probing(store, 23)

        async def greedy(through: Store, node: str) -> list[int]:
            got: list[int] = []
            while found := (await through.gates.claim_probes(node, "stripe", [shut], 3)).steps:
                got += [item.n for item in found]
            return got

        taken = await asyncio.gather(
            greedy(store, A), greedy(other, B), greedy(store, A), greedy(other, B), greedy(other, B)
        )
        numbers = [n for got in taken for n in got]
        assert len(numbers) == len(set(numbers)) == 23
        assert (await one(store)).allowance == 0

    async def test_a_reclaimed_node_gets_no_probes(self, store: Store, tamper: Tamper) -> None:
        """It cannot claim anything else, either."""
        shut = await lane(store)
        await begin(store, call(1, lane=shut))
        await probing(store, 1)
        tamper(f"UPDATE nodes SET retired_at = lease_until WHERE id = '{B}'")
        assert (await store.gates.claim_probes(B, "stripe", [shut], 9)).steps == []
        assert (await one(store)).allowance == 1

    async def test_outcomes_add_up_within_the_window(self, store: Store, tamper: Tamper) -> None:
        """The outcomes of all agents are added. When the window is over, counting begins anew."""
        await store.gates.observe(
            [Observation("stripe", 3, 5, "a"), Observation("mail", 0, 1, None)], WINDOW_S
        )
        await store.gates.observe([Observation("stripe", 1, 2, None)], WINDOW_S)
        row = await one(store)
        assert (row.state, row.ok, row.failed, row.error, row.round) == (CLOSED, 4, 7, "a", 0)
        past = "window_at - 60" if store.url.startswith("sqlite") else "window_at - interval '60 s'"
        tamper(f"UPDATE breakers SET window_at = {past}")
        assert (await store.gates.gates(WINDOW_S)).breakers == []
        await store.gates.observe([Observation("stripe", 1, 1, "b")], WINDOW_S)
        row = await one(store)
        assert (row.ok, row.failed, row.error) == (1, 1, "b")
        assert [found.name for found in (await store.gates.gates(WINDOW_S)).breakers] == ["stripe"]

    async def test_only_probes_of_this_round_count(self, store: Store) -> None:
        """While the breaker is not closed, only these probes say how the dependency is now."""
        epoch = await probing(store, 4)
        await store.gates.observe([Observation("stripe", 9, 9, "old")], WINDOW_S)
        await store.gates.observe(
            [Observation("stripe", 9, 9, "old", 1), Observation("stripe", 2, 1, "new", 2)], WINDOW_S
        )
        row = await one(store)
        assert (row.ok, row.failed, row.error) == (2, 1, "new")
        await store.gates.change_breaker(epoch, "stripe", 2, BreakerChange(PROBING, 8, 5.0, ""))
        row = await one(store)
        assert (row.round, row.ok, row.failed, row.wave, row.allowance) == (3, 0, 0, 8, 8)

    async def test_a_deposed_leader_changes_nothing(self, store: Store) -> None:
        """Its epoch is over, so it can neither change a breaker nor raise its allowance."""
        epoch = await probing(store, 4)
        shut = await lane(store)
        await begin(store, call(1, lane=shut))
        await store.gates.claim_probes(B, "stripe", [shut], 1)
        before = await one(store)
        await store.leader.resign(A)
        assert await store.leader.lead(B, LONG_S) == epoch + 1
        assert not await store.gates.change_breaker(epoch, "stripe", 2, BreakerChange(CLOSED))
        assert not await store.gates.give_back_probes(epoch, "stripe", 2, 1)
        assert await one(store) == before
        assert await store.gates.change_breaker(epoch + 1, "stripe", 2, BreakerChange(CLOSED))

    async def test_a_decision_about_an_older_round_changes_nothing(self, store: Store) -> None:
        """An operator has changed it since, or this leader itself before it was paused."""
        epoch = await opened(store)
        await store.gates.force_breaker("stripe", OPEN, "ada", "they asked for it")
        assert not await store.gates.change_breaker(epoch, "stripe", 1, BreakerChange(PROBING, 1, 5.0, ""))
        assert not await store.gates.change_breaker(epoch, "stripe", 2, BreakerChange(PROBING, 1, 5.0, ""))
        assert (await one(store)).forced

    async def test_lost_probes_can_be_taken_again(self, store: Store) -> None:
        """The allowance never exceeds the wave."""
        epoch = await probing(store, 2)
        shut = await lane(store)
        await begin(store, call(1, lane=shut), call(2, lane=shut))
        await store.gates.claim_probes(B, "stripe", [shut], 9)
        assert await store.gates.give_back_probes(epoch, "stripe", 2, 1)
        assert (await one(store)).allowance == 1
        assert await store.gates.give_back_probes(epoch, "stripe", 2, 9)
        assert (await one(store)).allowance == 2

    async def test_the_leader_sees_what_runs_and_what_waits(self, store: Store) -> None:
        """It sees how many steps began in this round and still run, and whether a due step waits."""
        shut, free = await lane(store), await lane(store, "shop.print", None)
        now = ENVIRONMENT.now()
        run_id = await begin(store, running_call(1, lane=shut), running_call(2, lane=free))
        assert await store.gates.breaker_looks(WINDOW_S) == []
        epoch = await probing(store, 2)
        (look,) = await store.gates.breaker_looks(WINDOW_S)
        assert (look.in_flight, look.waiting, look.breaker.state) == (0, False, PROBING)
        await begin(
            store, call(1, lane=shut), call(2, lane=shut, priority=-5), call(3, lane=shut, ready_at=now + 900)
        )
        assert (await store.gates.breaker_looks(WINDOW_S))[0].waiting
        taken = (await store.gates.claim_probes(B, "stripe", [shut], 1)).steps
        (look,) = await store.gates.breaker_looks(WINDOW_S)
        assert (look.in_flight, look.waiting) == (1, True)
        taken += (await store.gates.claim_probes(B, "stripe", [shut], 1)).steps
        (look,) = await store.gates.breaker_looks(WINDOW_S)
        assert (look.in_flight, look.waiting) == (2, False)
        await store.batches.commit(B, [HandBack(taken[0].run_id, taken[0].n, taken[0].fence)])
        (look,) = await store.gates.breaker_looks(WINDOW_S)
        assert (look.in_flight, look.waiting) == (1, True)
        await store.gates.change_breaker(epoch, "stripe", 2, BreakerChange(PROBING, 4, 5.0, ""))
        assert (await store.gates.breaker_looks(WINDOW_S))[0].in_flight == 0
        await store.batches.commit(A, [Outcome(run_id, 1, StepState.SUCCEEDED, b"1", None, now, 1)])
        assert await broken(store) == set()

    async def test_what_an_operator_forces_stays_until_it_is_reset(self, store: Store) -> None:
        """That is so for an open and for a closed one. Outcomes are not counted meanwhile. A reset breaker begins to
        probe."""
        shut = await lane(store)
        await begin(store, call(1, lane=shut))
        row = await store.gates.force_breaker("stripe", OPEN, "ada", "they move house")
        assert (row.state, row.forced, row.actor, row.note) == (OPEN, True, "ada", "they move house")
        assert await store.agents.claim_steps(B, [shut], 9) == []
        again = await store.gates.reset_breaker("stripe", "ada", "")
        assert again is not None
        assert (again.state, again.forced, again.wave, again.allowance) == (PROBING, False, 1, 1)
        await store.gates.force_breaker("stripe", CLOSED, "ada", "I know better")
        await store.gates.observe([Observation("stripe", 0, 99, "x")], WINDOW_S)
        assert (await one(store)).failed == 0
        assert len(await store.agents.claim_steps(B, [shut], 9)) == 1
        again = await store.gates.reset_breaker("stripe", "ada", "")
        assert again is not None
        assert (again.state, again.forced) == (CLOSED, False)
        assert await store.gates.reset_breaker("nobody", "ada", "") is None

    async def test_every_act_is_in_the_journal(self, store: Store) -> None:
        """The journal says who did what to which breaker, and why. Of the waves only the first is in it."""
        epoch = await probing(store, 1)
        await store.gates.change_breaker(epoch, "stripe", 2, BreakerChange(PROBING, 2, 5.0, ""))
        await store.gates.change_breaker(
            epoch, "stripe", 3, BreakerChange(CLOSED, note="3 of 3 probes went well")
        )
        await store.gates.force_breaker("stripe", OPEN, "ada", "maintenance")
        await store.gates.reset_breaker("stripe", "ada", "over")
        entries = [
            (entry.actor, entry.verb, entry.note) for entry in reversed(await store.reads.journal(None))
        ]
        assert entries == [
            ("supervisor", "breaker open", "stripe: 30 of 30 failed"),
            ("supervisor", "breaker probing", "stripe"),
            ("supervisor", "breaker closed", "stripe: 3 of 3 probes went well"),
            ("ada", "breaker open", "stripe: by hand: maintenance"),
            ("ada", "breaker reset", "stripe: over"),
        ]


SCOPES = [
    (HoldScope.WORKFLOW, "shop.order"),
    (HoldScope.STEP, "shop.charge"),
    (HoldScope.DEPENDENCY, "stripe"),
    (HoldScope.NAMESPACE, "acme"),
    (HoldScope.ALL, ""),
]


class TestHolds:
    @pytest.mark.parametrize(("scope", "value"), SCOPES)
    async def test_what_is_held_is_not_claimed_until_it_is_released(
        self, store: Store, scope: HoldScope, value: str
    ) -> None:
        """A hold covers a workflow, a step, a dependency, a namespace or everything. What it does not cover goes on."""
        mine, free = await lane(store), await lane(store, "shop.print", None)
        inside = await begin(store, call(1, lane=mine), run=new_run(namespace="acme"))
        outside = await begin(store, call(1, lane=free), run=new_run(workflow="shop.other"))
        assert await store.gates.add_hold(scope, value, "ada", "wait for me")
        claimed = await store.agents.claim_steps(B, [mine, free], 9)
        assert [found.run_id for found in claimed] == ([] if scope is HoldScope.ALL else [outside])
        assert await store.gates.remove_hold(scope, value, "ada", "")
        assert inside in [found.run_id for found in await store.agents.claim_steps(B, [mine, free], 9)]

    @pytest.mark.parametrize(("scope", "value"), SCOPES)
    async def test_probes_are_held_too(self, store: Store, scope: HoldScope, value: str) -> None:
        """A hold keeps steps from beginning in any way."""
        mine = await lane(store)
        await begin(store, call(1, lane=mine), run=new_run(namespace="acme"))
        await probing(store, 3)
        await store.gates.add_hold(scope, value, "ada", "")
        assert (await store.gates.claim_probes(B, "stripe", [mine], 9)).steps == []
        await store.gates.remove_hold(scope, value, "ada", "")
        assert len((await store.gates.claim_probes(B, "stripe", [mine], 9)).steps) == 1

    async def test_a_hold_exists_once_and_says_who_and_why(self, store: Store) -> None:
        """A second hold changes nothing, and neither does releasing what is not held. The journal has only the acts
        that changed something."""
        assert await store.gates.add_hold(HoldScope.NAMESPACE, "acme", "ada", "unpaid")
        assert not await store.gates.add_hold(HoldScope.NAMESPACE, "acme", "bob", "me too")
        (hold,) = await store.gates.holds()
        assert (hold.scope, hold.value, hold.actor, hold.note) == (
            HoldScope.NAMESPACE,
            "acme",
            "ada",
            "unpaid",
        )
        assert hold.at == pytest.approx(await store.now(), abs=60)
        assert [found.value for found in (await store.gates.gates(WINDOW_S)).holds] == ["acme"]
        assert await store.gates.remove_hold(HoldScope.NAMESPACE, "acme", "bob", "paid")
        assert not await store.gates.remove_hold(HoldScope.NAMESPACE, "acme", "bob", "paid")
        entries = [
            (entry.actor, entry.verb, entry.note) for entry in reversed(await store.reads.journal(None))
        ]
        assert entries == [
            ("ada", "hold", "namespace acme: unpaid"),
            ("bob", "release", "namespace acme: paid"),
        ]

    @pytest.mark.parametrize("how", ["run", "workflow", "namespace"])
    async def test_held_rows_at_the_head_of_a_lane_hide_none_behind_them(
        self, store: Store, how: str
    ) -> None:
        """However many steps of held runs come first, a claim finds the first step that may begin."""
        for _ in range(30):
            run_id = await begin(
                store, call(1, priority=5), run=new_run(workflow="shop.bulk", namespace="acme")
            )
            if how == "run":
                await store.operators.hold(run_id, "ada", "")
        if how == "workflow":
            await store.gates.add_hold(HoldScope.WORKFLOW, "shop.bulk", "ada", "")
        if how == "namespace":
            await store.gates.add_hold(HoldScope.NAMESPACE, "acme", "ada", "")
        behind = await begin(store, call(1))
        assert [found.run_id for found in await store.agents.claim_steps(B, [1], 1)] == [behind]

    async def test_a_late_step_behind_a_gate_is_no_backlog(self, store: Store, tamper: Tamper) -> None:
        """It does not wait for an agent. What it waits for has its own alert."""
        mine = await lane(store)
        await begin(
            store, call(1, lane=mine, ready_at=ENVIRONMENT.now() - 600), run=new_run(namespace="acme")
        )
        assert [late.what for late in await store.alerts.late_steps(60, 9)] == ["shop.charge"]
        for scope, value in SCOPES:
            await store.gates.add_hold(scope, value, "ada", "")
            assert await store.alerts.late_steps(60, 9) == []
            await store.gates.remove_hold(scope, value, "ada", "")
        await opened(store)
        assert await store.alerts.late_steps(60, 9) == []
