"""What an exploration found, as values and in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.workflow.step import Step

TWICE, NOT_UNDONE, OTHERWISE, REPLAYED = "ran twice", "not undone", "ended otherwise", "replayed otherwise"
_TIMES = {2: "twice", 3: "three times", 4: "four times"}


class Boundary(NamedTuple):
    """One place where something went wrong on purpose."""

    number: int
    """Counted from 1; the same at every exploration with the same seed. 0: nothing dies, a history is replayed."""
    seed: int
    crash: str | None
    """Where the process died, None when it lived; of a replay, under which circumstances."""
    failing: str | None
    """The step that was made to fail."""
    cancelled: str | None = None
    """The step during which the run was cancelled."""

    @property
    def what(self) -> str:
        """What was made to happen, besides the crash."""
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
    """The step's name; for a run that ended otherwise, the workflow's."""
    key: str
    boundary: Boundary
    times: int
    why: str
    """What is the case, and the next move."""


class Untried(NamedTuple):
    """What belongs to the workflow, and did not come up."""

    what: str
    why: str
    """The reason, and the next move."""


class Report:
    """What happened at every boundary of one workflow."""

    def __init__(self, workflow: str, replay: str = "") -> None:
        self.workflow = workflow
        self._replay = replay
        """How a person replays one boundary, up to its number."""
        self.undisturbed = ""
        """How the run ends when nothing goes wrong on purpose, if it does not succeed."""
        self.boundaries: list[Boundary] = []
        """Those that were tried."""
        self.findings: list[Finding] = []
        self.untried: list[Untried] = []
        """What was not tried, and why."""
        self.left = 0
        """Boundaries that were not tried because a limit was reached, as far as they are known."""
        self.interpreters = 0
        """In how many other interpreters the histories were replayed."""
        self.trace: list[str] = []
        """When only one boundary was tried: what happened, in order."""
        self._effects: dict[str, set[int]] = {}

    def count(self, step: str, effects: int) -> None:
        self._effects.setdefault(step, set()).add(effects)

    def effects(self, step: Step[Any, Any]) -> set[int]:
        """How often the effect of a call of this step happened, over all crashes: {1} is once, whatever dies."""
        return set(self._effects.get(step.name, set()))

    @property
    def twice(self) -> list[Finding]:
        """Effects that happened more than once."""
        return [finding for finding in self.findings if finding.kind == TWICE]

    @property
    def not_undone(self) -> list[Finding]:
        """Effects that outlived a run that did not succeed."""
        return [finding for finding in self.findings if finding.kind == NOT_UNDONE]

    @property
    def ended_otherwise(self) -> list[Finding]:
        """Runs that did not end as they do when nothing dies."""
        return [finding for finding in self.findings if finding.kind == OTHERWISE]

    @property
    def replayed_otherwise(self) -> list[Finding]:
        """Workflows whose code decided otherwise on the same history."""
        return [finding for finding in self.findings if finding.kind == REPLAYED]

    @property
    def ok(self) -> bool:
        """Nothing was found, and all was tried."""
        return not self.findings and not self.untried

    def add(self, other: Report) -> None:
        """Take in what another seed found."""
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
        """The line that tries only this boundary again, and tells what happens."""
        if self._replay:
            return f"{self._replay} --boundary {boundary.number} --seed {boundary.seed}"
        return f"sim.using(boundary={boundary.number}, seed={boundary.seed}).crash_everywhere(…)"

    def __str__(self) -> str:
        return "\n".join([*self._told(), self._sum()])

    __repr__ = __str__

    def _sum(self) -> str:
        tried = f"{len(self.boundaries)} {'boundary' if len(self.boundaries) == 1 else 'boundaries'}"
        ends = f"; undisturbed, it ends {self.undisturbed}" if self.undisturbed else ""
        found = "" if self.findings or not self.untried else ": nothing was found"
        left = f"{found}, but not all was tried" if self.untried else ""
        return f"{tried} of {self.workflow} tried{left}{ends}"

    def _told(self) -> Iterator[str]:
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
