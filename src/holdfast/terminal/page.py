"""The page about one run, with everything there is to show of it; also as JSON. `printed_page.py` prints it for
people."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model import JournalEntry, RunRow, SignalRow
from holdfast.run import RunRows
from holdfast.supervisor.outlook import Outlook
from holdfast.terminal import output, wording


class Page(NamedTuple):
    view: RunRows
    signals: list[SignalRow]
    children: list[RunRow]
    journal: list[JournalEntry]
    why: str
    now: float
    outlook: Outlook


def page_object(page: Page) -> output.Object:
    run, attempts = page.view.run, wording.attempts_of(page.view.attempts)
    return output.run_object(run) | {
        "input": wording.plain_value(run.input),
        "output": wording.plain_value(run.output),
        "error": output.error_object(run.error),
        "kept": wording.kept_steps(run, page.view.steps),
        "published": wording.plain_object(run.published),
        "why": page.why,
        "eta": output.eta_object(page.outlook.eta, page.now),
        "steps": [
            output.whole_step_object(step, attempts.get(step.n, []))
            | {
                "straggler": page.outlook.straggles(step, page.now),
                "twin": output.twin_object(page.outlook.twins.get(step.n)),
            }
            for step in page.view.steps
        ],
        "signals": [output.signal_object(signal) for signal in page.signals],
        "children": [
            {"id": child.id, "workflow": child.workflow, "state": str(child.state), "n": child.parent_n}
            for child in page.children
        ],
        "journal": [output.journal_object(entry) for entry in page.journal],
    }
