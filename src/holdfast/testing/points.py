"""The boundaries that a run passes, by number and in words: the process dies at the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from holdfast.errors import HoldfastError
from holdfast.model import Outcome
from holdfast.store.operations import HandBack, Hop, RetryStep, Start
from holdfast.testing.world import Fate, Faults, Past, Process, Rows

CRASHABLE = frozenset({"commit", "claim_runs", "claim_run", "claim_steps", "fire_timers", "answer_joins"})
POINTS_MAX = 20_000
"""A workflow that passes more has no end, or is too long to be explored."""

State: TypeAlias = tuple[int, int, float]
"""What a crash leaves behind: how much was committed, how much was done outside, and what time it is."""


class Mark(NamedTuple):
    """What an exploration has to know to go on at a boundary, besides the store."""

    nodes: tuple[str, ...]
    opened: int
    """How many processes there have been."""
    told: int
    """How much the run was told: that it starts, and its signals."""
    executions: int
    taken: dict[str, int]
    """Of each stand-in, how many outcomes were taken."""


_VERBS = {
    "claim_runs": "the run is claimed",
    "claim_run": "the run is claimed",
    "claim_steps": "a step is claimed",
    "fire_timers": "a timer fires",
    "answer_joins": "a joined run has ended",
}


class Points(Faults):
    """Counts the boundaries that are passed; the process dies at the chosen one."""

    def __init__(self, die_at: int | None) -> None:
        self.die_at = die_at
        self.passed: list[str] = []
        self.states: list[State] = []
        """Of each boundary, what a crash would leave behind. Where that is the same, so is all that follows."""
        self.marks: list[Mark | None] = []
        """Of each boundary, what else there was; None where a step's own code had run, which nobody can bring back."""
        self.rows: list[Rows] = []
        """The store after each commit, from before the first one on."""
        self.died_at: str | None = None
        """The boundary at which the process died, in words that were known then."""
        self.trace: list[str] = []
        self.trouble: HoldfastError | None = None
        """Why the exploration cannot go on."""
        self.ledger: set[str] = set()
        """Keys of effects that the test itself counted in this run."""
        self.keys: dict[tuple[str, int], str] = {}
        self.clock: Callable[[], float] = lambda: 0.0
        self.mark: Callable[[], Mark | None] = lambda: None
        self.look: Callable[[], Rows] | None = None
        """Where the store's rows are to be had, if they are to be kept."""
        self._commits = 0
        self._deeds = 0
        self._under_way = 0
        self._last_commit = 0

    def past(self, n: int) -> tuple[Past, Mark] | None:
        """What is left when the process dies at the n-th boundary, if it is known."""
        (commits, _, now), mark = self.states[n - 1], self.marks[n - 1]
        return None if mark is None else (Past(self.rows[commits], now, mark.nodes), mark)

    # --- what is told ---------------------------------------------------------------------------------------------------

    def begins(self) -> None:
        """Code of a step runs from here on: what it does, and when, nobody can tell."""
        self._under_way += 1
        self.look = None

    def ends(self, *, ran: bool) -> None:
        """An execution is over; `ran`: it was code, not a value that stands in for it."""
        self._under_way -= ran
        self._deeds += 1

    def dies(self, name: str, *, after: int = 0) -> bool:
        """Pass a boundary; does the process die here? `after` a commit that is about to happen, the store has it."""
        if self._under_way:
            self._deeds += 1
        self.passed.append(name)
        self.states.append((self._commits + after, self._deeds, self.clock()))
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
            raise HoldfastError(f"the run passes more than {POINTS_MAX:,} boundaries: give it less to do")

    def say(self, words: str) -> None:
        self.trace.append(f"{self.clock():10.3f} s  {words}")

    # --- between a process and the store ----------------------------------------------------------------------------------

    def fate(self, process: Process, verb: str) -> Fate:
        if verb not in CRASHABLE:
            return Fate.COMMITTED
        self._last_commit = len(self.passed)
        if self.dies(f"before {_VERBS.get(verb, 'a commit')}"):
            return Fate.DIES_BEFORE
        if self.dies(f"after {_VERBS.get(verb, 'a commit')}", after=1):
            return Fate.DIES_AFTER
        return Fate.COMMITTED

    def committed(self, verb: str, asked: Mapping[str, Any]) -> None:
        """Name the two boundaries around this commit."""
        self._commits += 1
        if self.look is not None:
            last, now = self.rows[-1], self.look()
            # What did not change is kept once: most of it never does.
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
        said: list[str] = []
        for op in ops:
            if isinstance(op, Hop):
                self.keys.update({(op.run_id, step.n): step.key for step in op.issued})
                said.append(self._hop(op))
            elif isinstance(op, Outcome):
                said.append(f"of {self._key(op.run_id, op.n)}'s result")
            elif isinstance(op, RetryStep):
                said.append(f"that lets {self._key(op.run_id, op.n)} be tried again")
            elif isinstance(op, HandBack):
                said.append(f"that hands {self._key(op.run_id, op.n)} back")
            elif isinstance(op, Start):
                said.append("that starts the run")
        return f"the commit {' and '.join(dict.fromkeys(said)) or 'of a checkpoint'}"

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
    """Did the process die at the boundary of this name? Of a commit it is not known then what it will be of."""
    if died_at in {"before a commit", "after a commit"}:
        return name.startswith(f"{died_at.partition(' ')[0]} the commit ")
    return died_at == name
