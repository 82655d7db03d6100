"""`check`: replays the code that is about to be deployed against all open runs. It only reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click

from holdfast.client import Holdfast
from holdfast.commands import program
from holdfast.commands.errors import DONE, ENDED_OTHERWISE
from holdfast.commands.event_loop import run_quickly
from holdfast.commands.options import command, opened
from holdfast.commands.up import files_argument
from holdfast.model import Lane, RunRow, RunState, StepRow
from holdfast.scheduler.fit import Fit, Misfit, fit
from holdfast.store.answers import ClaimedRun
from holdfast.store.reads import RunFilter
from holdfast.terminal import output, wording
from holdfast.terminal.lines import print_words
from holdfast.workflow import registry
from holdfast.workflow.markers import markers_of

IN_FLIGHT = (RunState.PENDING, RunState.RUNNING, RunState.UNDOING, RunState.HELD, RunState.STUCK)
PAGE = 200
"""How many runs are read at once. Their histories are read one at a time."""
STEPS_PAGE = 1000
READS_MAX = 5
"""How often a run is read at most. It may look as if it did not fit because it goes on while it is read."""
PROGRESS_EVERY = 100


class CheckFinding(NamedTuple):
    run: RunRow
    misfit: Misfit


class Ways:
    """How many open runs of a workflow go which way at a marker."""

    def __init__(self) -> None:
        self.old = 0
        self.new = 0

    def add(self, *, is_new: bool) -> None:
        if is_new:
            self.new += 1
        else:
            self.old += 1


class Checked:
    """How many runs were checked, and what was found. Keeps at most `limit` findings, or all if it is 0, and counts all
    of them."""

    def __init__(self, limit: int) -> None:
        self.runs = 0
        self.unfit = 0
        self.kinds: Counter[str] = Counter()
        self.kept: list[CheckFinding] = []
        self.markers = {
            (workflow.name, marker): Ways()
            for workflow in registry.workflows.values()
            for marker in sorted(markers_of(workflow.fn))
        }
        """The markers that the code asks for, by workflow and name."""
        self._limit = limit

    def add(self, run: RunRow, fit: Fit) -> list[CheckFinding]:
        """Count a run, and return those of its findings that are to be shown."""
        self.runs += 1
        found = fit.misfits
        for marker, is_new in fit.ways.items():
            self._ways(run.workflow, marker).add(is_new=is_new)
        self.unfit += any(not misfit.is_note for misfit in found)
        self.kinds.update(misfit.kind for misfit in found)
        room = len(found) if self._limit == 0 else max(0, self._limit - len(self.kept))
        shown = [CheckFinding(run, misfit) for misfit in found[:room]]
        self.kept += shown
        return shown

    def _ways(self, workflow: str, marker: str) -> Ways:
        return self.markers.setdefault((workflow, marker), Ways())

    @property
    def left_out(self) -> int:
        return self.kinds.total() - len(self.kept)


@command(needs_database=True)
@files_argument
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="List at most this many findings; 0 lists all. All are counted.",
)
def check(files: tuple[str, ...], limit: int, store: str, as_json: bool) -> int:
    """Replay the code you are about to deploy against every open run.

    \b
    holdfast check app.py --store postgresql://holdfast@db.example/holdfast

    Each run that has not ended is replayed with this code, as the first scheduler that takes it up would do. What no
    longer fits is listed with both sides: a step that the code asks for with another input, a workflow, version or undo
    that the code no longer has, an input, result or signal that it cannot read whole. Nothing is executed, and the
    store is not changed. The exit code is 1 if a run does not fit.

    For each marker, `patched("…")`, it says how many open runs go the old way. A marker with none can be removed.
    """
    with output.stdout_kept(as_json):
        for file in files:
            program.load(file)
        checked = run_quickly(_check(store, limit, as_json))
    if as_json:
        output.print_json(_object(checked))
    else:
        _print_sum(checked)
    return ENDED_OTHERWISE if checked.unfit else DONE


async def _check(url: str, limit: int, as_json: bool) -> Checked:
    checked = Checked(limit)
    async with opened(url) as hf:
        lanes = {lane.id: lane for lane in await hf.store.agents.lanes()}
        counts = await hf.store.reads.runs_by_state(hf.namespace)
        total = sum(counts.get(state, 0) for state in IN_FLIGHT)
        with _progress(total) as say:
            async for run in _in_flight(hf):
                found = await _fit(hf, run.id, lanes)
                if found is None:
                    continue  # the run has ended in the meantime
                for finding in checked.add(*found):
                    if not as_json:
                        _print(finding)
                say(checked.runs)
    return checked


async def _in_flight(hf: Holdfast) -> AsyncIterator[RunRow]:
    where = RunFilter(states=tuple(str(state) for state in IN_FLIGHT), limit=PAGE, namespace=hf.namespace)
    while page := await hf.store.reads.runs(where):
        for run in page:
            yield run
        where.before = (page[-1].created_at, page[-1].id)


async def _fit(hf: Holdfast, run_id: str, lanes: dict[int, Lane]) -> tuple[RunRow, Fit] | None:
    """Return the run and how it fits, or None if the run has ended. The rows of a run are read one after
    the other while it may go on, so a finding counts only if reading the rows again gives the same rows, or after
    READS_MAX reads."""
    before: ClaimedRun | None = None
    reads = 0
    while (history := await _history(hf, run_id)) is not None:
        reads += 1
        found = fit(history, workflows=registry.workflows, find=registry.steps.get, lanes=lanes)
        if not found.misfits or history == before or reads == READS_MAX:
            return hf.shown(history.run), found
        before = history
    return None


async def _history(hf: Holdfast, run_id: str) -> ClaimedRun | None:
    run = await hf.store.reads.run(run_id)
    if run is None or run.state not in IN_FLIGHT:
        return None
    steps: list[StepRow] = []
    while page := await hf.store.reads.steps(run_id, after=steps[-1].n if steps else 0, limit=STEPS_PAGE):
        steps += page
    inherited = await hf.store.reads.inherited(run_id) if run.goes_on_from is not None else []
    return ClaimedRun(run, steps, await hf.store.reads.signals(run_id), inherited)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """At a terminal, show on standard error how many runs are checked."""
    screen = output.screen(to_errors=True)
    if not screen.is_terminal:
        yield lambda done: None
        return
    with screen.status(f"0 of {total:,} runs") as status:

        def say(done: int) -> None:
            if done % PROGRESS_EVERY == 0:
                status.update(f"{done:,} of {total:,} runs")

        yield say


def _print(finding: CheckFinding) -> None:
    run, misfit = finding
    glyph, colour = ("·", "bright_black") if misfit.is_note else ("✗", "red")
    print_words(f"{glyph} ", colour, end=False)
    print_words(f"{run.id} ({run.workflow} version {run.version}, {run.state}): ", end=False)
    if misfit.recorded is None or misfit.asked is None or misfit.is_note:
        print_words(misfit.message)
        return
    print_words(f"{misfit.kind} at step {misfit.step}" if misfit.step else misfit.kind)
    print_words(f"    recorded   {misfit.recorded}")
    print_words(f"    this code  {misfit.asked}")


def _print_sum(checked: Checked) -> None:
    if checked.left_out:
        print_words(f"{checked.left_out:,} more findings; --limit 0 lists all", dim=True)
    for (workflow, marker), ways in sorted(checked.markers.items()):
        print_words(f"· marker {marker} of {workflow}: {_marker_words(ways)}", dim=not ways.old)
    if not checked.runs:
        output.say("no run is open")
    elif not checked.unfit:
        fitting = "the open run fits" if checked.runs == 1 else f"all {checked.runs:,} open runs fit"
        output.say(f"{fitting} this code", RunState.SUCCEEDED)
    else:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(checked.kinds.items()))
        runs = wording.counted(checked.runs, "open run")
        output.say(f"{checked.unfit:,} of {runs} do not fit this code: {kinds}", RunState.FAILED)
        print_words(
            "  keep the old version beside the new one until its runs have ended, or deploy and decide for each held run",
            dim=True,
        )


def _marker_words(ways: Ways) -> str:
    if not ways.old:
        return "no open run goes the old way; once this code is deployed, remove the marker and its old way"
    goes = "goes" if ways.old == 1 else "go"
    return f"{wording.counted(ways.old, 'open run')} {goes} the old way"


def _object(checked: Checked) -> output.Object:
    return {
        "runs": checked.runs,
        "unfit": checked.unfit,
        "counts": dict(sorted(checked.kinds.items())),
        "findings": [
            {
                "run": run.id,
                "workflow": run.workflow,
                "version": run.version,
                "state": str(run.state),
                "kind": misfit.kind,
                "fits": misfit.is_note,
                "step": misfit.step,
                "recorded": misfit.recorded,
                "asked": misfit.asked,
                "message": misfit.message,
            }
            for run, misfit in checked.kept
        ],
        "left_out": checked.left_out,
        "markers": [
            {
                "workflow": workflow,
                "marker": marker,
                "old": ways.old,
                "new": ways.new,
                "needed": ways.old > 0,
            }
            for (workflow, marker), ways in sorted(checked.markers.items())
        ],
        "ok": not checked.unfit,
    }
