"""The page of guarantees names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[^`\s]+)`", PAGE)))


@pytest.mark.parametrize("named", NAMED)
def test_a_named_test_exists(named: str) -> None:
    """The file or folder exists, and the function is in it."""
    path, _, name = named.partition("::")
    assert (ROOT / path).exists()
    if name:
        tree = ast.parse((ROOT / path).read_text())
        assert name in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }


def test_every_guarantee_is_there() -> None:
    """There is a section for each of G1 to G8, with a test or the reason why there is none."""
    sections = dict(re.findall(r"^### (G\d) [^\n]*\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert list(sections) == [f"G{n}" for n in range(1, 9)]
    for name, text in sections.items():
        assert "`tests/" in text or "Not promised yet" in text, name
