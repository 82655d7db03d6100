"""The page that `show` prints for people."""

from __future__ import annotations

import shlex

from rich.padding import Padding
from rich.table import Table

from holdfast.codec import describe_error
from holdfast.codec.secret import masked_json
from holdfast.lateness import due_words
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import CANCEL, DEADLINE, OCCASION_TAGS, RunRow, RunState, StepKind
from holdfast.terminal import output, wording
from holdfast.terminal.page import RunPage
from holdfast.terminal.screen import Screen, Text, payload, styled_state
from holdfast.terminal.timeline import timeline
from holdfast.workflow.pages import shown_as

OTHERS_SHOWN = 20
"""At most this many signals, children and journal entries are shown: the last ones."""
Rows = list[tuple[str, ...]]


def print_page(page: RunPage, limit: int) -> None:
    run, screen = page.view.run, output.screen()
    short = run.workflow.rsplit(".", 1)[-1]
    screen.print(Text.assemble(styled_state(run.state), "  ", (short, "bold"), "  ", run.id, overflow="fold"))
    screen.print(Padding(_facts(page), (0, 0, 0, 2)))
    steps = [step for step in page.view.steps if step.key != DEADLINE]
    if steps:
        chosen, left_out = wording.chosen_steps(steps, limit or len(steps))
        begun = min(run.created_at, steps[0].issued_at)
        ended = run.finished_at or page.now
        attempts = wording.attempts_of(page.view.attempts)
        screen.print()
        screen.print(
            timeline(
                chosen,
                attempts,
                begun,
                ended,
                page.now,
                screen.width,
                outlook=page.outlook,
                log_lines=page.log_lines,
            )
        )
        if left_out:
            total, shown = (
                sum(step.kind is not StepKind.MARKER for step in rows) for rows in (steps, chosen)
            )
            note = f"{total:,} steps, {shown:,} of them shown: --limit 0 shows all, and so does --json"
            screen.print(Text(note, style="bright_black"))
    for heading, rows in (
        ("signals", _signals(page)),
        ("updates", _updates(page)),
        ("children", [*_pages(page.children), *_runs(_apart(page.children))]),
        ("started", _runs(page.started)),
        ("journal", _journal(page)),
    ):
        if rows:
            screen.print()
            screen.print(Text(heading, style="bold"))
            _print_rows(screen, rows)


def _facts(page: RunPage) -> Table:
    run = page.view.run
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bright_black", no_wrap=True)
    facts.add_column(overflow="fold")

    def fact(name: str, value: object) -> None:
        if value:
            facts.add_row(name, value if isinstance(value, Text) else Text(str(value)))

    fact("workflow", f"{run.workflow} version {run.version}")
    ago = wording.span(page.now - run.created_at)
    fact("started", f"{output.local_time(run.created_at)}, {ago} ago")
    fact("took" if run.finished_at else "so far", wording.run_took(run, page.now))
    fact("eta", wording.left(page.outlook.eta))
    if run.begin_at is not None and run.begin_at > page.now and run.state is RunState.PENDING:
        fact("begins", f"{output.local_time(run.begin_at)}, in {wording.span(run.begin_at - page.now)}")
    if run.deadline is not None and run.state not in RUN_ENDED:
        fact("deadline", f"in {wording.span(run.deadline - page.now)}")
    if run.due_at is not None:
        promise = due_words(run.due_at, run.finished_at, page.now, page.outlook.eta)
        fact("due", f"{output.local_time(run.due_at)}, {promise}")
    tags = wording.plain_object(run.tags)
    fact("tags", ", ".join(f"{key}={value}" for key, value in tags.items() if key not in OCCASION_TAGS))
    fact("for", wording.occasion(tags))
    fact("parent", run.parent_id)
    fact("started by", run.started_by)
    fact("retry of", run.retry_of)
    fact("forked from", run.forked_from)
    fact("generation", run.generation if run.generation > 1 else "")
    fact("progress", wording.progress_words(run.progress))
    if run.state not in RUN_ENDED:
        fact("why", page.why)
    fact("input", payload(wording.plain_value(run.input)))
    for key, value in wording.plain_object(run.published).items():
        fact("published", Text.assemble(f"{key}: ", payload(value)))
    if run.output is not None:
        fact("output", payload(wording.plain_value(run.output)))
    fact("error", _error(run))
    fact("raised", _bug(run))
    fact("kept", wording.trimmed(", ".join(wording.kept_steps(run, page.view.steps)), 400))
    if lines := sum(page.log_lines.values()):
        fact("logs", f"{wording.lines(lines)}: `holdfast logs {shlex.quote(run.id)}` prints them")
    if run.state == "failed":
        fact("next", f"`holdfast retry {shlex.quote(run.id)}` tries again, and keeps what succeeded")
    return facts


def _error(run: RunRow) -> Text | None:
    if run.error is None:
        return Text(run.note or "", style="red") if run.state in {"failed", "cancelled", "undone"} else None
    return _traced(run.error)


def _bug(run: RunRow) -> Text | None:
    """Return what the workflow code raised, if the run is held for it."""
    bug = wording.bug_of(run)
    return None if bug is None else _traced(bug)


def _traced(raw: str) -> Text:
    error = wording.plain_object(raw)
    found = Text(describe_error(raw), style="red")
    notes = error.get("notes")
    for note in notes if isinstance(notes, list) else ():
        found.append(f"\n{note}", style="bright_black")
    if trace := str(error.get("traceback", "")).strip("\n"):
        found.append(f"\n{trace}", style="bright_black")
    return found


def _signals(page: RunPage) -> Rows:
    rows: Rows = []
    for signal in page.signals:
        if signal.name.startswith("$") and signal.name != CANCEL:
            continue  # Holdfast sends these to itself
        name, content = wording.signal_words(signal)
        status = "" if signal.delivered_seq is not None else "not delivered yet"
        if signal.set_aside is not None:
            status = f"set aside: {signal.set_aside}"
        rows.append((output.local_time(signal.sent_at), name, wording.trimmed(content, 120), status))
    return rows


def _updates(page: RunPage) -> Rows:
    return [
        (
            output.local_time(row.sent_at),
            row.update,
            wording.trimmed(masked_json(row.payload).decode(errors="backslashreplace"), 120),
            wording.trimmed(wording.answer_words(row), 120),
        )
        for row in page.signals
        if row.update is not None
    ]


def _apart(children: list[RunRow]) -> list[RunRow]:
    """Return the children that are not pages of a `map`."""
    return [child for child in children if shown_as(child.input) is None]


def _pages(children: list[RunRow]) -> Rows:
    """Fold the pages of each `map` into a line for each of their states."""
    counts: dict[tuple[str, str], int] = {}
    for child in children:
        if (name := shown_as(child.input)) is not None:
            counts[name, child.state] = counts.get((name, child.state), 0) + 1
    return [
        (f"{wording.GLYPHS[state]} {state}", f"{count:,} pages of {name}")
        for (name, state), count in counts.items()
    ]


def _runs(runs: list[RunRow]) -> Rows:
    return [
        (f"{wording.GLYPHS[child.state]} {child.state}", child.id, child.workflow, wording.failure(child))
        for child in runs
    ]


def _journal(page: RunPage) -> Rows:
    return [
        (
            output.local_time(entry.at),
            entry.actor if entry.via is None else f"{entry.actor} ({entry.via})",
            entry.verb,
            wording.trimmed(entry.note or "", 120),
        )
        for entry in reversed(page.journal)
    ]


def _print_rows(screen: Screen, rows: Rows) -> None:
    shown = Table.grid(padding=(0, 2))
    for row in rows[-OTHERS_SHOWN:]:
        shown.add_row(*(Text(cell, style="bright_black" if at == 0 else "") for at, cell in enumerate(row)))
    screen.print(shown)
    if len(rows) > OTHERS_SHOWN:
        screen.print(
            Text(f"the last {OTHERS_SHOWN} of {len(rows):,}: --json shows all", style="bright_black")
        )
