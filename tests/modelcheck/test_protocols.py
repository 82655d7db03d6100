"""A search of every state of two protocols: no rule is broken in any of them, and each can still reach an end.

The numbers of states are printed (`pytest tests/modelcheck -s`) and must not be too small, because a search that saw
little proves little. And a specification with a planted bug must break a rule, because a rule that no bug can break is
useless.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.model import StepState
from holdfast.store.claims import LOSSES_NEVER
from holdfast.store.operations import HandBack
from tests.chaos.world import publish
from tests.differential.spec import Lease, Run, Spec, Step
from tests.modelcheck import claims, leaders
from tests.modelcheck.claims import Budget
from tests.modelcheck.search import Found, Violation, explore


def search_claims(spec: Spec, **how: Any) -> Found:
    first = claims.beginning(spec, **how)
    return explore(first, claims.moves, key=claims.World.key, check=claims.check, is_end=claims.is_end)


def search_leaders(spec: Spec, **how: Any) -> Found:
    first = leaders.beginning(spec, **how)
    return explore(first, leaders.moves, key=leaders.World.key, check=leaders.check, is_end=leaders.is_end)


def counted(what: str, search: Callable[[], Found]) -> Found:
    begun = time.perf_counter()
    found = search()
    publish(f"model check {what}", found._asdict())
    print(
        f"\n{what}: {found.states} states, {found.moves} moves, {found.ends} ends, "
        f"{time.perf_counter() - begun:.1f} s"
    )
    return found


@pytest.mark.parametrize(
    ("name", "how", "states"),
    [
        ("failures", {"budget": Budget(crashes=1, losses=1, expiries=0, errors=1, hand_backs=1)}, 15_000),
        (
            "leases that end",
            {"budget": Budget(crashes=1, losses=1, expiries=1, errors=0, hand_backs=0)},
            40_000,
        ),
        (
            "two schedulers",
            {"schedulers": 2, "budget": Budget(crashes=1, losses=1, expiries=0, errors=0, hand_backs=0)},
            4_000,
        ),
        (
            "two branches",
            {"steps": 2, "budget": Budget(crashes=1, losses=1, expiries=0, errors=0, hand_backs=0)},
            25_000,
        ),
    ],
)
def test_the_claim_protocol_keeps_its_rules(name: str, how: dict[str, Any], states: int) -> None:
    """Nodes claim, renew, reclaim and report, while processes die, answers get lost, writes come late or twice, and
    leases end. I1 to I3, I7 to I10 and I12 are true after every move, and from every state the run can end."""
    found = counted(f"claims {name}", lambda: search_claims(Spec(), **how))
    assert found.states >= states
    assert found.ends


def test_leader_takeover_keeps_its_rules() -> None:
    """There are three supervisors, whose leases end and who act late. No write of a deposed leader is accepted, no two
    lead in the same epoch, no node with a valid lease is reclaimed, and the step can always end."""
    found = counted("leaders", lambda: search_leaders(Spec(), expiries=3))
    assert found.states >= 5_000
    assert found.ends


# --- planted bugs ------------------------------------------------------------------------------------------------------


class NoFence(Spec):
    """An agent's write names the step but not its fence."""

    def _current_step(self, run_id: str, n: int, fence: int | None) -> Step:
        return self.steps[run_id, n]

    def _end(self, step: Step, by: Any, state: StepState, **changes: Any) -> None:
        self._put(step._replace(state=state, fence=step.fence + 1, **changes))


class NoRunFence(Spec):
    """A scheduler's hop is accepted whoever owns the run by now."""

    def _hop(self, node: str, op: Any) -> None:
        op.fence = self.runs[op.run_id].fence
        super()._hop(node, op)


class ClaimKeepsFence(Spec):
    """A claim does not raise the fence, so writes of the step's former agent are accepted."""

    def claim_steps(
        self,
        node: str,
        lanes: Sequence[int],
        limit: int,
        suspect_losses: int = LOSSES_NEVER,
        suspects: int = 0,
        runs: Sequence[str] | None = None,
    ) -> list[tuple[str, int, int, int]]:
        found = []
        claimed = super().claim_steps(node, lanes, limit, suspect_losses, suspects, runs)
        for run_id, n, fence, attempt in claimed:
            self._put(self.steps[run_id, n]._replace(fence=fence - 1))
            found.append((run_id, n, fence - 1, attempt))
        return found


class ReclaimKeepsFence(Spec):
    """When the leader reclaims an agent's steps, their fences do not rise, so the agent can still write."""

    def reclaim(self, node: str, epoch: int, losses_max: int) -> tuple[int, int, int] | None:
        before = dict(self.steps)
        done = super().reclaim(node, epoch, losses_max)
        for key, step in before.items():
            if self.steps[key] != step:
                self._put(self.steps[key]._replace(fence=step.fence))
        return done


class UncountedClaim(Spec):
    """Attempts are counted when they end, so an attempt that kills its process is never counted."""

    def claim_steps(
        self,
        node: str,
        lanes: Sequence[int],
        limit: int,
        suspect_losses: int = LOSSES_NEVER,
        suspects: int = 0,
        runs: Sequence[str] | None = None,
    ) -> list[tuple[str, int, int, int]]:
        found = super().claim_steps(node, lanes, limit, suspect_losses, suspects, runs)
        for run_id, n, _, attempt in found:
            self._put(self.steps[run_id, n]._replace(attempt=attempt - 1))
        return found


class ForgetsLostReply(Spec):
    """If the answer to a claim gets lost, nobody hands the step back. Its agent is alive and does not know that it has
    it."""

    def reconcile(
        self, node: str, runs: Sequence[tuple[str, int]], steps: Sequence[tuple[str, int, int]]
    ) -> tuple[int, int]:
        return 0, 0


class LostOnReclaim(Spec):
    """The leader frees the runs of a node that is gone, but not its steps."""

    def reclaim(self, node: str, epoch: int, losses_max: int) -> tuple[int, int, int] | None:
        steps = dict(self.steps)
        done = super().reclaim(node, epoch, losses_max)
        self.steps = steps
        return done


class FreedRunsSleep(Spec):
    """A run whose owner died before it asked for anything stays as it is, and nothing wakes it."""

    def _free(self, run: Run) -> None:
        self._put(run._replace(owner=None, fence=run.fence + 1))


class EagerReclaim(Spec):
    """Every node that has something counts as gone."""

    def dead_nodes(self) -> set[str]:
        agents = {step.agent for step in self.steps.values() if step.state is StepState.RUNNING}
        return super().dead_nodes() | {name for name in agents if name is not None}


class ReclaimedNodesClaim(Spec):
    """A node that was reclaimed may claim again, although nobody looks at its lease any more."""

    def is_live(self, node: str) -> bool:
        return node in self.nodes

    def dead_nodes(self) -> set[str]:
        return {name for name, node in self.nodes.items() if not node.retired and node.lease_until < self.now}


class NoEpoch(Spec):
    """The leader's writes do not name its epoch."""

    def leads(self, epoch: int) -> bool:
        lease = self.leases.get("leader")
        return lease is not None and lease.expires_at > self.now


class NoExpiry(Spec):
    """The leader's writes name its epoch, but do not check that its lease is still valid."""

    def leads(self, epoch: int) -> bool:
        lease = self.leases.get("leader")
        return lease is not None and lease.epoch == epoch


class EpochStays(Spec):
    """A new leader goes on with the epoch of the one before."""

    def lead(self, node: str, lease_h: float, lease: str = "leader") -> int | None:
        seen = self.leases.get(lease)
        epoch = super().lead(node, lease_h, lease)
        if epoch is not None and seen is not None:
            self.leases[lease] = Lease(node, seen.epoch, self.now + lease_h)
            return seen.epoch
        return epoch


class TwoLeaders(Spec):
    """Every node that asks to lead becomes the leader."""

    def lead(self, node: str, lease_h: float, lease: str = "leader") -> int | None:
        seen = self.leases.get(lease, Lease(None, 0, 0.0))
        self.leases[lease] = Lease(node, seen.epoch + (seen.holder != node), self.now + lease_h)
        return self.leases[lease].epoch


SMALL = Budget(crashes=1, losses=1, expiries=0, errors=0, hand_backs=0)


@pytest.mark.parametrize(
    "bug",
    [
        NoFence,
        NoRunFence,
        ClaimKeepsFence,
        ReclaimKeepsFence,
        UncountedClaim,
        ForgetsLostReply,
        LostOnReclaim,
        FreedRunsSleep,
        EagerReclaim,
        ReclaimedNodesClaim,
    ],
)
def test_a_bug_in_the_claim_protocol_is_caught(bug: type[Spec]) -> None:
    """Each planted bug breaks a rule, or leaves a state from which no end can be reached."""
    # For a node that lives on after it was reclaimed, a lease must end. For two owners, there must be two schedulers.
    budget = SMALL
    if bug in {ReclaimedNodesClaim, NoRunFence}:
        budget = SMALL._replace(expiries=1, crashes=int(bug is ReclaimedNodesClaim))
    with pytest.raises(Violation) as caught:
        search_claims(bug(), schedulers=2 if bug is NoRunFence else 1, budget=budget)
    print(f"\n{bug.__name__}: {caught.value}")


@pytest.mark.parametrize("bug", [NoEpoch, NoExpiry, EpochStays, TwoLeaders, EagerReclaim])
def test_a_bug_in_the_takeover_is_caught(bug: type[Spec]) -> None:
    """The same is true for the protocol of leaders."""
    with pytest.raises(Violation) as caught:
        search_leaders(bug(), supervisors=2)
    print(f"\n{bug.__name__}: {caught.value}")


def test_the_search_knows_the_verbs() -> None:
    """The worlds use the specification's own verbs, which refuse what is stale."""
    world = claims.beginning(Spec())
    assert world.spec.commit("a0", HandBack("r", 1, 7)) == "fenced"
