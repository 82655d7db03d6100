"""What a client promises at the store, it promises through a server: the tests of `tests/roles` about handles, with a
client that reaches the store by HTTP alone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from holdfast import Holdfast
from tests.http.conftest import FAST
from tests.remote.conftest import served
from tests.roles import flows, test_client, test_runs

CLAIMS = {
    test_client: (
        "test_a_cancelled_run_says_so",
        "test_a_failed_run_raises_from_the_workflows_own_exception",
        "test_a_run_is_read_with_its_payloads",
        "test_runs_are_listed_by_keywords_and_in_pages",
        "test_stop_is_a_cause_too",
        "test_wrong_patience_is_refused",
    ),
    test_runs: (
        "test_a_run_gives_its_result_and_each_step_ran_once",
        "test_a_run_past_its_deadline_fails",
        "test_a_signal_is_delivered_to_the_wait",
        "test_a_signal_may_come_before_the_wait",
        "test_a_signal_to_an_unknown_or_ended_run_is_refused",
        "test_a_step_that_gives_up_raises_its_own_exception",
        "test_an_input_that_does_not_fit_is_refused_at_the_caller",
        "test_cancelling_an_ended_run_changes_nothing",
        "test_cancelling_reaches_the_running_step",
        "test_progress_and_published_values_are_visible",
        "test_retry_continues_a_failed_run_from_the_step_that_failed",
        "test_the_same_id_fifty_times_at_once_is_one_run",
        "test_the_same_id_gives_the_same_run",
        "test_the_same_id_with_another_input_is_a_conflict",
    ),
}
"""Tests that need nothing of the store itself."""
for module, names in CLAIMS.items():
    globals().update({name: getattr(module, name) for name in names})


@pytest.fixture(autouse=True)
def clean_effects() -> None:
    flows.effects.clear()
    flows.keys.clear()
    flows.gates.clear()


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    """A program that reaches the store through a server, whose process hosts all roles."""
    config = msgspec.structs.replace(FAST, park_after_s=0.2)
    async with served(store_url, config=config) as at, Holdfast(at.url) as hf:
        yield hf
