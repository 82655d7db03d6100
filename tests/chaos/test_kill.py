"""kill -9 of `holdfast run` at random moments: the next start goes on where it stopped.

`HOLDFAST_KILLS=50 pytest tests/chaos/test_kill.py` is the long version (`make chaos`); the suite does a few.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.chaos import app

KILLS = int(os.environ.get("HOLDFAST_KILLS", "6"))
SEED = int(os.environ.get("HOLDFAST_SEED", "1"))
HOLDFAST = Path(sys.executable).with_name("holdfast")


def start(url: str, ledger: Path, run_id: str) -> subprocess.Popen[str]:
    """Start the run, or go on with it: the command is the same."""
    return subprocess.Popen(
        [
            HOLDFAST,
            "run",
            f"{app.__file__}:twenty",
            "--id",
            run_id,
            "--store",
            url,
            "--json",
            "--input",
            json.dumps({"ledger": str(ledger)}),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_killed_at_random_moments_ends_right_and_repeats_no_recorded_step(
    store_url: str, tmp_path: Path
) -> None:
    """However often the process is killed, the run ends with the right result. A step whose outcome was recorded never
    runs again, so a kill costs at most one more execution of the step that was running."""
    dice = random.Random(SEED)
    killed, runs, slowest = 0, 0, 0.0
    while killed < KILLS:
        runs += 1
        ledger = tmp_path / f"ledger-{runs}"
        kills_here = 0
        while True:
            began = time.monotonic()
            process = start(store_url, ledger, f"killed-{runs}")
            try:
                # Anywhere from before the interpreter has started to after the run has ended.
                process.wait(timeout=dice.uniform(0.05, 0.6) if killed < KILLS else 60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed, kills_here = killed + 1, kills_here + 1
                continue
            shown, errors = process.communicate()
            slowest = max(slowest, time.monotonic() - began)
            assert process.returncode == 0, errors
            break
        run = json.loads(shown)
        assert (run["state"], run["output"]) == ("succeeded", sum(range(20)))
        assert [step["state"] for step in run["steps"]] == ["succeeded"] * 20
        lines = [line.split() for line in ledger.read_text().splitlines()]
        began_times = Counter(int(i) for i, _, _ in lines)
        assert set(began_times) == set(range(20))
        assert sum(began_times.values()) <= 20 + kills_here, lines
        assert [int(i) for i, _, _ in lines] == sorted(int(i) for i, _, _ in lines), (
            "a recorded step ran again"
        )
    print(f"{killed} kills over {runs} runs, seed {SEED}; slowest start to result {slowest:.2f} s")
