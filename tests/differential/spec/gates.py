"""Breakers and holds. Agents report outcomes and claim probes, the leader decides, and operators may overrule it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.breaker import BreakerChange
from holdfast.model import Breaker, BreakerState, HoldScope
from holdfast.store.answers import Observation
from tests.differential.spec.agents import Working
from tests.differential.spec.rows import LONG_AGO, SECOND


class Gating(Working):
    # --- agents -----------------------------------------------------------------------------------------------------

    def observe(self, tallies: Sequence[Observation], window_h: float) -> None:
        for tally in tallies:
            seen = self.breakers.get(tally.name)
            if tally.round is not None:
                if seen is not None and (seen.round, seen.state) == (tally.round, BreakerState.PROBING):
                    self._change(
                        seen,
                        ok=seen.ok + tally.ok,
                        failed=seen.failed + tally.failed,
                        error=tally.error or seen.error,
                    )
            elif seen is None:
                self.breakers[tally.name] = self._new_breaker(
                    tally.name, ok=tally.ok, failed=tally.failed, error=tally.error
                )
            elif seen.state is BreakerState.CLOSED and not seen.forced:
                recent = seen.window_at > self.now - window_h
                self._change(
                    seen,
                    ok=tally.ok + (seen.ok if recent else 0),
                    failed=tally.failed + (seen.failed if recent else 0),
                    window_at=seen.window_at if recent else self.now,
                    error=tally.error or seen.error,
                )

    def _new_breaker(self, name: str, **columns: Any) -> Breaker:
        new = Breaker(
            name,
            BreakerState.CLOSED,
            0,
            0,
            0,
            self.now,
            self.now,
            0,
            0,
            None,
            None,
            0.0,
            0,
            False,
            None,
            "",
            None,
        )
        return replace(new, **columns)

    def _change(self, seen: Breaker, **columns: Any) -> Breaker:
        changed = replace(seen, **{"told_at": self.now, **columns})
        self.breakers[seen.name] = changed
        return changed

    def claim_probes(
        self, node: str, name: str, lanes: Sequence[int], limit: int, runs: Sequence[str] | None = None
    ) -> tuple[int, list[tuple[str, int, int, int]]]:
        """Return (round, claimed steps). No more are claimed than the allowance has left."""
        seen = self.breakers.get(name)
        if (
            seen is None
            or seen.state is not BreakerState.PROBING
            or any(scope == HoldScope.ALL for scope, _ in self.holds)
            or self.is_held(HoldScope.DEPENDENCY, name)
            or not self.is_live(node)
        ):
            return 0, []
        mine = [
            lane
            for lane in lanes
            if self.lanes[lane][1] == name and not self.is_held(HoldScope.STEP, self.lanes[lane][0])
        ]
        claimed = self._claim(node, self.due(mine, runs)[: min(seen.allowance, limit)])
        if claimed:
            self._change(seen, allowance=seen.allowance - len(claimed))
        return (seen.round if claimed else 0), claimed

    # --- the leader -------------------------------------------------------------------------------------------------

    def change_breaker(self, epoch: int, name: str, round: int, change: BreakerChange) -> bool:
        seen = self.breakers.get(name)
        if not self.leads(epoch) or seen is None or seen.round != round or seen.forced:
            return False
        closed, opened = change.state is BreakerState.CLOSED, change.state is BreakerState.OPEN
        self._change(
            seen,
            state=change.state,
            round=seen.round + 1,
            ok=0,
            failed=0,
            wave=change.wave,
            allowance=change.wave,
            window_at=self.now,
            open_s=change.open_s,
            note=change.note,
            actor="supervisor",
            opened_at=None if closed else self.now if seen.opened_at is None else seen.opened_at,
            open_until=self.now + change.open_s * SECOND if opened else None,
            trips=0 if closed else seen.trips + opened,
        )
        if change.journalled:
            self.note("supervisor", f"breaker {change.state}")
        return True

    def give_back_probes(self, epoch: int, name: str, round: int, probes: int) -> bool:
        seen = self.breakers.get(name)
        if not self.leads(epoch) or seen is None or seen.forced:
            return False
        if (seen.round, seen.state) != (round, BreakerState.PROBING):
            return False
        self._change(seen, allowance=min(seen.wave, seen.allowance + probes))
        return True

    # --- people -----------------------------------------------------------------------------------------------------

    def add_hold(self, scope: HoldScope, value: str) -> bool:
        if (scope, value) in self.holds:
            return False
        self.holds[scope, value] = self.now
        self.note("me", "hold")
        return True

    def remove_hold(self, scope: HoldScope, value: str) -> bool:
        if self.holds.pop((scope, value), None) is None:
            return False
        self.note("me", "release")
        return True

    def force_breaker(self, name: str, state: BreakerState) -> BreakerState:
        seen = self.breakers.get(name)
        self.note("me", f"breaker {state}")
        opened_at = None if seen is None or seen.opened_at is None else seen.opened_at
        if opened_at is None:
            opened_at = self.now
        self.breakers[name] = self._new_breaker(
            name,
            state=state,
            round=1 if seen is None else seen.round + 1,
            opened_at=opened_at if state is BreakerState.OPEN else None,
            forced=True,
            actor="me",
            note="why",
        )
        return state

    def reset_breaker(self, name: str) -> BreakerState | None:
        """Let the leader decide again. A breaker that is not closed begins to probe."""
        seen = self.breakers.get(name)
        if seen is None:
            return None
        closed = seen.state is BreakerState.CLOSED
        self.note("me", "breaker reset")
        return self._change(
            seen,
            state=BreakerState.CLOSED if closed else BreakerState.PROBING,
            round=seen.round + 1,
            ok=0,
            failed=0,
            wave=0 if closed else 1,
            allowance=0 if closed else 1,
            window_at=LONG_AGO if closed else self.now,
            open_s=0.0,
            open_until=None,
            forced=False,
            actor="me",
            note="why",
        ).state
