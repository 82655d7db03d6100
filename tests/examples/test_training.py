"""Training: it learns, the best candidate wins, and a killed attempt goes on at its epoch."""

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from examples import training
from holdfast import Holdfast
from tests.examples.conftest import ROOT, Ended


def epochs(folder: Path, candidate: str) -> list[int]:
    log = folder / f"{candidate}.csv"
    return [int(line.split(",")[0]) for line in log.read_text().splitlines()] if log.exists() else []


async def test_the_best_candidate_is_published(store_url: str, tmp_path: Path) -> None:
    """Accuracy is far above chance, and model.json has the candidate with the highest one."""
    async with Holdfast(store_url) as hf:
        best = await (await hf.start(training.train_best, str(tmp_path), 200, 15)).result(timeout=60)
    assert best.accuracy > 0.8
    assert best.accuracy == max(best.tried.values())
    assert set(best.tried) == {"slow", "steady", "fast", "decaying"}
    assert json.loads((tmp_path / "model.json").read_text())["settings"]["name"] == best.settings.name


async def test_each_epoch_is_trained_once(store_url: str, tmp_path: Path) -> None:
    """Undisturbed, the loss log of a candidate has every epoch once, and the loss falls."""
    only = [training.Settings("only", 0.5)]
    async with Holdfast(store_url) as hf:
        await (await hf.start(training.train_best, str(tmp_path), 100, 10, only)).result(timeout=60)
    losses = [float(line.split(",")[1]) for line in (tmp_path / "only.csv").read_text().splitlines()]
    assert epochs(tmp_path, "only") == list(range(10))
    assert losses == sorted(losses, reverse=True)


def test_a_killed_training_goes_on_at_its_checkpoint(
    store_url: str,
    tmp_path: Path,
    command: Callable[..., Ended],
    start_command: Callable[..., subprocess.Popen[str]],
) -> None:
    """After kill -9 in the middle at most the epoch that was under way is trained again."""
    folder, total = tmp_path / "training", 200
    given = {
        "folder": str(folder),
        "rows": 4000,
        "epochs": total,
        "candidates": [{"name": "only", "rate": 0.5}],
    }
    program = f"{ROOT}/examples/training.py:train_best"
    arguments = ("run", program, "--id", "killed", "--store", store_url, "--input", json.dumps(given))
    process = start_command(*arguments)
    while len(epochs(folder, "only")) < 20:
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = len(epochs(folder, "only"))
    assert before < total

    ended = command(*arguments)
    assert ended.shown["state"] == "succeeded"
    trained = epochs(folder, "only")
    assert sorted(set(trained)) == list(range(total))
    assert len(trained) <= total + 1
    model = json.loads((folder / "model.json").read_text())
    assert before - 1 <= model["began_at"] <= before
