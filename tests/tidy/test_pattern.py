"""The page about the pattern names files and tests that exist, and leaves no example out."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pattern.md").read_text()
NAMED = sorted(set(re.findall(r"`((?:tests|src|examples)/[^`\s]+)`", PAGE)))
SECTION = re.compile(r"^### ([^\n]*)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("named", NAMED)
def test_what_the_page_names_exists(named: str) -> None:
    """The file or folder exists, and the test is in it."""
    path, _, name = named.partition("::")
    assert (ROOT / path).exists()
    if name:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }


def test_every_section_says_where_it_is_and_what_shows_it() -> None:
    """A role or consideration that nothing shows would be a claim and no more."""
    sections = dict(SECTION.findall(PAGE))
    assert {"Scheduler", "Agent", "Supervisor", "State store"} <= sections.keys()
    for title, text in sections.items():
        assert "`tests/" in text or "`examples/" in text, title
        assert "- In the source: `src/" in text or "anti-patterns" in title, title


def test_every_example_is_named_as_a_use_case() -> None:
    """A new example is found from the pattern, too."""
    uses = PAGE.partition("## Its use cases")[2]
    services = {"trip_service.py"}  # what trip.py calls
    for example in (ROOT / "examples").glob("*.py"):
        assert example.name in services or f"`examples/{example.name}`" in uses, example.name
