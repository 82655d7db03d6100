"""Machine learning: train a model with several settings in parallel, keep the best one.

    holdfast run examples/training.py:train_best
    holdfast run examples/training.py:train_best --id model-1 --input '{"epochs": 400}'     kill it, start it again

What it shows:
- a long step that saves a checkpoint after each epoch (`here.save`). When an attempt is killed, the next one goes on at
  its epoch (`here.load`);
- progress that `holdfast watch` shows (`here.beat`);
- a fan-out over settings, and a choice among the results.

The model is a logistic regression in plain Python. Each candidate appends its loss to work/training/<name>.csv.
"""

from __future__ import annotations

import asyncio
import csv
import json
import math
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast import here, step, workflow

Row = tuple[list[float], int]


@dataclass(frozen=True)
class Settings:
    name: str
    rate: float
    decay: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    epoch: int
    weights: list[float]


@dataclass(frozen=True)
class Model:
    settings: Settings
    weights: list[float]
    began_at: int
    """The epoch at which the last attempt began: 0 unless an earlier one was interrupted."""


@dataclass(frozen=True)
class Best:
    path: str
    settings: Settings
    accuracy: float
    tried: dict[str, float]


CANDIDATES = [
    Settings("slow", 0.01),
    Settings("steady", 0.1),
    Settings("fast", 1.0),
    Settings("decaying", 1.0, 0.05),
]


@step
def make_data(folder: str, rows: int) -> str:
    """Write two clouds of points that overlap a little. The last quarter is for evaluation."""
    path = Path(folder, "data.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    chance = random.Random(7)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        for n in range(rows):
            label = n % 2
            writer.writerow([*(round(chance.gauss(label * 1.5, 1.0), 4) for _ in range(4)), label])
    return str(path)


@step(timeout=600)
def train(data: str, settings: Settings, epochs: int) -> Model:
    rows = read(data)[0]
    start = here.load(Checkpoint) or Checkpoint(0, [0.0] * (len(rows[0][0]) + 1))
    weights = start.weights
    for epoch in range(start.epoch, epochs):
        rate = settings.rate / (1 + settings.decay * epoch)
        weights, loss = descend(rows, weights, rate)
        with Path(data).with_name(f"{settings.name}.csv").open("a") as log:
            log.write(f"{epoch},{loss:.6f}\n")
        here.save(Checkpoint(epoch + 1, weights))
        here.beat((epoch + 1) / epochs, f"loss {loss:.4f}")
    return Model(settings, weights, start.epoch)


@step
def evaluate(data: str, model: Model) -> float:
    rows = read(data)[1]
    right = sum((predict(model.weights, features) > 0.5) == (label == 1) for features, label in rows)
    return right / len(rows)


@step
def publish_model(folder: str, model: Model) -> str:
    path = Path(folder, "model.json")
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(asdict(model), indent=2))
    draft.replace(path)
    return str(path)


@workflow
async def train_best(
    folder: str = "work/training",
    rows: int = 400,
    epochs: int = 60,
    candidates: list[Settings] = CANDIDATES,
) -> Best:
    data = await make_data(folder, rows)
    models = await asyncio.gather(*(train.using(key=each.name)(data, each, epochs) for each in candidates))
    accuracies = await asyncio.gather(*(evaluate(data, model) for model in models))
    accuracy, best = max(zip(accuracies, models, strict=True), key=lambda pair: pair[0])
    tried = {model.settings.name: accuracy for model, accuracy in zip(models, accuracies, strict=True)}
    return Best(await publish_model(folder, best), best.settings, accuracy, tried)


def predict(weights: list[float], features: list[float]) -> float:
    z = weights[-1] + sum(weight * feature for weight, feature in zip(weights, features, strict=False))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, z))))


def descend(rows: list[Row], weights: list[float], rate: float) -> tuple[list[float], float]:
    """Do one epoch of gradient descent. Return the new weights, and the loss before."""
    gradient, loss = [0.0] * len(weights), 0.0
    for features, label in rows:
        chance = predict(weights, features)
        loss -= math.log(chance if label else 1 - chance)
        for n, feature in enumerate([*features, 1.0]):
            gradient[n] += (chance - label) * feature
    return [w - rate * g / len(rows) for w, g in zip(weights, gradient, strict=True)], loss / len(rows)


def read(data: str) -> tuple[list[Row], list[Row]]:
    """Return the rows to learn from, and the rows to evaluate with."""
    with Path(data).open(newline="") as file:
        rows = [([float(x) for x in line[:-1]], int(line[-1])) for line in csv.reader(file)]
    cut = len(rows) * 3 // 4
    return rows[:cut], rows[cut:]
