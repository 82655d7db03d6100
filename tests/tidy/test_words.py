"""One vocabulary everywhere, and SQL that keeps the fence where it works."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
VAGUE_FILE_NAME = re.compile(r"(?:^|_)(core|utils?|base|managers?|helpers?|handlers?|jobs?)(?:_|$)")
VAGUE_IDENTIFIER = re.compile(r"(?:^|_)(jobs?|managers?|helpers?|utils?|handlers?)(?:_|$)")
# A fence inside a subquery of IN: READ COMMITTED does not check it again after waiting for the row's lock.
FENCE_IN_SUBQUERY = re.compile(r"\bIN\s*\(\s*SELECT\b(?:[^()]|\([^()]*\))*\bfence\b", re.IGNORECASE)


def words(name: str) -> str:
    """`RunManager` as `run_manager`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def own_names(tree: ast.AST) -> set[str]:
    """The classes, functions and arguments a module defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names


def test_file_names_say_what_is_inside() -> None:
    """No module or folder is named core, utils, base, manager or helper."""
    vague = [
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*")
        if "__pycache__" not in path.parts and VAGUE_FILE_NAME.search(words(path.stem))
    ]
    assert vague == []


def test_names_keep_to_the_vocabulary() -> None:
    """No class, function or argument is called job, manager, helper, util or handler."""
    vague = [
        f"{path.relative_to(SOURCE)}: {name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for name in sorted(own_names(ast.parse(path.read_text())))
        if VAGUE_IDENTIFIER.search(words(name))
    ]
    assert vague == []


# English counts a lasting state from a moment ("since Monday") and by a duration ("for 20 s"), never "since 20 s".
SINCE_DURATION = re.compile(
    r"\bsince (?:\{(?:ago|since|waited|wording\.span|span|passed)\b|\{[^{}]*:\.\d?f\} ?s|\d+(?:\.\d+)? (?:ms|s|min|h|d)\b)"
    r"|\b(?:runs|waits|sleeps|stands|lies|leads) for \{(?:ago|wording\.span|span)\b"
)


def test_how_long_something_lasts_is_said_in_english() -> None:
    """ "has been waiting for 20 s", not "waits since 20 s": in what the product says, and in the pages that show it."""
    root = SOURCE.parents[1]
    pages = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    wrong = [
        f"{path.relative_to(root)}: {found.group()}"
        for path in [*sorted(SOURCE.rglob("*.py")), *pages]
        for found in SINCE_DURATION.finditer(path.read_text())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('f"It waits since {ago(now - at)}"', True),
        ('f"the store is in trouble since {at - away:.0f} s"', True),
        ("Step charge is ready since 0.9 s", True),
        ('f"its twin runs for {ago(passed)}"', True),
        ('f"has been waiting for {ago(passed)}"', False),
        ('"since": moment(at)', False),
    ],
)
def test_the_check_of_durations_knows_the_shape(text: str, wrong: bool) -> None:
    """The check above finds the bad shape and leaves the good ones alone."""
    assert bool(SINCE_DURATION.search(text)) is wrong


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", "", sql, flags=re.DOTALL)


def test_the_fence_is_checked_in_the_outer_where() -> None:
    """No statement hides its fence in `IN (SELECT … fence …)`, which accepts stale writes under READ COMMITTED."""
    hidden = [
        str(path.relative_to(SOURCE))
        for path in sorted((SOURCE / "store").rglob("*.sql"))
        if FENCE_IN_SUBQUERY.search(without_comments(path.read_text()))
    ]
    assert hidden == []


@pytest.mark.parametrize(
    ("sql", "hides"),
    [
        ("UPDATE step SET x = 1 WHERE id IN (SELECT id FROM step WHERE fence = $1)", True),
        (
            "UPDATE step SET x = 1 WHERE id in (\n select s.id FROM step s WHERE s.at < now() AND s.fence = 2)",
            True,
        ),
        ("UPDATE step SET x = 1 WHERE id = $1 AND fence = $2", False),
        ("UPDATE step SET x = 1 WHERE id IN (SELECT id FROM due) AND fence = $1", False),
        ("-- IN (SELECT id FROM step WHERE fence = 1)\nSELECT 1", False),
    ],
)
def test_the_fence_check_knows_the_shape(sql: str, hides: bool) -> None:
    """The check above finds the bad shape and leaves the good ones alone."""
    assert bool(FENCE_IN_SUBQUERY.search(without_comments(sql))) is hides
