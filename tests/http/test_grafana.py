"""The dashboard for Grafana asks for what a server really says, and the page on observing lists all of it."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.conftest import Asked, asking

ROOT = Path(__file__).parents[2]
BOARD = json.loads((ROOT / "examples/grafana/holdfast.json").read_text())
PAGE = (ROOT / "docs/observing.md").read_text()
FROM_PROMETHEUS = {"instance"}
"""Labels that Prometheus adds itself."""
FUNCTIONS = {"sum", "max", "min", "by", "rate", "deriv", "clamp_min", "label_values"}
_SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? [-+0-9.e]+")
_LABEL = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
_NAME = re.compile(r"\bholdfast_[a-z_]+\b")

Samples = dict[str, list[dict[str, str]]]


def expressions() -> list[str]:
    """Return every question that the dashboard asks of Prometheus."""
    asked = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", ())]
    return asked + [one["query"] for one in BOARD["templating"]["list"] if one["type"] == "query"]


def samples(text: str) -> Samples:
    """Return the labels of each sample, by the name of its metric."""
    found: Samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            sample = _SAMPLE.fullmatch(line)
            assert sample is not None, line
            labels = {name: value for name, _, value in _LABEL.findall(sample[2] or "")}
            found.setdefault(sample[1], []).append(labels)
    return found


def selectors(expression: str) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return what the expression selects: names of metrics, each with its conditions on labels."""
    found = re.findall(r"\b(holdfast_[a-z_]+)(?:\{([^}]*)\})?", expression)
    return [(name, _LABEL.findall(conditions)) for name, conditions in found]


def grouped(expression: str) -> set[str]:
    """Return the labels that the expression groups by."""
    return {one.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for one in group.split(",")}


def fits(value: str, operator: str, wanted: str) -> bool:
    if "$" in wanted:  # a variable of the dashboard
        return True
    is_equal = re.fullmatch(wanted, value) is not None if "~" in operator else value == wanted
    return is_equal is not operator.startswith("!")


@pytest.fixture
async def said(store_url: str) -> AsyncIterator[str]:
    """What a server says that has answered, refused and started something."""
    async with asking(store_url, roles=("scheduler", "agent", "supervisor", "server")) as asked:
        yield await used(asked)


async def used(asked: Asked) -> str:
    await asked.started(id="r")
    await asked.get("/v1/runs/nobody")
    await asked.get("/v1/me")
    return (await asked.get("/metrics")).text


async def test_whatever_the_dashboard_asks_for_is_there(said: str) -> None:
    """Each metric exists, has each label that is named, and each condition fits some sample of it."""
    there = samples(said)
    asked = expressions()
    assert len(asked) > 15
    for expression in asked:
        chosen = selectors(expression)
        assert chosen, expression
        for name, conditions in chosen:
            assert name in there, f"{expression}: no server says {name}"
            fitting = [
                labels
                for labels in there[name]
                if all(
                    label in labels and fits(labels[label], how, value) for label, how, value in conditions
                )
            ]
            assert fitting, f"{expression}: no sample of {name} fits {conditions}"
            for label in grouped(expression) - FROM_PROMETHEUS:
                assert label in fitting[0], f"{expression}: {name} has no label {label}"


def test_alternatives_in_conditions_exist_each(said: str) -> None:
    """A state that is misspelled in a list would never be missed otherwise."""
    there = samples(said)
    for expression in expressions():
        for name, conditions in selectors(expression):
            for label, how, value in conditions:
                if label == "state" and "$" not in value:
                    values = {labels[label] for labels in there[name]}
                    assert set(value.split("|")) <= values, f"{expression}: {how}{value}"


def test_its_questions_are_well_formed() -> None:
    """Brackets match, and no function is used that this test does not know."""
    for expression in expressions():
        for opening, closing in ("()", "[]", "{}"):
            assert expression.count(opening) == expression.count(closing), expression
        bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]|by \([^)]*\)', "", expression)
        words = set(re.findall(r"[a-z_]{2,}", bare)) - set(_NAME.findall(bare)) - {"namespace"}
        assert words <= FUNCTIONS, expression
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = [tuple(panel["gridPos"][one] for one in "xywh") for panel in BOARD["panels"]]
    for i, (x, y, w, h) in enumerate(places):
        assert x + w <= 24
        for ox, oy, ow, oh in places[i + 1 :]:
            assert x + w <= ox or ox + ow <= x or y + h <= oy or oy + oh <= y, "two panels overlap"


async def test_the_page_lists_every_figure(said: str) -> None:
    """With its labels, and none that does not exist."""
    there = samples(said)
    listed = dict(re.findall(r"^\| `(holdfast_[a-z_]+)` \|([^|]*)\|", PAGE, re.MULTILINE))
    assert set(listed) == set(there)
    for name, labels in listed.items():
        assert set(re.findall(r"`([a-z_]+)`", labels)) == set(there[name][0]), name
