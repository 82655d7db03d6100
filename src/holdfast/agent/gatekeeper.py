"""What an agent knows of the gates its steps stand before, and what it has seen of the dependencies behind them.

The store decides what may begin; this is a copy of that, a moment old, for steps that are handed over without asking it.
Of its own it adds one thing: an agent that sees a dependency fail begins nothing more of it at once, and tells the store.

May change: nothing but itself. What it counts is told by the agent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast import breaker
from holdfast.agent.assignment import Assignment
from holdfast.breaker import Sign
from holdfast.config import Config
from holdfast.model import BreakerState, HoldScope
from holdfast.store.answers import Observation, ShutGates
from holdfast.workflow.step import Step

REST_S = 1.0
"""A failed probe comes so much later than the next one may begin: another step tries next, so that one bad input cannot keep a
breaker open."""


class Window:
    """Outcomes of one dependency within the last seconds: two halves, of which the older one is forgotten in time."""

    __slots__ = ("before", "began", "error", "now", "untold")

    def __init__(self, began: float) -> None:
        self.began = began
        self.now = [0, 0]
        self.before = [0, 0]
        self.untold = [0, 0]
        self.error: str | None = None

    def turn(self, at: float, window_s: float) -> None:
        """Forget what is older than the window."""
        if at - self.began >= window_s:
            self.before, self.now, self.began = [0, 0], [0, 0], at
        elif at - self.began >= window_s / 2:
            self.before, self.now, self.began = self.now, [0, 0], at

    @property
    def ok(self) -> int:
        return self.now[0] + self.before[0]

    @property
    def failed(self) -> int:
        return self.now[1] + self.before[1]


class Gatekeeper:
    def __init__(self, config: Config) -> None:
        self._config = config
        self.windows: dict[str, Window] = {}
        """Of dependencies with recent trouble, here or elsewhere. Of all others nothing is counted."""
        self.paused: dict[str, float] = {}
        """Dependencies this agent has stopped by itself, and until when at the longest, on the monotonic clock."""
        self.off: frozenset[str] = frozenset()
        """Dependencies whose breaker is not closed."""
        self.probing: dict[str, int] = {}
        """Dependencies that are probed, and how many probes may still begin."""
        self.shut = False
        """Whether any gate is shut: when none is, nobody needs to ask further."""
        self._open_s: dict[str, float] = {}
        self._trusted: frozenset[str] = frozenset()
        """Dependencies whose breaker an operator keeps closed."""
        self._suspected: frozenset[str] = frozenset()
        self._doubted: frozenset[str] = frozenset()
        """Suspects of which all agents together have told enough to open the breaker; the leader is about to decide."""
        self._held: dict[HoldScope, frozenset[str]] = {}
        self._probes: dict[tuple[str, int], tuple[list[int], list[str | None]]] = {}

    # --- asked before a step begins -----------------------------------------------------------------------------------

    def bars(self, step: Step[Any, Any], workflow: str | None = None, namespace: str | None = None) -> bool:
        """Whether this step must not begin here now."""
        if step.depends in self.off or step.depends in self.paused:
            return True
        held = self._held
        return bool(held) and (
            HoldScope.ALL in held
            or step.depends in held.get(HoldScope.DEPENDENCY, ())
            or step.name in held.get(HoldScope.STEP, ())
            or workflow in held.get(HoldScope.WORKFLOW, ())
            or namespace in held.get(HoldScope.NAMESPACE, ())
        )

    def excuses(self, assignment: Assignment) -> bool:
        """Whether trouble of this attempt is the dependency's, and known: it costs the step nothing."""
        name = assignment.step.depends if assignment.probe is None else assignment.probe[0]
        return name in self.paused or name in self.off or name in self._doubted

    def rest_s(self, assignment: Assignment) -> float:
        """How long a step waits at least whose attempt was a probe and failed."""
        if assignment.probe is None:
            return 0.0
        open_s = self._open_s.get(assignment.probe[0], 0.0)
        return breaker.longer_s(open_s, self._config) + REST_S

    # --- counting -----------------------------------------------------------------------------------------------------

    def note(self, assignment: Assignment, sign: Sign, error: str | None, at: float) -> bool:
        """Count how an attempt ended; True when the store should be told soon."""
        if sign is Sign.NOTHING:
            return False
        bad = sign is Sign.TROUBLE
        if assignment.probe is not None:
            counts, errors = self._probes.setdefault(assignment.probe, ([0, 0], [None]))
            counts[bad] += 1
            errors[0] = error or errors[0]
            return True
        name = assignment.step.depends
        if name in self.off or name in self._trusted:
            return False  # it began before the breaker opened, and says nothing of how it is now
        window = self.windows.get(name)
        if window is None:
            if not bad:
                return False
            window = self.windows[name] = Window(at)
        window.turn(at, self._config.breaker_window_s)
        window.now[bad] += 1
        window.untold[bad] += 1
        if not bad:
            return False
        window.error = error
        if name not in self.paused and breaker.trips(window.ok, window.failed, self._config):
            self.paused[name] = at + self._config.breaker_open_s
            self.shut = True
        return breaker.fails(window.ok, window.failed, self._config)

    def untold(self) -> list[Observation]:
        """What the store should know: trouble, and how suspects do here. It counts as told from now on."""
        found = []
        for (name, round_), (counts, errors) in self._probes.items():
            found.append(Observation(name, counts[0], counts[1], errors[0], round_))
        self._probes = {}
        for name, window in self.windows.items():
            if window.untold[1] or (window.untold[0] and name in self._suspected):
                found.append(Observation(name, window.untold[0], window.untold[1], window.error))
                window.untold = [0, 0]
        return found

    def keep(self, tallies: Iterable[Observation]) -> None:
        """The store could not be told."""
        for told in tallies:
            if told.round is not None:
                counts, errors = self._probes.setdefault((told.name, told.round), ([0, 0], [None]))
                counts[0] += told.ok
                counts[1] += told.failed
                errors[0] = errors[0] or told.error
            elif (window := self.windows.get(told.name)) is not None:
                window.untold[0] += told.ok
                window.untold[1] += told.failed

    # --- learning -----------------------------------------------------------------------------------------------------

    def learn(self, gates: ShutGates, at: float) -> bool:
        """Take in what the store says; True when something may begin that might not before."""
        before = (self.off, self.paused.keys() | set(), self._held, self.probing)
        rows = gates.breakers
        self.off = frozenset(row.name for row in rows if row.state is not BreakerState.CLOSED)
        self._open_s = {row.name: row.open_s for row in rows}
        self._trusted = frozenset(row.name for row in rows if row.forced) - self.off
        self._suspected = frozenset(row.name for row in rows) - self.off - self._trusted
        self._doubted = frozenset(
            row.name
            for row in rows
            if row.name in self._suspected and breaker.trips(row.ok, row.failed, self._config)
        )
        self.probing = {
            row.name: row.allowance
            for row in rows
            if row.state is BreakerState.PROBING and row.allowance > 0 and not row.forced
        }
        held: dict[HoldScope, frozenset[str]] = {}
        for hold in gates.holds:
            held[hold.scope] = held.get(hold.scope, frozenset()) | {hold.value}
        self._held = held
        self._tidy(at)
        self.shut = bool(self.off or self.paused or self._held)
        after = (self.off, self.paused.keys() | set(), self._held, self.probing)
        return before != after

    def _tidy(self, at: float) -> None:
        """The store's word replaces this agent's own; and old trouble is forgotten."""
        for name in [name for name, until in self.paused.items() if at >= until or name in self._trusted]:
            del self.paused[name]
            self.windows.pop(name, None)
        for name in self.off | self._trusted:
            self.paused.pop(name, None)
            self.windows.pop(name, None)
        for name in self._suspected:
            if name not in self.windows:
                self.windows[name] = Window(at)
        for name, window in list(self.windows.items()):
            window.turn(at, self._config.breaker_window_s)
            if not window.failed and not window.untold[1] and name not in self._suspected:
                del self.windows[name]
