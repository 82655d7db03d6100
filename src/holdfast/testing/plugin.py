"""The pytest plugin, with the fixture `sim`. No other module of Holdfast imports pytest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.testing.sim import Sim


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("holdfast").addoption(
        "--sim-seed", type=int, default=0, metavar="N", help="the seed of the fixture `sim` (default: 0)"
    )


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[Sim]:
    """Holdfast for this test alone: in memory, in one thread, in virtual time."""
    from holdfast.testing.sim import Sim  # noqa: PLC0415  pytest loads this plugin also where nobody uses it

    with Sim(request.config.getoption("--sim-seed")) as made:
        yield made
