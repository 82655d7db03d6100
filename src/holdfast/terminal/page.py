"""The page about one run, with everything there is to show of it; also as JSON. `printed_page.py` prints it for
people."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model import JournalEntry, RunRow, SignalRow
from holdfast.run import RunRows
from holdfast.supervisor.outlook import Outlook
from holdfast.terminal import output, wording


class RunPage(NamedTuple):
    view: RunRows
    signals: list[SignalRow]
    children: list[RunRow]
    started: list[RunRow]
    """Runs that this run started, and that are not its children."""
    journal: list[JournalEntry]
    why: str
    now: float
    outlook: Outlook
    log_lines: dict[int, int]
    """How many lines each step has logged that are kept. 0 is the workflow's own code."""


def page_object(page: RunPage) -> output.Object:
    run, attempts = page.view.run, wording.attempts_of(page.view.attempts)
    return output.run_object(run) | {
        "input": wording.plain_value(run.input),
        "output": wording.plain_value(run.output),
        "error": output.error_object(run.error),
        "log_lines": sum(page.log_lines.values()),
        "kept": wording.kept_steps(run, page.view.steps),
        "published": wording.plain_object(run.published),
        "why": page.why,
        "eta": output.eta_object(page.outlook.eta, page.now),
        "steps": [
            output.whole_step_object(step, attempts.get(step.n, []))
            | {
                "straggler": page.outlook.straggles(step, page.now),
                "twin": output.twin_object(page.outlook.twins.get(step.n)),
                "log_lines": page.log_lines.get(step.n, 0),
            }
            for step in page.view.steps
        ],
        "signals": [output.signal_object(signal) for signal in page.signals if signal.update is None],
        "updates": [output.update_object(signal) for signal in page.signals if signal.update is not None],
        "children": [
            {"id": child.id, "workflow": child.workflow, "state": str(child.state), "n": child.parent_n}
            for child in page.children
        ],
        "started": [
            {"id": run.id, "workflow": run.workflow, "state": str(run.state)} for run in page.started
        ],
        "journal": [output.journal_object(entry) for entry in page.journal],
    }
