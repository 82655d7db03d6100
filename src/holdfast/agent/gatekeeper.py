"""What an agent knows about the gates of its steps, and what it has seen of their dependencies.

The store decides which steps may begin. This is a copy of what the store said a moment ago. It is for steps that the
node's scheduler gives to the agent without asking the store. The agent adds one decision of its own: when it sees a
dependency fail, it begins no more steps of that dependency, and reports this to the store.

The gatekeeper changes nothing but itself. The agent reports what it counts.
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

AFTER_PROBES_S = 1.0
"""The step of a failed probe becomes ready this much later than the next probes may begin. So another step is the next
probe, and one bad input cannot keep a breaker open."""


class Window:
    """The outcomes of one dependency within the last seconds, counted in two halves. The older half is forgotten after
    a while. Each count is [successes, failures]."""

    __slots__ = ("before", "began", "error", "now", "unreported")

    def __init__(self, began: float) -> None:
        self.began = began
        self.now = [0, 0]
        self.before = [0, 0]
        self.unreported = [0, 0]
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
        """One for each dependency that had trouble lately, here or elsewhere. For all others, nothing is counted."""
        self.paused: dict[str, float] = {}
        """The dependencies that this agent has paused by itself, and the latest end of that (monotonic clock)."""
        self.off: frozenset[str] = frozenset()
        """The dependencies whose breaker is not closed."""
        self.probing: dict[str, int] = {}
        """The dependencies that are probed, and how many probes may still begin."""
        self.shut = False
        """True if any gate is shut. If none is, there is no need to call `bars`."""
        self._open_s: dict[str, float] = {}
        self._trusted: frozenset[str] = frozenset()
        """The dependencies whose breaker an operator keeps closed."""
        self._suspected: frozenset[str] = frozenset()
        """The dependencies that had trouble lately, and whose breaker is closed."""
        self._about_to_open: frozenset[str] = frozenset()
        """Dependencies with enough reported failures. The leader is about to open their breakers."""
        self._held: dict[HoldScope, frozenset[str]] = {}
        self._probes: dict[tuple[str, int], tuple[list[int], list[str | None]]] = {}

    # --- what a step may do -------------------------------------------------------------------------------------------

    def bars(self, step: Step[Any, Any], workflow: str | None = None, namespace: str | None = None) -> bool:
        """True if this step must not begin here now."""
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
        """True if the dependency of this attempt is known to be in trouble. Then a failure costs the step nothing."""
        name = assignment.step.depends if assignment.probe is None else assignment.probe[0]
        return name in self.paused or name in self.off or name in self._about_to_open

    def probe_delay_s(self, assignment: Assignment) -> float:
        """Return how long a step waits at least after a failed probe. 0 if the attempt was no probe."""
        if assignment.probe is None:
            return 0.0
        open_s = self._open_s.get(assignment.probe[0], 0.0)
        return breaker.longer_s(open_s, self._config) + AFTER_PROBES_S

    # --- counting -----------------------------------------------------------------------------------------------------

    def note(self, assignment: Assignment, sign: Sign, error: str | None, at: float) -> bool:
        """Count how an attempt ended. True if the agent should report to the store soon."""
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
            # An operator keeps the breaker closed, or the attempt began before the breaker opened and says nothing
            # about how the dependency is now.
            return False
        window = self.windows.get(name)
        if window is None:
            if not bad:
                return False
            window = self.windows[name] = Window(at)
        window.turn(at, self._config.breaker_window_s)
        window.now[bad] += 1
        window.unreported[bad] += 1
        if not bad:
            return False
        window.error = error
        if name not in self.paused and breaker.trips(window.ok, window.failed, self._config):
            self.paused[name] = at + self._config.breaker_open_s
            self.shut = True
        return breaker.fails(window.ok, window.failed, self._config)

    def take_unreported(self) -> list[Observation]:
        """Return the counts that the store should know: of probes, of trouble, and of suspected dependencies. From now
        on they count as reported."""
        found = []
        for (name, round_), (counts, errors) in self._probes.items():
            found.append(Observation(name, counts[0], counts[1], errors[0], round_))
        self._probes = {}
        for name, window in self.windows.items():
            if window.unreported[1] or (window.unreported[0] and name in self._suspected):
                found.append(Observation(name, window.unreported[0], window.unreported[1], window.error))
                window.unreported = [0, 0]
        return found

    def restore(self, observations: Iterable[Observation]) -> None:
        """Count these as not reported, because the report did not reach the store."""
        for one in observations:
            if one.round is not None:
                counts, errors = self._probes.setdefault((one.name, one.round), ([0, 0], [None]))
                counts[0] += one.ok
                counts[1] += one.failed
                errors[0] = errors[0] or one.error
            elif (window := self.windows.get(one.name)) is not None:
                window.unreported[0] += one.ok
                window.unreported[1] += one.failed

    # --- learning -----------------------------------------------------------------------------------------------------

    def learn(self, gates: ShutGates, at: float) -> bool:
        """Copy what the store says. True if anything has changed: then steps may begin that could not begin before."""
        before = (self.off, self.paused.keys() | set(), self._held, self.probing)
        rows = gates.breakers
        self.off = frozenset(row.name for row in rows if row.state is not BreakerState.CLOSED)
        self._open_s = {row.name: row.open_s for row in rows}
        self._trusted = frozenset(row.name for row in rows if row.forced) - self.off
        self._suspected = frozenset(row.name for row in rows) - self.off - self._trusted
        self._about_to_open = frozenset(
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
        """Let what the store says replace what this agent decided, and forget old trouble."""
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
            if not window.failed and not window.unreported[1] and name not in self._suspected:
                del self.windows[name]
