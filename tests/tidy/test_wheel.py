"""The wheel that `pip install holdfast` would take gives the same command, in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
APP = """
from holdfast import step, workflow


@step
async def double(x: int) -> int:
    return 2 * x


@workflow
async def twice(x: int) -> int:
    return await double(await double(x))
"""


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_in_a_clean_environment_gives_the_command(tmp_path: Path) -> None:
    """Built, installed without any development tool, it runs a workflow to its end."""
    run(UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("holdfast-*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "clean", cwd=tmp_path)
    python = tmp_path / "clean" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, wheel, cwd=tmp_path)
    (tmp_path / "app.py").write_text(APP)
    holdfast = tmp_path / "clean" / "bin" / "holdfast"
    told = json.loads(run(holdfast, "run", "app.py:twice", "--input", "[3]", "--json", cwd=tmp_path))
    assert (told["state"], told["output"]) == ("succeeded", 12)
