"""ETL: what is in the files is in the database, once."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from examples import etl
from holdfast import Holdfast, RunFailed
from tests.examples.conftest import ROOT, Ended


def rows(database: str) -> list[tuple[str, str, str, float]]:
    with closing(sqlite3.connect(database)) as db:
        return db.execute("SELECT source, day, product, euro FROM sales ORDER BY 1, 2, 3, 4").fetchall()


async def pipeline(store_url: str, folder: Path, limit: int = 3) -> etl.Report:
    async with Holdfast(store_url) as hf:
        return await (await hf.start(etl.pipeline, str(folder), limit)).result(timeout=60)


async def test_files_become_rows(store_url: str, tmp_path: Path) -> None:
    """CSV and JSON give the same kind of row; what cannot be read as a sale is counted as rejected."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "a.csv").write_text(
        "day,product,amount,currency\n2026-01-02,rope,10,EUR\n2026-01-03,rope,?,EUR\n"
    )
    sale = {"day": "2026-01-04", "product": "buoy", "amount": "100", "currency": "NOK"}
    (sources / "b.json").write_text(json.dumps([sale]))
    report = await pipeline(store_url, tmp_path)
    assert rows(report.database) == [
        ("a.csv", "2026-01-02", "rope", 10.0),
        ("b.json", "2026-01-04", "buoy", 8.5),
    ]
    assert (report.files, report.loaded, report.rejected) == (2, 2, 1)
    assert report.euro_by_product == {"rope": 10.0, "buoy": 8.5}


async def test_a_broken_file_is_tolerated_and_named(store_url: str, tmp_path: Path) -> None:
    """One of the eight sample files is cut off: the other seven are loaded."""
    report = await pipeline(store_url, tmp_path)
    assert [Path(each).name for each in report.unreadable] == ["shop7.json"]
    assert report.files == 7
    assert report.loaded == len(rows(report.database)) == 7 * 245


async def test_too_many_broken_files_fail_the_run(store_url: str, tmp_path: Path) -> None:
    """Beyond the tolerated share nothing is loaded."""
    sources = tmp_path / "sources"
    sources.mkdir()
    for name in ("a.json", "b.json", "c.json"):
        (sources / name).write_text("[{")
    with pytest.raises(RunFailed):
        await pipeline(store_url, tmp_path)
    assert not (tmp_path / "sales.db").exists()


async def test_a_second_run_replaces_what_the_first_loaded(store_url: str, tmp_path: Path) -> None:
    """Two runs over the same files leave each row once."""
    first = rows((await pipeline(store_url, tmp_path)).database)
    assert rows((await pipeline(store_url, tmp_path)).database) == first


def test_the_pipeline_needs_no_input(command: Callable[..., Ended], tmp_path: Path) -> None:
    """`holdfast run examples/etl.py:pipeline` makes its own sample files."""
    ended = command("run", ROOT / "examples/etl.py:pipeline")
    assert ended.code == 0, ended.errors
    assert len(rows(str(tmp_path / ended.shown["output"]["database"]))) == ended.shown["output"]["loaded"]
