"""Rate-limited importer: nobody's large shop delays another customer, and the API is asked no more than it allows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from examples import importer
from holdfast import Holdfast
from holdfast.errors import RunFailed

calls: list[str] = []


@pytest.fixture(autouse=True)
def api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else's API, which is too busy for one call in seven."""
    calls.clear()

    async def call_api(shop: str, page: int) -> list[str]:
        calls.append(shop)
        await asyncio.sleep(0)
        if len(calls) % 7 == 0:
            raise importer.TooMany(0.01)
        if shop == "nowhere":
            raise LookupError(shop)
        return [f"{page}-{number}" for number in range(3)]

    monkeypatch.setattr(importer, "call_api", call_api)


async def test_shops_are_copied_whole(store_url: str, tmp_path: Path) -> None:
    """All pages of both shops are there, whatever the API says in between, and a second start is the same run."""
    async with Holdfast(store_url) as hf:
        await hf.start(importer.import_shop.using(fair="ready"), "ready.example", 1, str(tmp_path))
        await _declared(hf)
        await hf.limits.set("catalogue-calls", 10_000, "a test has no time")
        large = await hf.start(importer.import_shop.using(fair="large"), "large.example", 25, str(tmp_path))
        again = await hf.start(importer.import_shop.using(fair="large"), "large.example", 25, str(tmp_path))
        assert again.id == large.id
        small = await hf.start(importer.import_shop.using(fair="small"), "small.example", 3, str(tmp_path))
        assert await small.result(60) == importer.Imported("small.example", 3, 9)
        assert await large.result(60) == importer.Imported("large.example", 25, 75)
        listed = {one.key: one for one in await hf.limits.list()}
        assert listed["catalogue"].adaptive
        assert 2 <= listed["catalogue"].most <= 50
        assert listed["customer:large"].most == 5
    assert len(list(tmp_path.glob("*/*.json"))) == 29  # noqa: ASYNC240  a few small files


async def _declared(hf: Holdfast) -> None:
    """Wait until the first step has made the rate known."""
    async with asyncio.timeout(60):
        while "catalogue-calls" not in {one.key for one in await hf.limits.list()}:  # noqa: ASYNC110  the store knows
            await asyncio.sleep(0.01)


async def test_a_shop_that_does_not_exist_is_not_tried_again(store_url: str, tmp_path: Path) -> None:
    """The caller's own mistake is no sign of overload."""
    async with Holdfast(store_url) as hf:
        run = await hf.start(importer.import_shop, "nowhere", 1, str(tmp_path))
        with pytest.raises(RunFailed, match="nowhere has no page 1"):
            await run.result(60)
    assert len(calls) == 1
