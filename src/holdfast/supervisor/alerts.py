"""What is worth an alert: the leader's rules, and the pass that applies them.

Runs and steps that fail, runs that have to be held and signals that are set aside are noted by whoever writes them, so
nothing is searched for; nodes are told when they are buried, stuck runs when they stick. What waits too long is looked for by index. Equal things are one alert while it is
open: it is told once, and counted.

May change: alerts, and the notes it made them from. Must never: look into a payload, send anything (see outbox.py).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence

from holdfast.config import Config
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import Alert, AlertKind, Ending, LeaderLease, Level, NewAlert, RunState, StepKind, spent
from holdfast.store.answers import FailureNote, Late
from holdfast.store.roles import SupervisorStore

log = logging.getLogger("holdfast.alerts")

WAYS_MAX = 40
"""How many steps and workflows with a backlog are told of at once."""
MESSAGE_MAX_CHARS = 500
COUNTED = frozenset(
    {
        AlertKind.RUN_FAILED,
        AlertKind.RUN_HELD,
        AlertKind.STEP_EXHAUSTED,
        AlertKind.SIGNAL_SET_ASIDE,
        AlertKind.AGENT_OFFLINE,
        AlertKind.LEADER_LOST,
    }
)
"""Kinds that happen rather than last: an alert gathers them for its window, and then closes."""
_LOG_LEVELS = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}


async def raise_failures(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Make alerts of the failures noted since the last look. Bounded: what is left waits for the next pass."""
    notes = await store.alerts.failures(config.claim_max)
    if not notes:
        return 0
    alerts = judge_failures(notes)
    await store.alerts.raise_alerts(epoch, alerts, [note.id for note in notes])
    return len(alerts)


async def watch_backlog(store: SupervisorStore, epoch: int, config: Config, now: float) -> int:
    """Raise what waits longer than its bound, clear what does not any more, and close the windows that are over."""
    most = config.claim_max
    late = [
        await store.alerts.late_steps(config.backlog_s, most),
        await store.alerts.late_runs(config.backlog_s, most),
        await store.alerts.late_wakes(config.backlog_s, most, most),
    ]
    whole = all(len(part) < most for part in late)
    lasting = judge_backlog(late[0], late[1] + late[2], now)
    new = await reconcile(store, epoch, config, AlertKind.BACKLOG, lasting, whole=whole, most=WAYS_MAX)
    for kind in sorted(COUNTED):
        over = [one.id for one in await opened(store, config, kind) if one.at < now - config.alert_window_s]
        if over:
            await store.alerts.clear_alerts(epoch, over)
    return new


async def opened(store: SupervisorStore, config: Config, kind: AlertKind) -> list[Alert]:
    """All open alerts of this kind, oldest first, read in parts."""
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
    *,
    whole: bool = True,
    most: int | None = None,
) -> int:
    """Of a kind that lasts: raise what is not open yet, clear what does not last any more; how many are new."""
    new, over = compare(await opened(store, config, kind), lasting, whole=whole, most=most)
    if over:
        await store.alerts.clear_alerts(epoch, over)
    if new:
        await store.alerts.raise_alerts(epoch, new)
    return len(new)


async def raise_succession(store: SupervisorStore, leader: LeaderLease) -> None:
    """The leader was lost, and this one leads instead of it."""
    after = f", {leader.vacant_s:.1f} s after its last sign of life" if leader.vacant_s is not None else ""
    message = f"leader {leader.predecessor} is lost; {leader.node} leads in epoch {leader.epoch}{after}"
    await store.alerts.raise_alerts(
        leader.epoch, [NewAlert(AlertKind.LEADER_LOST, Level.WARNING, AlertKind.LEADER_LOST, message)]
    )


async def log_alerts(store: SupervisorStore, epoch: int, config: Config) -> int:
    """Every alert stands in the leader's log once, whoever raised it and whether or not a channel is configured."""
    alerts = await store.alerts.log_alerts(epoch, config.claim_max)
    for alert in alerts:
        log.log(_LOG_LEVELS[Level(alert.level)], "%s: %s", alert.kind, in_words(alert))
    return len(alerts)


# --- judgements: rows in, alerts out -----------------------------------------------------------------------------


def judge_failures(notes: Iterable[FailureNote]) -> list[NewAlert]:
    """Failed runs by workflow, exhausted steps by name, poison by fingerprint, signals that were set aside by workflow and
    name: each once, with how many there were."""
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
    """A child's end is its parent's affair; that its scheduler had to hold it is not."""
    if note.workflow is None:
        return None
    if note.state == RunState.HELD:
        message = f"run {note.run_id} of {note.workflow} is held: `holdfast why {note.run_id}` says why"
        key = f"{AlertKind.RUN_HELD}:{note.workflow}"
        return NewAlert(AlertKind.RUN_HELD, Level.ERROR, key, message, note.run_id)
    if note.parent_id is not None or note.state not in RUN_ENDED:
        return None  # held when it was noted, and released since
    ended = "failed and took itself back" if note.state == RunState.UNDONE else "failed"
    message = f"run {note.run_id} of {note.workflow} {ended}{_reason(note.error)}"
    key = f"{AlertKind.RUN_FAILED}:{note.workflow}"
    return NewAlert(AlertKind.RUN_FAILED, Level.ERROR, key, trimmed(message), note.run_id)


def _signal_set_aside(note: FailureNote) -> NewAlert | None:
    if note.workflow is None or note.error is None:
        return None
    message = (
        f"run {note.run_id} of {note.workflow} set a signal {note.name!r} aside: {note.error}; "
        f"`holdfast why {note.run_id}` says how it goes on"
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
        f"{_reason(note.error)}: `holdfast quarantine` lists what to release, skip or fail"
    )
    key = quarantine_key(fingerprint)
    return NewAlert(AlertKind.STEP_QUARANTINED, Level.ERROR, key, trimmed(message), note.run_id)


def quarantine_key(fingerprint: str) -> str:
    return f"{AlertKind.STEP_QUARANTINED}:{fingerprint}"


def _exhausted_step(note: FailureNote) -> NewAlert | None:
    """A step that was told not to retry, or whose failure is not its own, is not exhausted; of an undo, `stuck` tells."""
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
    """Did another budget than that of the step's own errors end it: by timeouts, losses, or requests to come later?"""
    try:
        told = json.loads(error or "{}")
    except ValueError:
        return False
    return (
        told.get("ending") in (Ending.TIMED_OUT, Ending.LOST) or told.get("type") == "holdfast.errors.RetryIn"
    )


def judge_backlog(steps: Iterable[Late], runs: Iterable[Late], now: float) -> list[NewAlert]:
    """Oldest first; several lanes of one step are one alert."""
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
    """What to raise of what lasts, and the ids of what to clear of the open alerts of its kind. Unless `whole`, there is more
    than was looked at, and what is not among it may last all the same: nothing is cleared. No more than `most` are open."""
    keys, lasts = {one.key for one in known}, {alert.key for alert in lasting}
    new = [alert for alert in lasting if alert.key not in keys]
    over = [one.id for one in known if one.key not in lasts] if whole else []
    room = len(new) if most is None else max(0, most - len(known) + len(over))
    return new[:room], over


def in_words(alert: Alert) -> str:
    """An alert as one line. A stuck run's message is the error as it was recorded."""
    if alert.kind == AlertKind.RUN_STUCK:
        return trimmed(f"run {alert.run_id} is stuck{_reason(alert.message)}: a person must look")
    return alert.message


def _reason(error: str | None) -> str:
    if not error:
        return ""
    try:
        told = json.loads(error)
    except ValueError:
        return f": {error}"
    kind = str(told.get("type", "")).rsplit(".", 1)[-1]
    return ": " + ": ".join(part for part in (kind, str(told.get("message", ""))) if part)


def trimmed(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= MESSAGE_MAX_CHARS else line[: MESSAGE_MAX_CHARS - 1] + "…"
