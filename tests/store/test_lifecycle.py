"""The tables of `holdfast.lifecycle` are compared with every statement of both dialects that writes a state.

The simulation and the differential tests compare them with what the statements do; see tests/lifecycle.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from holdfast.lifecycle import RUN_TRANSITIONS, STEP_TRANSITIONS, Transition
from holdfast.store.postgres.verbs import STATEMENTS as POSTGRES
from holdfast.store.postgres.verbs import PostgresVerb
from holdfast.store.sqlite.verbs import STATEMENTS as SQLITE

DIALECTS = pytest.mark.parametrize("statements", [SQLITE, POSTGRES], ids=["sqlite", "postgres"])
TABLES = pytest.mark.parametrize(
    ("table", "transitions"), [("runs", RUN_TRANSITIONS), ("steps", STEP_TRANSITIONS)], ids=["runs", "steps"]
)
CLAIMS = {
    "runs": {PostgresVerb.claim_pending, PostgresVerb.claim_awake, PostgresVerb.claim_runs_of},
    "steps": {
        PostgresVerb.claim_steps_of,
        PostgresVerb.claim_probes,
        PostgresVerb.take_steps,
        PostgresVerb.take_steps_of,
    },
}
"""PostgreSQL finds and claims in one statement, so it has a statement for each way to find."""
WRITES = re.compile(
    r"(?:UPDATE (?:holdfast\.)?(?P<updated>runs|steps)(?: \w)? SET (?P<set>.*?)\s(?:FROM|WHERE) "
    r"|INSERT INTO (?:holdfast\.)?(?P<inserted>runs|steps) ?\()",
    re.DOTALL,
)
STATE = re.compile(r"(?<![\w.])state = (?P<value>CASE .*? END|[^,]+)", re.DOTALL)
LITERAL = re.compile(r"(?:^|THEN |ELSE )'(\w+)'")


class Write(NamedTuple):
    table: str
    literals: frozenset[str]
    """The states that the statement itself names. A state that comes as a parameter is not among them."""


def write_of(sql: str) -> Write | None:
    """Return which table's state a statement writes, or None if it writes no state."""
    found = WRITES.search(sql)
    if found is None:
        return None
    if found["inserted"]:
        return Write(found["inserted"], frozenset())
    state = STATE.search(found["set"])
    return state and Write(found["updated"], frozenset(LITERAL.findall(state["value"])))


def declared(transitions: tuple[Transition, ...], statement: str) -> set[str]:
    """Return the states that a statement may write, as the tables say."""
    return {move.target for move in transitions if statement in move.statements}


@DIALECTS
@TABLES
def test_every_statement_that_writes_a_state_is_in_the_tables(
    table: str, transitions: tuple[Transition, ...], statements: Mapping[str, str]
) -> None:
    """And every statement in the tables writes a state."""
    writing = {
        str(verb) for verb, sql in statements.items() if (write := write_of(sql)) and write.table == table
    }
    named = {statement for move in transitions for statement in move.statements}
    # SQLite finds the run or step in a statement of its own and then claims it by the one that both dialects have.
    assert writing - CLAIMS[table] == named


@DIALECTS
@TABLES
def test_a_statement_names_no_state_that_the_tables_do_not_have(
    table: str, transitions: tuple[Transition, ...], statements: Mapping[str, str]
) -> None:
    """A literal state in a SET clause is a target of that statement."""
    compared = 0
    for verb, sql in statements.items():
        write = write_of(sql)
        if write and write.table == table and write.literals:
            claim = "claim_run" if table == "runs" else "claim_steps"
            assert write.literals <= declared(transitions, claim if verb in CLAIMS[table] else verb), verb
            compared += 1
    assert compared >= 5


def test_a_state_no_table_has_would_be_noticed() -> None:
    """The two tests above are not blind."""
    assert write_of("UPDATE runs SET fence = 1 WHERE state = 'held'") is None
    assert write_of("UPDATE steps SET ready_at = 1, state = 'lost' WHERE n = 1") == Write(
        "steps", frozenset({"lost"})
    )
    assert write_of(
        "UPDATE runs SET resume = state, state = CASE resume WHEN 'a' THEN 'b' ELSE 'c' END WHERE id = 1"
    ) == Write("runs", frozenset({"b", "c"}))
    assert write_of("INSERT INTO holdfast.steps (run_id) SELECT 1") == Write("steps", frozenset())
