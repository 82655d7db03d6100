"""CI pipeline: a green repository is published, a red one is not."""

import sys
from pathlib import Path

import pytest

from examples import ci
from holdfast import Holdfast, RunFailed
from tests.examples.conftest import printed


async def test_a_green_repository_is_published(store_url: str, tmp_path: Path) -> None:
    """The published artifact runs, and its digest is the one in the result."""
    async with Holdfast(store_url) as hf:
        published = await (await hf.start(ci.pipeline, str(tmp_path))).result(timeout=60)
    assert published.tests == 2
    assert printed(sys.executable, published.artifact, "2", "40") == "42"
    assert published.commit == printed("git", "-C", tmp_path / "repository", "rev-parse", "HEAD")


async def test_a_red_test_stops_the_pipeline(store_url: str, tmp_path: Path) -> None:
    """The failing test's own output is in the run's error, and nothing is built or published."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(ci.pipeline, str(tmp_path), broken=True)
        with pytest.raises(RunFailed, match=r"tests\.test_half .*(?s:.*)AssertionError: 2 != 3"):
            await run.result(timeout=60)
    assert not (tmp_path / "published").exists()


async def test_an_unknown_ref_is_a_clear_failure(store_url: str, tmp_path: Path) -> None:
    """A ref that the repository lacks is named in the error."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(ci.pipeline, str(tmp_path), ref="nowhere")
        with pytest.raises(RunFailed, match="has no nowhere"):
            await run.result(timeout=60)
