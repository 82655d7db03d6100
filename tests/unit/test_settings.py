"""Every setting is read, and has an effect. Where a pure function decides, this is shown here; otherwise a test is
named that shows it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import breaker, policy
from holdfast.agent.gatekeeper import Window
from holdfast.breaker import BreakerLook
from holdfast.config import Config
from holdfast.policy import Retry
from holdfast.pool.plan import Load, Member, Strength, next_start_at, plan, weigh
from holdfast.sketch import Sketch, bucket_of
from holdfast.supervisor import hedge, outbox, retention, stragglers
from holdfast.supervisor.leadership import lease_s
from tests.unit.test_breaker import CLOSED, NOW, PROBING, probed, row

ROOT = Path(__file__).parents[2]
FIELDS = Config.__struct_fields__


def _sketch() -> Sketch:
    return Sketch({bucket_of(7.0): 25})


def _turned(config: Config) -> int:
    window = Window(0.0)
    window.now = [0, 1]
    window.turn(12.0, config.breaker_window_s)
    return window.failed


def _member(**more: Any) -> Member:
    return Member(
        "m", 2, NOW - 100, **({"live": True, "came_up": True, "assignments": 1, "full": 0.1} | more)
    )


def _strength(*members: Member, **more: Any) -> Strength:
    values = {"wanted": max(1, len(members)), "generation": 2, "proven": True}
    return Strength(1, 8, members=members, **(values | more))


CRASHED = _strength(_member(), crashes=(NOW - 2, NOW - 1))
WAVE = BreakerLook(row(PROBING, wave=2, allowance=0, ok=2), 0, True)
IDLE = _strength(_member(), _member(), quiet_since=NOW - 10)

DECIDED: dict[str, tuple[Any, Callable[[Config], object]]] = {
    "losses_max": (0, lambda config: policy.after_loss(Retry(), 1, config)),
    "loss_back_off_s": (9.0, lambda config: policy.after_loss(Retry(), 1, config)),
    "loss_back_off_max_s": (0.5, lambda config: policy.after_loss(Retry(), 2, config)),
    "breaker_failures_min": (5, lambda config: breaker.trips(0, 9, config)),
    "breaker_rate": (0.9, lambda config: breaker.trips(10, 20, config)),
    "breaker_wait_s": (
        5.0,
        lambda config: breaker.decide(BreakerLook(row(CLOSED, failed=30), 0, True), NOW, config),
    ),
    "breaker_window_s": (30.0, _turned),
    "breaker_open_s": (
        9.0,
        lambda config: breaker.decide(BreakerLook(row(CLOSED, failed=30), 0, True), NOW, config),
    ),
    "breaker_open_max_s": (6.0, lambda config: breaker.longer_s(5.0, config)),
    "breaker_growth": (3, lambda config: breaker.decide(WAVE, NOW, config)),
    "breaker_wave_max": (2, lambda config: breaker.decide(WAVE, NOW, config)),
    "probe_lost_s": (99.0, lambda config: breaker.decide(probed(2, 0, told_at=NOW - 9), NOW, config)),
    "alert_back_off_s": (9.0, lambda config: outbox.back_off_s(1, config, 0.5)),
    "alert_back_off_max_s": (9.0, lambda config: outbox.back_off_s(9, config, 0.5)),
    "keep_days": (1.0, retention.keeps_s),
    "keep_failed_days": (1.0, retention.keeps_s),
    "leader_lease_s": (9.0, lease_s),
    "straggler_samples": (20, lambda config: stragglers.bound_of(_sketch(), config)),
    "straggler_factor": (9.0, lambda config: stragglers.bound_of(_sketch(), _few(config))),
    "straggler_floor_s": (99.0, lambda config: stragglers.bound_of(_sketch(), _few(config))),
    "hedge_samples": (99, lambda config: hedge.bound_of(_sketch(), config)),
    "hedge_factor": (9.0, lambda config: hedge.bound_of(_sketch(), config)),
    "hedge_floor_s": (99.0, lambda config: hedge.bound_of(_sketch(), config)),
    "pool_wait_s": (9.0, lambda config: weigh(_strength(_member()), Load(5, 3.0), NOW, config)),
    "pool_idle_s": (1.0, lambda config: weigh(IDLE, Load(0, 0.0), NOW, config)),
    "pool_window_s": (1.5, lambda config: weigh(CRASHED, None, NOW, config)),
    "pool_crashes_max": (1, lambda config: weigh(CRASHED, None, NOW, config)),
    "pool_back_off_s": (5.0, lambda config: next_start_at(CRASHED, config)),
    "pool_slow_s": (0.1, lambda config: next_start_at(CRASHED, config)),
    "pool_steady_s": (
        500.0,
        lambda config: weigh(CRASHED._replace(troubled_since=NOW - 150), None, NOW, config),
    ),
    "pool_live_s": (
        500.0,
        lambda config: plan(_strength(_member(live=False, came_up=False)), NOW, config),
    ),
    "drain_s": (500.0, lambda config: plan(_strength(_member(leaving_since=NOW - 90)), NOW, config)),
    "lease_s": (500.0, lambda config: plan(_strength(_member(lost_since=NOW - 90)), NOW, config)),
}
"""Another value for each setting, and the function that decides by it."""

SHOWN: dict[str, str] = {
    "renew_s": "roles/test_recovery.py::test_a_stopped_process_is_fenced_and_its_late_report_refused",
    "heart": "roles/test_heart.py::test_a_killed_heart_is_replaced",
    "stall_s": "roles/test_heart.py::test_a_stalled_node_is_reclaimed",
    "connect_s": "chaos/test_network.py::test_a_node_cut_off_fences_itself",
    "answer_s": "chaos/test_network.py::test_forgotten_connections_are_noticed",
    "sweep_s": "chaos/test_leaders.py::test_leaders_killed_and_stopped_under_load",
    "start_s": "chaos/test_unwritable.py::test_a_caller_gets_an_error_and_what_is_under_way_waits",
    "body_max_bytes": "http/test_problems.py::test_what_is_too_large_is_refused_before_it_is_read_to_its_end",
    "batch_max_bytes": "http/test_problems.py::test_what_is_too_large_is_refused_before_it_is_read_to_its_end",
    "members_max": "http/test_problems.py::test_what_is_too_large_is_refused_before_it_is_read_to_its_end",
    "depth_max": "http/test_problems.py::test_what_cannot_be_read_is_malformed",
    "body_s": "http/test_sockets.py::test_a_body_that_does_not_come_is_refused",
    "connections_max": "http/test_sockets.py::test_too_many_connections_are_refused",
    "requests_per_s": "http/test_problems.py::test_too_many_requests_are_throttled",
    "requests_burst": "http/test_problems.py::test_too_many_requests_are_throttled",
    "sign_ins_per_min": "http/test_problems.py::test_too_many_requests_are_throttled",
    "polls_max": "http/test_runs.py::test_polls_have_a_limit_and_end_when_the_server_leaves",
    "streams_max": "http/test_streams.py::test_streams_are_counted_by_token",
    "leave_s": "http/test_sockets.py::test_leaving_ends_idle_connections_and_finishes_busy_ones",
    "keep_acts_days": "store/test_acts.py::test_old_acts_are_forgotten_in_small_parts",
    "plan_s": "store/test_acts.py::test_a_plan_that_is_not_whole_or_too_old_cannot_be_begun",
    "act_lease_s": "roles/test_acts.py::test_an_act_whose_process_died_is_ended_by_the_leader",
    "act_batch_max": "roles/test_acts.py::test_progress_is_shown_after_each_batch",
    "act_share_s": "store/test_acts.py::test_a_batch_ends_after_its_share_of_time",
    "keep_fires_days": "store/test_schedules.py::test_old_fates_are_forgotten",
    "keep_events_days": "store/test_events.py::test_old_events_are_forgotten",
    "keep_workflows_days": "store/test_workflows.py::test_what_nobody_declared_for_a_long_time_is_removed",
    "poll_s": "roles/test_isolated.py::test_a_fan_out_wider_than_the_agent_is_claimed_as_places_come_free",
    "runs_max": "roles/test_settings.py::test_a_scheduler_keeps_so_many_runs_in_memory",
    "park_after_s": "roles/test_settings.py::test_a_run_that_waits_leaves_memory",
    "claim_max": "roles/test_quarantine.py::test_many_that_are_alike_are_decided_at_once",
    "batch_max": "roles/test_settings.py::test_a_commit_holds_so_many_writes",
    "steps_max": "roles/test_settings.py::test_an_agent_runs_so_many_steps_at_once",
    "threads_max": "roles/test_settings.py::test_an_agent_runs_so_many_steps_at_once",
    "suspect_losses": "roles/test_quarantine.py::test_those_beside_a_poison_step_are_not_taken_for_one",
    "suspect_s": "roles/test_quarantine.py::test_those_beside_a_poison_step_are_not_taken_for_one",
    "timeout_grace_s": "store/test_leader.py::test_an_overdue_attempt_is_ended",
    "age_s": "store/test_queues.py::test_what_has_waited_long_passes_higher_priorities",
    "breaker_report_s": "roles/test_gates.py::test_an_outage_spends_few_attempts_and_ends_by_itself",
    "watch_s": "roles/test_gates.py::test_people_get_one_alert_which_is_cleared_when_it_is_over",
    "backlog_s": "store/test_alerts.py::test_a_step_that_waits_too_long_is_found",
    "alert_window_s": "roles/test_alerts.py::test_an_alert_is_compared_with_those_of_its_own_kind",
    "alert_tries_max": "roles/test_alerts.py::test_a_bad_channel_does_not_stop_the_others_and_is_given_up",
    "alert_stale_s": "store/test_alerts.py::test_a_delivery_is_given_up",
    "store_trouble_s": "roles/test_alerts.py::test_a_store_that_is_away_is_reported_without_it",
    "keep_nodes_days": "roles/test_pools.py::test_the_leader_forgets_nodes_that_left",
    "keep_journal_days": "store/test_pools.py::test_the_journal_of_no_run_is_forgotten",
    "keep_audit_days": "store/test_audit.py::test_the_leader_prunes_the_audit_when_its_time_has_come",
    "prune_rows_max": "store/test_prune.py::test_pruning_is_bounded_and_goes_on",
    "prune_share_s": "roles/test_settings.py::test_pruning_takes_its_share_and_rests",
    "prune_every_s": "roles/test_settings.py::test_pruning_takes_its_share_and_rests",
    "learn_s": "roles/test_durations.py::test_attempts_are_counted_and_written_with_the_rest_of_a_second",
    "learn_rows_max": "unit/test_durations.py::test_what_waits_to_be_reported_is_bounded",
    "durations_max": "store/test_durations.py::test_what_fades_is_counted_by_rows_and_makes_room",
    "durations_keep_days": "store/test_durations.py::test_old_counts_fade",
    "durations_rows_max": "store/test_durations.py::test_there_are_never_too_many_counts",
    "rests_per_s": "unit/test_durations.py::test_landmarks_are_exact_at_first_and_few_in_all",
    "hedge_share": "unit/test_durations.py::test_twins_are_a_share_of_the_attempts",
    "beat_s": "roles/test_settings.py::test_progress_is_written_as_often_as_was_set",
    "stop_grace_s": "roles/test_settings.py::test_an_undo_waits_until_its_step_has_stopped",
    "pool_look_s": "commands/test_pool.py::test_an_agent_that_is_killed_is_replaced",
    "pool_backlog_max": "store/test_pools.py::test_counting_stops_at_the_limit",
    "code_look_s": "commands/test_pool.py::test_changed_code_is_taken_up_and_broken_code_takes_nothing_away",
    "payload_max_bytes": "roles/test_payloads.py::test_the_limit_of_payloads_is_the_one_that_was_set",
    "logs_max_bytes": "roles/test_logs.py::test_the_settings_are_obeyed",
    "logs_level": "roles/test_logs.py::test_the_settings_are_obeyed",
    "traces": "roles/test_traces.py::test_each_attempt_is_a_span_under_the_start",
    "on_bug": "roles/test_bugs.py::test_the_setting_is_for_all_that_do_not_say_it",
    "replay_slice_steps": "store/test_schedulers.py::test_claiming_runs_with_long_histories_is_bounded",
}
"""The test that would fail if the setting, or the argument of the store that it becomes, had no effect."""


def _few(config: Config) -> Config:
    return msgspec.structs.replace(config, straggler_samples=20)


def test_every_setting_is_decided_or_shown() -> None:
    """No setting is left out, and none is listed that does not exist."""
    assert DECIDED.keys() | SHOWN.keys() == set(FIELDS)
    assert not DECIDED.keys() & SHOWN.keys()


@pytest.mark.parametrize("field", DECIDED)
def test_a_setting_changes_what_is_decided(field: str) -> None:
    """With another value the decision from the same facts is another."""
    value, decide = DECIDED[field]
    assert decide(Config()) != decide(msgspec.structs.replace(Config(), **{field: value}))


@pytest.mark.parametrize("field", SHOWN)
def test_a_setting_is_shown_by_a_test_that_is_there(field: str) -> None:
    """Whoever renames a test must change its entry here."""
    file, _, name = SHOWN[field].partition("::")
    text = (ROOT / "tests" / file).read_text()
    assert name, f"name one of: {[line for line in text.splitlines() if 'def test' in line]}"
    assert f"def {name}(" in text, [line for line in text.splitlines() if "def test" in line]


def test_every_setting_is_read() -> None:
    """Code reads it, and not only the table of defaults."""
    read: set[str] = set()
    for file in (ROOT / "src").rglob("*.py"):
        if file.name != "config.py":
            tree = ast.parse(file.read_text())
            read |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert set(FIELDS) - read == set()
