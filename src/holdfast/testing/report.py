"""What an exploration found, as values and as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.workflow.step import Step

TWICE, NOT_UNDONE, OTHERWISE, REPLAYED = "ran twice", "not undone", "ended otherwise", "replayed otherwise"
_TIMES = {2: "twice", 3: "three times", 4: "four times"}


class Boundary(NamedTuple):
    """One place where something went wrong on purpose."""

    number: int
    """Counted from 1, and the same in every exploration with the same seed. 0: no process dies, a history is
    replayed."""
    seed: int
    crash: str | None
    """Where the process died, or None if it did not. For a replay: under which circumstances."""
    failing: str | None
    """The step that was made to fail."""
    cancelled: str | None = None
    """The step during which the run was cancelled."""

    @property
    def what(self) -> str:
        """What was made to happen besides the crash, in words; empty if nothing was."""
        if self.cancelled:
            return f"the run is cancelled during {self.cancelled}"
        return f"{self.failing} fails" if self.failing else ""

    def __str__(self) -> str:
        if self.number == 0:
            dies = f"its history is {self.crash}"
        else:
            dies = f"the process dies {self.crash}" if self.crash else "no process dies"
        return f"{dies}{f', and {self.what}' if self.what else ''}"


class Finding(NamedTuple):
    """What went wrong at one boundary."""

    kind: str
    step: str
    """The step's name. For a run that ended otherwise or was replayed otherwise, the workflow's name."""
    key: str
    boundary: Boundary
    times: int
    why: str
    """What is the case, and what to do next."""


class Untried(NamedTuple):
    """Something that was not tried."""

    what: str
    why: str
    """The reason, and what to do next."""


class Report:
    """What happened at every boundary of one workflow."""

    def __init__(self, workflow: str, replay: str = "") -> None:
        self.workflow = workflow
        self._replay = replay
        """The command that tries one boundary again, without its number."""
        self.undisturbed = ""
        """How the run ends when nothing goes wrong on purpose; empty if it succeeds."""
        self.boundaries: list[Boundary] = []
        """The boundaries that were tried."""
        self.findings: list[Finding] = []
        self.untried: list[Untried] = []
        """What was not tried, and why."""
        self.left = 0
        """At least how many boundaries were not tried because a limit was reached."""
        self.interpreters = 0
        """In how many other interpreters the histories were replayed."""
        self.trace: list[str] = []
        """What happened, in order, if only one boundary was tried."""
        self._effects: dict[str, set[int]] = {}

    def count(self, step: str, effects: int) -> None:
        self._effects.setdefault(step, set()).add(effects)

    def effects(self, step: Step[Any, Any]) -> set[int]:
        """Return how often the effect of one call of this step happened, over all crashes. {1} means once, at every
        crash."""
        return set(self._effects.get(step.name, set()))

    @property
    def twice(self) -> list[Finding]:
        """Effects that happened more than once."""
        return [finding for finding in self.findings if finding.kind == TWICE]

    @property
    def not_undone(self) -> list[Finding]:
        """Effects of runs that did not succeed, which nothing undid."""
        return [finding for finding in self.findings if finding.kind == NOT_UNDONE]

    @property
    def ended_otherwise(self) -> list[Finding]:
        """Runs that did not end as they do when no process dies."""
        return [finding for finding in self.findings if finding.kind == OTHERWISE]

    @property
    def replayed_otherwise(self) -> list[Finding]:
        """Workflows whose code decided otherwise on the same history."""
        return [finding for finding in self.findings if finding.kind == REPLAYED]

    @property
    def ok(self) -> bool:
        """True if nothing was found and everything was tried."""
        return not self.findings and not self.untried

    def add(self, other: Report) -> None:
        """Add another report, of another seed, to this one."""
        self.undisturbed = self.undisturbed or other.undisturbed
        self.boundaries += other.boundaries
        self.findings += other.findings
        self.untried += [each for each in other.untried if each not in self.untried]
        self.left += other.left
        self.interpreters = max(self.interpreters, other.interpreters)
        self.trace += other.trace
        for step, counts in other._effects.items():
            self._effects.setdefault(step, set()).update(counts)

    def replay(self, boundary: Boundary) -> str:
        """Return the line that tries only this boundary again, and shows what happens there."""
        if self._replay:
            return f"{self._replay} --boundary {boundary.number} --seed {boundary.seed}"
        return f"sim.using(boundary={boundary.number}, seed={boundary.seed}).crash_everywhere(…)"

    def __str__(self) -> str:
        return "\n".join([*self._lines(), self._sum()])

    __repr__ = __str__

    def _sum(self) -> str:
        tried = f"{len(self.boundaries)} {'boundary' if len(self.boundaries) == 1 else 'boundaries'}"
        ends = f"; undisturbed, it ends {self.undisturbed}" if self.undisturbed else ""
        found = "" if self.findings or not self.untried else ": nothing was found"
        left = f"{found}, but not all was tried" if self.untried else ""
        return f"{tried} of {self.workflow} tried{left}{ends}"

    def _lines(self) -> Iterator[str]:
        for (kind, step), found in self._grouped().items():
            first = min(found, key=lambda finding: (finding.boundary.seed, finding.boundary.number))
            yield f"{_short(step)} {_happened(kind, max(finding.times for finding in found), first)}"
            yield f"  when {first.boundary}{f'  (boundary {first.boundary.number})' if first.boundary.number else ''}"
            others = sorted({finding.boundary.number for finding in found} - {first.boundary.number})
            if others:
                more = f" and {len(others) - 5} more" if len(others) > 5 else ""
                yield f"  also at {', '.join(map(str, others[:5]))}{more}"
            yield f"  {first.why}"
            yield f"  again: {self.replay(first.boundary)}"
            yield ""
        for untried in self.untried:
            yield f"not tried: {untried.what}"
            yield f"  {untried.why}"
        if self.untried:
            yield ""

    def _grouped(self) -> dict[tuple[str, str], list[Finding]]:
        found: dict[tuple[str, str], list[Finding]] = {}
        for finding in self.findings:
            found.setdefault((finding.kind, finding.step), []).append(finding)
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "workflow": self.workflow,
            "boundaries": len(self.boundaries),
            "left": self.left,
            "undisturbed": self.undisturbed or "succeeded",
            "ok": self.ok,
            "untried": [each._asdict() for each in self.untried],
            "interpreters": self.interpreters,
            "effects": {step: sorted(counts) for step, counts in sorted(self._effects.items())},
            "findings": [
                {
                    "kind": finding.kind,
                    "step": finding.step,
                    "key": finding.key,
                    "times": finding.times,
                    "boundary": finding.boundary.number,
                    "seed": finding.boundary.seed,
                    "when": str(finding.boundary),
                    "why": finding.why,
                    "replay": self.replay(finding.boundary),
                }
                for finding in self.findings
            ],
            **({"trace": self.trace} if self.trace else {}),
        }


def _happened(kind: str, times: int, first: Finding) -> str:
    if kind == TWICE:
        return f"ran {_TIMES.get(times, f'{times} times')}"
    if kind == NOT_UNDONE:
        return "was not undone"
    if kind == REPLAYED:
        return "decides otherwise on the same history"
    return first.key


def _short(step: str) -> str:
    return step.rsplit(".", 1)[-1]
