"""The tree is the diagram: imports go downward only, and decisions are numbered."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_imports_follow_the_layers() -> None:
    """Every import contract in pyproject.toml holds."""
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


NOUNS_IN_ING = {"keyring", "steering", "tracing", "typing", "wording"}


def test_modules_are_named_by_nouns() -> None:
    """A gerund hides what a module is about, and so it does in the name of its tests."""
    files = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "src").rglob("statements/*.sql"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    named = {
        file.stem.removeprefix("test_") for file in files if file.parent.name not in {"examples", "tidy"}
    }
    assert {name for name in named if name.endswith("ing")} - NOUNS_IN_ING == set()


def test_each_decision_has_a_number_of_its_own() -> None:
    """Decisions are numbered from 1 on without a gap. The name of the file and its heading have the same number."""
    pages = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))[1:]  # the first is the template
    headings = [re.match(r"# (\d+)\. ", page.read_text()) for page in pages]
    assert [int(found[1]) for found in headings if found] == [int(page.name[:4]) for page in pages]
    assert [int(page.name[:4]) for page in pages] == [*range(1, len(pages) + 1)]
