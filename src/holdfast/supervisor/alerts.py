"""What is worth an alert: the leader's rules, and the pass that applies them.

The node that writes that a run or step failed, that a run must be held or that a signal was set aside also writes a
note of it, so the leader need not search for them. An alert about a node is raised when the node is reclaimed, one
about a stuck run when it gets stuck. The leader finds by an index what has been waiting too long. Equal things are one
alert while it is open: it is sent once, and counts how often they happened.

May change: alerts, and the notes it made them from. Must never: look into a payload, send anything (see outbox.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Sequence

from holdfast.config import Config
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import Alert, AlertKind, Ending, LeaderLease, Level, NewAlert, RunState, StepKind, spent
from holdfast.store.answers import FailureNote, Late
from holdfast.store.roles import SupervisorStore
from holdfast.supervisor.phrases import parsed

log = logging.getLogger("holdfast.alerts")

BACKLOGS_MAX = 40
"""At most this many backlog alerts are open at once, one for each step or workflow."""
MESSAGE_MAX_CHARS = 500
COUNTED = frozenset(
    {
        AlertKind.RUN_FAILED,
        AlertKind.RUN_HELD,
        AlertKind.STEP_EXHAUSTED,
        AlertKind.SIGNAL_SET_ASIDE,
        AlertKind.AGENT_OFFLINE,
        AlertKind.LEADER_LOST,
        AlertKind.ASK,
    }
)
"""Kinds that are events, not states. An alert counts such events for `alert_window_s`, and then it is cleared."""
_LOG_LEVELS = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}


async def raise_failures(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Raise alerts for the failures noted since the last pass, and return how many. What exceeds `claim_max` waits for
    the next pass."""
    notes = await store.alerts.failures(config.claim_max)
    if not notes:
        return 0
    alerts = judge_failures(notes)
    await store.alerts.raise_alerts(epoch, alerts, [note.id for note in notes])
    return len(alerts)


async def watch_backlog(
    store: SupervisorStore, epoch: int, config: Config, now: float, kinds: Collection[str]
) -> int:
    """Raise an alert for each backlog, clear the alerts of backlogs that are gone, and clear alerts about events whose
    window is over. `kinds` are those that are open. Return how many are new."""
    most = config.claim_max
    late = [
        await store.alerts.late_steps(config.backlog_s, most),
        await store.alerts.late_runs(config.backlog_s, most),
        await store.alerts.late_wakes(config.backlog_s, most, most),
    ]
    whole = all(len(part) < most for part in late)
    lasting = judge_backlog(late[0], late[1] + late[2], now)
    new = await reconcile(
        store, epoch, config, AlertKind.BACKLOG, lasting, kinds, whole=whole, most=BACKLOGS_MAX
    )
    for kind in sorted(COUNTED.intersection(kinds)):
        over = [one.id for one in await opened(store, config, kind) if one.at < now - config.alert_window_s]
        if over:
            await store.alerts.clear_alerts(epoch, over)
    return new


async def opened(store: SupervisorStore, config: Config, kind: AlertKind) -> list[Alert]:
    """Return all open alerts of this kind, oldest first. They are read in parts."""
    found: list[Alert] = []
    while True:
        part = await store.alerts.open_alerts_of(kind, found[-1].id if found else 0, config.claim_max)
        found += part
        if len(part) < config.claim_max:
            return found


async def reconcile(
    store: SupervisorStore,
    epoch: int,
    config: Config,
    kind: AlertKind,
    lasting: Sequence[NewAlert],
    kinds: Collection[str],
    *,
    whole: bool = True,
    most: int | None = None,
) -> int:
    """Make the open alerts of a kind that is a state match `lasting`: raise what is not open yet, clear what no longer
    lasts. `kinds` are those that are open: only the leader opens alerts, so the others need not be read. Return how many
    are new. See `compare` for `whole` and `most`."""
    known = await opened(store, config, kind) if kind in kinds else []
    new, over = compare(known, lasting, whole=whole, most=most)
    if over:
        await store.alerts.clear_alerts(epoch, over)
    if new:
        await store.alerts.raise_alerts(epoch, new)
    return len(new)


async def raise_succession(store: SupervisorStore, leader: LeaderLease) -> None:
    """Raise an alert that the leader before was lost and that this one has taken over."""
    after = f" {leader.vacant_s:.1f} s after its last sign of life" if leader.vacant_s is not None else ""
    message = f"leader {leader.predecessor} is lost; {leader.node} took over{after} and leads in epoch {leader.epoch}"
    await store.alerts.raise_alerts(
        leader.epoch, [NewAlert(AlertKind.LEADER_LOST, Level.WARNING, AlertKind.LEADER_LOST, message)]
    )


async def log_alerts(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Write each new alert to the leader's log once, whoever raised it and whether or not a channel is configured.
    Return how many."""
    alerts = await store.alerts.log_alerts(epoch, config.claim_max)
    for alert in alerts:
        log.log(_LOG_LEVELS[Level(alert.level)], "%s: %s", alert.kind, in_words(alert))
    return len(alerts)


# --- judgements: rows in, alerts out -----------------------------------------------------------------------------


def judge_failures(notes: Iterable[FailureNote]) -> list[NewAlert]:
    """Return one alert for each workflow with failed or held runs, each step name that used up its attempts, each
    fingerprint in quarantine, and each workflow and name of signals that were set aside. Each says how many there
    were."""
    found: dict[str, NewAlert] = {}
    for note in notes:
        if note.n < 0:
            alert = _signal_set_aside(note)
        else:
            alert = _failed_run(note) if note.n == 0 else _failed_step(note)
        if alert is None:
            continue
        first = found.get(alert.key)
        if first is not None:
            alert = NewAlert(first.kind, first.level, first.key, first.message, first.run_id, first.times + 1)
        found[alert.key] = alert
    return list(found.values())


def _failed_run(note: FailureNote) -> NewAlert | None:
    """Return an alert about a run that failed or had to be held. The failure of a child is its parent's business; that
    a child had to be held is worth an alert."""
    if note.workflow is None:
        return None
    if note.state == RunState.HELD:
        message = (
            f"run {note.run_id} of {note.workflow} is held: {_bug(note)}`holdfast why {note.run_id}` says why"
        )
        key = f"{AlertKind.RUN_HELD}:{note.workflow}"
        return NewAlert(AlertKind.RUN_HELD, Level.ERROR, key, trimmed(message), note.run_id)
    if note.parent_id is not None or note.state not in RUN_ENDED:
        return None  # a child's failure, or a run that was held when the note was written and has been released since
    ended = "failed and was undone" if note.state == RunState.UNDONE else "failed"
    message = f"run {note.run_id} of {note.workflow} {ended}{_reason(note.error)}"
    key = f"{AlertKind.RUN_FAILED}:{note.workflow}"
    return NewAlert(AlertKind.RUN_FAILED, Level.ERROR, key, trimmed(message), note.run_id)


def _bug(note: FailureNote) -> str:
    """Say what the workflow code of a held run raised, and where. Empty if the run is held for another reason."""
    held = parsed(note.error)
    return f"its code raised {held.get('message', '')}; " if held.get("why") == "bug" else ""


def _signal_set_aside(note: FailureNote) -> NewAlert | None:
    if note.workflow is None or note.error is None:
        return None
    message = (
        f"run {note.run_id} of {note.workflow} set a signal {note.name!r} aside: {note.error}; "
        f"`holdfast why {note.run_id}` says what it waits for"
    )
    key = f"{AlertKind.SIGNAL_SET_ASIDE}:{note.workflow}:{note.name}"
    return NewAlert(AlertKind.SIGNAL_SET_ASIDE, Level.WARNING, key, trimmed(message), note.run_id)


def _failed_step(note: FailureNote) -> NewAlert | None:
    if note.fingerprint is not None:
        return _quarantined_step(note, note.fingerprint)
    return _exhausted_step(note)


def _quarantined_step(note: FailureNote, fingerprint: str) -> NewAlert:
    message = (
        f"step {note.key} of run {note.run_id} is in quarantine ({fingerprint}) after {_tries(note)}"
        f"{_reason(note.error)}; `holdfast quarantine` lists what you can release, skip or fail"
    )
    key = quarantine_key(fingerprint)
    return NewAlert(AlertKind.STEP_QUARANTINED, Level.ERROR, key, trimmed(message), note.run_id)


def quarantine_key(fingerprint: str) -> str:
    return f"{AlertKind.STEP_QUARANTINED}:{fingerprint}"


def _exhausted_step(note: FailureNote) -> NewAlert | None:
    """Return an alert about a call that failed because one of its budgets was used up; None for any other step. A step
    that must not be retried has not used up its budget. An undo that gives up makes its run stuck, which has its own
    alert."""
    if note.kind != StepKind.CALL:
        return None
    if spent(note) < note.attempts_max and not _ran_out(note.error):
        return None
    message = f"step {note.key} of run {note.run_id} gave up after {_tries(note)}{_reason(note.error)}"
    key = f"{AlertKind.STEP_EXHAUSTED}:{note.name}"
    return NewAlert(AlertKind.STEP_EXHAUSTED, Level.WARNING, key, trimmed(message), note.run_id)


def _tries(note: FailureNote) -> str:
    return "1 attempt" if note.attempt == 1 else f"{note.attempt} attempts"


def _ran_out(error: str | None) -> bool:
    """True if the step failed by another budget than that of its own errors: by timeouts, losses, or requests to retry
    later."""
    try:
        fields = json.loads(error or "{}")
    except ValueError:
        return False
    return (
        fields.get("ending") in (Ending.TIMED_OUT, Ending.LOST)
        or fields.get("type") == "holdfast.errors.RetryIn"
    )


def judge_backlog(steps: Iterable[Late], runs: Iterable[Late], now: float) -> list[NewAlert]:
    """Return an alert for each step and workflow with a backlog, the oldest first. Several lanes of one step are one
    alert."""
    found: dict[str, NewAlert] = {}
    waiting = [(one, "step", "an agent") for one in steps] + [(one, "run", "a scheduler") for one in runs]
    for late, what, who in sorted(waiting, key=lambda item: item[0].since):
        key = f"{AlertKind.BACKLOG}:{what}:{late.what}"
        message = (
            f"{what} {late.what} has been waiting for {who} for {now - late.since:.0f} s: "
            f"`holdfast why {late.run_id}` says why"
        )
        alert = NewAlert(AlertKind.BACKLOG, Level.WARNING, key, trimmed(message), late.run_id)
        found.setdefault(key, alert)
    return list(found.values())


def compare(
    known: Sequence[Alert], lasting: Sequence[NewAlert], *, whole: bool = True, most: int | None = None
) -> tuple[list[NewAlert], list[int]]:
    """Return (alerts to raise, ids of alerts to clear), given the open alerts of a kind and what lasts now. If not
    `whole`, the caller did not see everything that lasts, so nothing is cleared. At most `most` alerts are open
    afterwards."""
    keys, lasts = {one.key for one in known}, {alert.key for alert in lasting}
    new = [alert for alert in lasting if alert.key not in keys]
    over = [one.id for one in known if one.key not in lasts] if whole else []
    room = len(new) if most is None else max(0, most - len(known) + len(over))
    return new[:room], over


def in_words(alert: Alert) -> str:
    """Return an alert as one line. The message of a stuck run is recorded as an error in JSON, which is put into words
    here."""
    if alert.kind == AlertKind.RUN_STUCK:
        what_next = f"`holdfast why {alert.run_id}` says what you can do"
        return trimmed(f"run {alert.run_id} is stuck ({what_next}){_reason(alert.message)}")
    return alert.message


def _reason(error: str | None) -> str:
    if not error:
        return ""
    try:
        fields = json.loads(error)
    except ValueError:
        return f": {error}"
    kind = str(fields.get("type", "")).rsplit(".", 1)[-1]
    return ": " + ": ".join(part for part in (kind, str(fields.get("message", ""))) if part)


def trimmed(text: str) -> str:
    """Return the text as one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX_CHARS else line[: MESSAGE_MAX_CHARS - 1] + "…"
