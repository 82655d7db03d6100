"""The tree is the diagram: imports go downward only."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_imports_follow_the_layers() -> None:
    """Every import contract in pyproject.toml holds."""
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
