"""The pytest plugin: the fixture `sim`. The only module of Holdfast that knows pytest."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.sim import Sim


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("holdfast").addoption(
        "--sim-seed", type=int, default=0, metavar="N", help="the seed of the fixture `sim`: 0"
    )


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[Sim]:
    """A Holdfast of its own for this test: in memory, in one thread, in virtual time."""
    with Sim(request.config.getoption("--sim-seed")) as made:
        yield made
