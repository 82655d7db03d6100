"""No verb of the store is left out of the comparison by mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from holdfast.environment import Environment
from holdfast.store import open_store
from holdfast.store.database import Noun
from holdfast.store.operations import Op
from holdfast.store.store import Store

RULES = Path(__file__).parent


EXCEPTIONS = {
    "url": "an address, not a verb",
    "answers": "reads what the hop of an answer wrote, which is compared; tests/roles/test_updates.py, on both stores",
    "sent_update": "reads the row of one update; tests/roles/test_updates.py, on both stores",
    "bare_steps": "reads rows for people, without payloads; tests/http/test_overview.py, on both stores",
    "child_ids": "the same",
    "open_steps": "the same",
    "waiting_lanes": "the same",
    "pending_codes": "the same",
    "ended_in": "the same",
    "count_ended": "the same",
    "count_meant": "the same",
    "started_runs": "reads what a hop that starts runs wrote, which is compared; tests/roles/test_started.py, on both stores",
    "declaration": "the same row as `declared`, by another key",
    "fork_run": "copies rows by the statements of retry_run; tests/roles/test_fork.py, on both stores",
    "schema": "a number, not a verb",
    "shared_url": "an address, not a verb",
    "heart_headers": "what goes to a server, not a verb",
    "open": "connects; tests/store/test_schema.py",
    "close": "disconnects",
    "migrate": "makes the tables; tests/store/test_schema.py",
    "now": "the clock, which is the model's in one dialect and moved by hand in the other",
    "register": "takes a lock on a file in one dialect; rows are made by hand; tests/store/test_nodes.py",
    "ring": "changes no row; tests/store/test_nodes.py",
    "listen": "changes no row; tests/store/test_nodes.py",
    "remote": "reads the row of one remote node; tests/remote/test_agents.py, on both stores",
    "claim": "claims as claim_steps does, which is compared, if the turn is not overtaken; the same",
    "begin_turns": "reconciles as reconcile does, which is compared, unless the turn is overtaken; the same",
    "shorten": "writes the lease of one remote node; the same",
    "refuse": "the second half of commit, which is compared",
    "token": "reads the row of one token; tests/store/test_tokens.py, on both stores",
    "tokens": "the same, of all",
    "these_tokens": "the same, of several",
    "add_token": "writes the row of one token, which nothing else reads or writes; tests/store/test_tokens.py",
    "rotate_token": "the same",
    "revoke_token": "the same",
    "use_token": "the same",
    "ask": "reads the row of one ask; tests/store/test_asks.py, on both stores",
    "open_asks": "the same",
    "ended_asks": "the same",
    "inbox": "the same",
    "asks_of": "the same",
    "due_asks": "the same",
    "any_promised": "reads what nothing else reads; tests/store/test_promises.py, on both stores",
    "promised_runs": "reads what nothing else reads; tests/store/test_promises.py, on both stores",
    "promised_runs_of": "the same",
    "promised_steps": "the same",
    "promised_steps_of": "the same",
    "raise_late": "writes an alert as raise_alerts does, which is compared; tests/store/test_promises.py",
    "next_ask": "the same",
    "answer": "writes rows that nothing else writes, and ends a waiting step; tests/store/test_asks.py, on both stores",
    "mind_ask": "the same",
    "delegate": "writes rows that nothing else writes; the same",
    "next_callback": "reads one time; tests/store/test_callbacks.py, on both stores",
    "expire_callbacks": "ends waiting steps that the model does not have; the same",
    "waiting_callbacks": "lists them; the same",
    "waiting_callbacks_of": "the same",
    "extend": "the same",
    "address": "reads a setting and the signing keys; tests/roles/test_callbacks.py, on both stores",
    "forget_audit": "the differential model has no ways, so it has no audit; tests/store/test_audit.py, on both stores",
    "journal_found": "the same",
    "journal_refused": "the same",
    "setting": "reads one row; tests/store/test_callbacks.py, on both stores",
    "set_setting": "writes a row that nothing else writes; the same",
    "signing_keys": "reads the keys that sign links; tests/http/test_links.py, on both stores",
    "certain_keys": "the same",
    "add_first_signing_key": "writes a row that nothing else writes; the same",
    "session": "reads the row of one session; tests/store/test_sessions.py, on both stores",
    "add_session": "writes the row of one session, which nothing else reads or writes; the same",
    "end_session": "the same",
    "any_queue": "the differential model knows queue 0 only; tests/store/test_queues.py and test_limits.py, on both stores",
    "number_queues": "the same",
    "known_queues": "the same",
    "waiting_queues": "the same",
    "fairs": "the same",
    "set_fair": "the same",
    "limits": "the same",
    "limit": "the same",
    "of_queue": "the same",
    "set_limit": "the same",
    "start_limited": "the same; tests/roles/test_limits.py",
    "queue_run": "the same; tests/roles/test_limits.py",
    "schedule": "reads the row of one schedule; tests/store/test_schedules.py, on both stores",
    "schedules": "the same",
    "seen": "the same",
    "fires": "the same",
    "fires_at": "the same",
    "taken_ids": "the same",
    "backfill": "the same",
    "backfills": "the same",
    "schedule_looks": "the same",
    "fire": "writes rows that nothing else writes, and starts runs by the statement of a start, which is compared; tests/store/test_schedules.py",
    "fill": "the same",
    "end_backfill": "the same",
    "end_fires": "the same",
    "declared_sets": "the same",
    "reconcile_schedules": "the same",
    "schedules_of": "the same",
    "gone_schedules": "the same",
    "other_tzdata": "the same",
    "create_schedule": "the same",
    "remove_schedule": "the same",
    "pause_schedule": "the same",
    "resume_schedule": "the same",
    "run_schedule": "the same",
    "add_backfill": "the same",
    "stop_backfill": "the same",
    "forget_fires": "the same",
    "forget_backfills": "the same",
    "forget_sets": "the same",
    "emit": "writes rows that nothing else writes, and starts and signals by statements that are compared; tests/store/test_events.py and tests/roles/test_events.py, on both stores",
    "emit_within": "the same",
    "catch_up": "the same",
    "open_waits": "the same",
    "event": "the same",
    "events": "the same",
    "triggers_on": "the same",
    "triggers_of": "the same",
    "declared_triggers": "the same",
    "reconcile_triggers": "the same",
    "forget_events": "the same",
    "arrive": "writes rows that nothing else writes, and starts runs by the statement of a start, which is compared; tests/store/test_occasions.py, on both stores",
    "composed": "the same",
    "composed_of": "the same",
    "composed_on": "the same",
    "declared_composed": "the same",
    "due_times": "the same",
    "drop_occasion": "the same",
    "forget_occasions": "the same",
    "judge_occasions": "the same",
    "occasion": "the same",
    "occasion_looks": "the same",
    "occasions": "the same",
    "reconcile_composed": "the same",
    "stale_occasions": "the same",
    "start_occasion": "the same",
    "adaptive_limits": "reads limits that find their number; tests/store/test_limits.py, on both stores",
    "move_limits": "moves their numbers, which nothing else does; the same",
    "observe_limits": "adds up how attempts went, which nothing else reads; the same",
    "run_traces": "reads tags, which are compared; tests/roles/test_traces.py, on both stores",
    "views": "writes rows that nothing else reads; tests/store/test_views.py, on both stores",
    "save_view": "the same",
    "remove_view": "the same",
    "hook": "reads the row of one hook; tests/store/test_hooks.py, on both stores",
    "hooks": "the same, of all",
    "add_hook": "writes the row of one hook, which nothing else reads or writes; tests/store/test_hooks.py",
    "rotate_hook": "the same",
    "remove_hook": "the same",
    "digest_key": "a row that nothing else reads or writes; tests/roles/test_sealed.py, on both stores",
    "add_digest_key": "the same",
    "reseal_digest_key": "the same",
    "forget_items": "takes away a copy of what the input has, which nothing else reads; the same",
    "rows": "reads payloads as they are; the same",
    "rewrite": "gives rows other payloads, which no other statement looks into; the same",
    "runs_by_namespace": "counts runs; tests/http/test_lists.py, on both stores",
    "graphless": "reads rows of workflows; tests/http, on both stores",
    "set_graphs": "writes the graphs of workflows, which nothing else writes; the same",
    "drawn": "reads one of them; the same",
    "take": "gathers starts into one run; tests/store/test_gathers.py, on both stores",
    "admit_runs": "lets runs begin whose time has come; tests/roles/test_delays.py, on both stores",
    "next_start": "reads when the next one may begin; the same",
    "duties": "reads whether other looks would find anything; tests/store/test_duties.py, on both stores",
    "start_within": "takes the caller's own transaction, another driver's; tests/store/test_starts.py and test_sqlite_shared.py",
}
"""Verbs that the state machines do not ask, and why."""


def verbs() -> set[str]:
    """Return all verbs of the store and of its nouns."""
    nouns = [
        noun
        for noun in vars(open_store("sqlite://:memory:", Environment())).values()
        if isinstance(noun, Noun)
    ]
    assert len(nouns) > 10
    parts = [part for noun in nouns for part in type(noun).__mro__ if issubclass(part, Noun)]
    declared = {name for part in [*parts, Store] for name in vars(part)}
    return {name for name in declared if not name.startswith("_")}


def rules_text() -> str:
    return "\n".join(path.read_text() for path in [*RULES.glob("rules/*.py"), RULES / "questions.py"])


def asked_verbs() -> set[str]:
    helpers = {"reclaim", "end_overdue"} & set(re.findall(r"\b(\w+)\(subject\.store", rules_text()))
    doubtful = {"doubtful_nodes"} if "deaths(subject.store)" in rules_text() else set()
    return set(re.findall(r"\.store\.\w+\.(\w+)\(", rules_text())) | helpers | doubtful


def test_every_verb_is_compared_or_excepted() -> None:
    """A new verb fails here until a rule asks it, or the list above has a reason."""
    asked = asked_verbs()
    assert verbs() - asked - EXCEPTIONS.keys() == set(), "neither asked by a rule nor excepted"
    assert EXCEPTIONS.keys() - verbs() == set(), "excepted, and not in the protocol any more"
    assert EXCEPTIONS.keys() & asked <= {"open", "close"}, "excepted, and asked all the same"


def test_every_operation_is_committed() -> None:
    """`commit` takes operations of several kinds, and the rules make each of them."""
    made = set(re.findall(r"\b(\w+)\(", rules_text()))
    assert {op.__name__ for op in get_args(Op)} - made == set()
