"""Numbers and describes the boundaries that a run passes, and lets the process die at the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.model import Outcome
from holdfast.store.operations import HandBack, Hop, RetryStep, Start
from holdfast.testing.world import Faults, Past, Process, Rows, WriteFate

CRASHABLE = frozenset({"commit", "claim_runs", "claim_run", "claim_steps", "fire_timers", "answer_joins"})
POINTS_MAX = 20_000
"""A workflow that passes more boundaries than this never ends, or is too long to be explored."""

State: TypeAlias = tuple[int, int, float]
"""Stands for what a crash leaves behind: how many commits and how many possible effects outside there were, and the
time."""


class BoundaryState(NamedTuple):
    """What an exploration needs besides the store's rows to go on from a boundary."""

    nodes: tuple[str, ...]
    opened: int
    """How many processes there have been."""
    sent: int
    """How much has been sent to the run: 0 before its start, 1 after it, and 1 more for each signal."""
    executions: int
    taken: dict[str, int]
    """For each stand-in, how many of its outcomes have been used."""


_VERBS = {
    "claim_runs": "the run is claimed",
    "claim_run": "the run is claimed",
    "claim_steps": "a step is claimed",
    "fire_timers": "a timer fires",
    "answer_joins": "a joined run has ended",
}


class Points(Faults):
    """Counts the boundaries that a run passes, and kills the process at the chosen one."""

    def __init__(self, die_at: int | None) -> None:
        self.die_at = die_at
        self.passed: list[str] = []
        self.states: list[State] = []
        """For each boundary, what a crash would leave behind. Where that is the same, all that follows is the same."""
        self.marks: list[BoundaryState | None] = []
        """For each boundary, its mark. It is None after a step's own code has run, because nothing can restore what
        that did."""
        self.rows: list[Rows] = []
        """The store's rows before the first commit, and after each one."""
        self.died_at: str | None = None
        """The boundary at which the process died, as it was called at that moment."""
        self.trace: list[str] = []
        self.trouble: HoldfastError | None = None
        """Why the exploration cannot go on."""
        self.ledger: set[str] = set()
        """Keys of effects that the test itself counted in this run."""
        self.keys: dict[tuple[str, int], str] = {}
        self.clock: Callable[[], float] = lambda: 0.0
        self.mark: Callable[[], BoundaryState | None] = lambda: None
        self.look: Callable[[], Rows] | None = None
        """Reads the store's rows. None if they need not be kept."""
        self._commits = 0
        self._possible_effects = 0
        self._under_way = 0
        self._last_commit = 0

    def past(self, n: int) -> tuple[Past, BoundaryState] | None:
        """Return what is left when the process dies at the n-th boundary; None if that is not known."""
        (commits, _, now), mark = self.states[n - 1], self.marks[n - 1]
        return None if mark is None else (Past(self.rows[commits], now, mark.nodes), mark)

    # --- what an exploration calls ----------------------------------------------------------------------------------

    def begins(self) -> None:
        """Note that a step's own code begins to run. From here on it is unknown what has happened outside, and when."""
        self._under_way += 1
        self.look = None

    def ends(self, *, ran: bool) -> None:
        """Note that an execution is over. `ran` says whether it was the step's own code, and not a value that stands
        in."""
        self._under_way -= ran
        self._possible_effects += 1

    def dies(self, name: str, *, after: int = 0) -> bool:
        """Pass a boundary, and return whether the process dies here. `after=1` for a boundary after the next commit."""
        if self._under_way:
            self._possible_effects += 1  # the code may have done something since the last boundary
        self.passed.append(name)
        self.states.append((self._commits + after, self._possible_effects, self.clock()))
        self.marks.append(None if self.look is None else self.mark())
        here = len(self.passed) == self.die_at
        if here:
            self.died_at = name
            self.say(f"the process dies {name}")
        return here

    def check(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        if len(self.passed) > POINTS_MAX:
            raise HoldfastError(
                f"the run passes more than {POINTS_MAX:,} boundaries, too many to explore: give it less to do"
            )

    def say(self, words: str) -> None:
        self.trace.append(f"{self.clock():10.3f} s  {words}")

    # --- between a process and the store ----------------------------------------------------------------------------------

    def fate(self, process: Process, verb: str) -> WriteFate:
        if verb not in CRASHABLE:
            return WriteFate.COMMITTED
        self._last_commit = len(self.passed)
        if self.dies(f"before {_VERBS.get(verb, 'a commit')}"):
            return WriteFate.DIES_BEFORE
        if self.dies(f"after {_VERBS.get(verb, 'a commit')}", after=1):
            return WriteFate.DIES_AFTER
        return WriteFate.COMMITTED

    def committed(self, verb: str, asked: Mapping[str, Any]) -> None:
        """Name the two boundaries around this commit."""
        self._commits += 1
        if self.look is not None:
            last, now = self.rows[-1], self.look()
            # Tables that did not change are kept only once: most of them never change.
            self.rows.append(
                {table: last[table] if last[table] == rows else rows for table, rows in now.items()}
            )
        if verb not in CRASHABLE:
            return
        words = _VERBS.get(verb) or self._describe(asked.get("ops", ()))
        at = self._last_commit
        self.passed[at : at + 2] = [f"before {words}", f"after {words}"]
        self.say(f"commit: {words.removeprefix('the commit that ').removeprefix('the commit of ')}")

    def _describe(self, ops: Sequence[Any]) -> str:
        phrases: list[str] = []
        for op in ops:
            if isinstance(op, Hop):
                self.keys.update({(op.run_id, step.n): step.key for step in op.issued})
                phrases.append(self._hop(op))
            elif isinstance(op, Outcome):
                phrases.append(f"of {self._key(op.run_id, op.n)}'s result")
            elif isinstance(op, RetryStep):
                phrases.append(f"that lets {self._key(op.run_id, op.n)} be tried again")
            elif isinstance(op, HandBack):
                phrases.append(f"that hands {self._key(op.run_id, op.n)} back")
            elif isinstance(op, Start):
                phrases.append("that starts the run")
        return f"the commit {' and '.join(dict.fromkeys(phrases)) or 'of a checkpoint'}"

    def _hop(self, hop: Hop) -> str:
        ends = [self._key(hop.run_id, outcome.n) for outcome in hop.outcomes]
        issues = [step.key for step in hop.issued]
        then = [
            f"issues {_listed(issues)}" if issues else "",
            "ends the run" if hop.close is not None else "",
            "begins to undo" if hop.undo is not None else "",
            "continues as new" if hop.next_input is not None else "",
        ]
        does = " and ".join(word for word in then if word)
        if hop.begin is not None:
            return f"that starts the run{f' and {does}' if does else ''}"
        if ends:
            return f"of {_listed(ends)}'s result{f', which {does}' if does else ''}"
        if hop.park and not does:
            return "that puts the run to rest"
        return f"that {does}" if does else "of a signal" if hop.signals else "of the run"

    def _key(self, run_id: str, n: int) -> str:
        return self.keys.get((run_id, n), f"step {n}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def is_same(died_at: str | None, name: str) -> bool:
    """True if the process died at the boundary of this name. A commit gets its own name only after it was made, so a
    process that died at one did so at "a commit"."""
    if died_at in {"before a commit", "after a commit"}:
        return name.startswith(f"{died_at.partition(' ')[0]} the commit ")
    return died_at == name
