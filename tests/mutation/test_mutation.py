"""The tool that makes mutants: what it changes, how it names them, and which ones it draws."""

import ast
import re
from pathlib import Path

import pytest

from tests.mutation.__main__ import chosen, parse
from tests.mutation.mutants import AREAS, PACKAGE, ROOT, Mutant, all_mutants, draw, mutants_of
from tests.mutation.reviewed import entry, names_nothing, read_list, reviewed
from tests.mutation.stages import AREAS as NEAR_AREAS
from tests.mutation.stages import FILES, copied, named, stages_of

PYTHON = [
    ("compare", "return a < b", "return a <= b"),
    ("compare", "return a == b", "return a != b"),
    ("compare", "return a is b", "return a is not b"),
    ("compare", "return a not in b", "return a in b"),
    ("compare", "return (a) >= (b)", "return (a) > (b)"),
    ("bool", "return a and b", "return a or b"),
    ("bool", "return ä or b", "return ä and b"),
    ("not", "return not a", "return a"),
    ("arithmetic", "return a + b", "return a - b"),
    ("plus-one", "return a[0]", "return a[1]"),
    ("minus-one", "return f(2)", "return f(1)"),
    ("guard", "if a(): return", "if a(): pass"),
    ("negate", "if a(): return", "if not (a()): return"),
    ("call", "self.x(a)", "pass"),
    ("call", "await self.x(a)", "pass"),
    ("extreme", "return min(a, b)", "return max(a, b)"),
    ("sort", "return sorted(a, key=b)", "return sorted(a)"),
    ("sort", "return sorted(a)", "return list(a)"),
    ("member", "return {S.A, S.B}", "return {S.B, S.B}"),
]
SQL = [
    ("compare", "SELECT 1 FROM t WHERE a <= b", "SELECT 1 FROM t WHERE a < b"),
    ("compare", "UPDATE t SET a = 1 WHERE b = c", "UPDATE t SET a = 1 WHERE b <> c"),
    (
        "and-term",
        "SELECT 1 FROM t WHERE a = 1 AND b IS NOT DISTINCT FROM $1 ORDER BY c",
        "SELECT 1 FROM t WHERE a = 1 AND (b IS NOT DISTINCT FROM $1 OR TRUE) ORDER BY c",
    ),
    (
        "and-term",
        "SELECT 1 FROM t WHERE (f(a) = 1 AND b) LIMIT 1",
        "SELECT 1 FROM t WHERE ((f(a) = 1 OR TRUE) AND b) LIMIT 1",
    ),
    ("lock", "SELECT a FROM t FOR UPDATE OF t SKIP LOCKED", "SELECT a FROM t "),
    ("lock-skip", "SELECT a FROM t FOR UPDATE SKIP LOCKED", "SELECT a FROM t FOR UPDATE "),
    ("plus-one", "UPDATE t SET fence = fence + 1", "UPDATE t SET fence = fence + 0"),
    ("order", "SELECT a FROM t ORDER BY a DESC, b", "SELECT a FROM t ORDER BY a ASC, b"),
    ("order", "SELECT a FROM t ORDER BY a DESC, b", "SELECT a FROM t ORDER BY a DESC, b DESC"),
    ("null", "SELECT 1 FROM t WHERE a IS NULL", "SELECT 1 FROM t WHERE a IS NOT NULL"),
    ("limit", "SELECT 1 FROM t LIMIT ?1", "SELECT 1 FROM t LIMIT ?1 + 1"),
    ("not", "SELECT 1 WHERE NOT EXISTS (SELECT 1)", "SELECT 1 WHERE EXISTS (SELECT 1)"),
]


@pytest.fixture(scope="module")
def everything() -> list[Mutant]:
    return all_mutants()


def made(file: str, text: str) -> dict[str, list[str]]:
    """Return the mutated texts of each kind."""
    found: dict[str, list[str]] = {}
    for mutant in mutants_of(file, text):
        found.setdefault(mutant.change.kind, []).append(mutant.applied_to(text))
    return found


@pytest.mark.parametrize(("kind", "before", "after"), PYTHON)
def test_a_mutant_of_python_changes_exactly_one_place(kind: str, before: str, after: str) -> None:
    """Everything else in the file stays as it was, to the letter."""
    frame = "async def f(a, b):\n    # a and b\n    {}\n    return 'x < y'\n"
    assert frame.format(after) in made("policy.py", frame.format(before))[kind]


@pytest.mark.parametrize(("kind", "before", "after"), SQL)
def test_a_mutant_of_sql_changes_exactly_one_place(kind: str, before: str, after: str) -> None:
    """What stands in comments, in texts and in other statements stays as it was."""
    frame = "-- a = b AND c\n-- name: verb\n{}\n\n-- name: other\nSELECT 'a AND b IS NULL'\n"
    found = made("store/sqlite/statements/x.sql", frame.format(before))
    assert frame.format(after) in found[kind]
    assert all(text.endswith("SELECT 'a AND b IS NULL'\n") for texts in found.values() for text in texts)


def test_what_no_test_should_know_is_left_out() -> None:
    """Messages, what is logged, annotations, decorators and assertions have no mutants."""
    text = (
        "@cache(1)\ndef f(a: Literal[1]) -> Literal[2]:\n"
        "    log.info('x', a < 1)\n    assert a < 1\n    raise ValueError(f'{a < 1}')\n"
    )
    assert made("policy.py", text) == {}


def test_an_assignment_and_a_named_argument_are_no_comparisons() -> None:
    """In SQL, `=` compares only where it does not belong to SET."""
    text = "-- name: verb\nUPDATE t SET a = f(x => 1), b = CASE WHEN c = 2 THEN 3 END, d = 4"
    assert made("store/x.sql", text) == {"compare": [text.replace("c = 2", "c <> 2")]}


def test_every_mutant_has_an_id_of_its_own(everything: list[Mutant]) -> None:
    """An id names a file, a line, a column and a kind. It is the same whenever the mutants are made."""
    ids = [mutant.id for mutant in everything]
    assert len(set(ids)) == len(ids)
    assert ids == [mutant.id for mutant in all_mutants()]
    assert len({mutant.key for mutant in everything}) == len(ids)
    assert all(re.fullmatch(r"[\w/]+\.(py|sql):\d+:\d+:[a-z-]+", one) for one in ids)


def test_every_area_has_mutants_of_its_own_language(everything: list[Mutant]) -> None:
    """No area is left out unnoticed. Of the migrations only functions are mutated."""
    assert {mutant.file.split("/")[0] for mutant in everything} == set(AREAS)
    assert {mutant.area for mutant in everything if mutant.is_sql} == {
        "store/sqlite (SQL)",
        "store/postgres (SQL)",
    }
    migrated = {mutant.change.where for mutant in everything if "/migrations/" in mutant.file}
    assert "freed" in migrated
    assert all(mutant.change.where or not mutant.is_sql for mutant in everything)


def test_python_mutants_are_python(everything: list[Mutant]) -> None:
    """A mutant that nothing can read would be thrown away after it cost time. A sample shows it."""
    for mutant in draw([mutant for mutant in everything if not mutant.is_sql], 150, 1):
        ast.parse(mutant.applied_to((PACKAGE / mutant.file).read_text("utf-8")))


def test_a_sample_is_the_same_for_the_same_seed(everything: list[Mutant]) -> None:
    """It has as many mutants as were asked for, and another seed draws others."""
    first = draw(everything, 50, 7)
    assert first == draw(list(reversed(everything)), 50, 7)
    assert len(set(first)) == 50
    assert first != draw(everything, 50, 8)


def test_a_moved_line_has_another_id_and_the_same_key() -> None:
    """So reviewed mutants and most of a sample stay what they are when the file changes elsewhere."""
    text = "def f(a):\n    return a < 1\n"
    before, after = ([*mutants_of("policy.py", head + text)] for head in ("", "import os\n\n"))
    assert [one.key for one in before] == [one.key for one in after]
    assert before[0].id == "policy.py:2:14:compare"
    assert after[0].id == "policy.py:4:14:compare"


def test_a_mutant_is_tried_in_a_copy_of_the_source(everything: list[Mutant]) -> None:
    """The copy has the mutant; the working tree is never touched, and the copy is gone afterwards."""
    mutant = draw(everything, 1, 3)[0]
    original = (PACKAGE / mutant.file).read_text("utf-8")
    with copied(mutant) as source:
        assert (source / "holdfast" / mutant.file).read_text("utf-8") == mutant.applied_to(original)
        assert ROOT not in source.parents
    assert not source.exists()
    assert (PACKAGE / mutant.file).read_text("utf-8") == original


def test_every_mutant_is_tried_by_tests_that_exist(everything: list[Mutant]) -> None:
    """The simulation is on SQLite. So mutants of PostgreSQL are tried by tests on PostgreSQL."""
    near = [*NEAR_AREAS.values(), *FILES.values()]
    tests = {path for one in near for folder, names in one._asdict().items() for path in named(folder, names)}
    assert "tests/commands/test_why.py" in tests
    assert not [path for path in tests if not (ROOT / path).exists()]
    assert set(FILES) <= {Path(mutant.file).stem for mutant in everything}
    for mutant in draw(everything, 300, 1):
        stages = list(stages_of(mutant))
        is_postgres = mutant.file.startswith("store/postgres")
        assert ("simulation" in [stage.name for stage in stages]) is not is_postgres
        unwanted = "not sqlite" if is_postgres else "not postgres"
        assert all(unwanted in stage.arguments for stage in stages if stage.name in {"store", "roles"})


def test_every_reviewed_mutant_still_exists(everything: list[Mutant]) -> None:
    """When the source changes, an entry for what is no longer there is removed."""
    assert names_nothing(reviewed(), everything) == []


def test_an_entry_that_names_nothing_is_found(everything: list[Mutant]) -> None:
    """An entry names a mutant by all of its key; one that is written by the tool is read again."""
    mutant = draw(everything, 1, 5)[0]
    given = entry(mutant).replace('reason = ""', "reason = 'the same in five words'")
    assert names_nothing(read_list(given), everything) == []
    stale = read_list(given.replace(mutant.change.kind, "unknown"))
    assert names_nothing(stale, everything) == list(stale)


def test_an_entry_needs_a_reason(everything: list[Mutant]) -> None:
    """A list without reasons would only hide survivors."""
    with pytest.raises(ValueError, match="needs a reason"):
        read_list(entry(everything[0]))


def test_one_mutant_can_be_asked_for(everything: list[Mutant]) -> None:
    """By its id, so that it can be run again alone. An id that does not exist is an error."""
    asked = everything[10].id
    assert [mutant.id for mutant in chosen(parse(["--only", asked]))] == [asked]
    with pytest.raises(SystemExit, match="no mutant is called"):
        chosen(parse(["--only", "policy.py:1:1:nothing"]))
