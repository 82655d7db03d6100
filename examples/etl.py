"""ETL: CSV and JSON files in, clean rows in a SQLite database out.

    holdfast run examples/etl.py:pipeline
    holdfast run examples/etl.py:pipeline --input '{"folder": "work/etl", "limit": 2}'

What it shows:
- a bounded fan-out with `step.map`;
- large data stays in files, and steps pass on paths;
- a load that can be repeated, because one transaction replaces what the same file loaded before;
- a bad file that is tolerated, and named in the result.

Put files of your own into work/etl/sources (columns: day, product, amount, currency), or let the first step make some.
"""

from __future__ import annotations

import csv
import json
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from holdfast import Retry, Stop, set_progress, step, workflow

EURO_PER_UNIT = {"EUR": 1.0, "NOK": 0.085, "USD": 0.92}


@dataclass(frozen=True)
class Cleaned:
    source: str
    path: str
    rows: int
    rejected: int


@dataclass(frozen=True)
class Report:
    database: str
    files: int
    loaded: int
    rejected: int
    euro_by_product: dict[str, float]
    unreadable: list[str] = field(default_factory=list)


@step
def find_sources(folder: str) -> list[str]:
    """Return the files to load. Make sample files if there are none."""
    sources = Path(folder, "sources")
    if not sources.is_dir():
        write_samples(sources)
    return [str(path) for path in sorted(sources.iterdir()) if path.suffix in {".csv", ".json"}]


@step(retry=Retry(attempts=3, never=ValueError))
def clean(source: str) -> Cleaned:
    """Read one source, bring its rows into one shape, write them as JSON lines. A broken file stays broken, so no retry."""
    target = Path(source).parent.parent / "cleaned" / (Path(source).name + "l")
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = rejected = 0
    with target.open("w") as lines:
        for raw in read(Path(source)):
            try:
                euro = round(float(raw["amount"]) * EURO_PER_UNIT[raw["currency"]], 2)
                row = {
                    "day": date.fromisoformat(raw["day"]).isoformat(),
                    "product": raw["product"],
                    "euro": euro,
                }
            except (KeyError, ValueError):
                rejected += 1
            else:
                rows += 1
                lines.write(json.dumps(row) + "\n")
    return Cleaned(Path(source).name, str(target), rows, rejected)


@step
def load(database: str, cleaned: Cleaned) -> int:
    """Load all rows of one file in one transaction. They replace what an earlier attempt or run loaded from it."""
    with closing(open_database(database)) as db, db, Path(cleaned.path).open() as lines:
        db.execute("BEGIN IMMEDIATE")
        db.execute("DELETE FROM sales WHERE source = ?", (cleaned.source,))
        rows = ({**json.loads(line), "source": cleaned.source} for line in lines)
        return db.executemany("INSERT INTO sales VALUES (:source, :day, :product, :euro)", rows).rowcount


@step
def total(database: str) -> dict[str, float]:
    with closing(open_database(database)) as db:
        return dict(
            db.execute("SELECT product, round(sum(euro), 2) FROM sales GROUP BY product ORDER BY product")
        )


@workflow
async def pipeline(folder: str = "work/etl", limit: int = 4) -> Report:
    sources = await find_sources(folder)
    if not sources:
        raise Stop(f"there is no .csv or .json file in {folder}/sources")
    database = f"{folder}/sales.db"

    results = await clean.map(sources, limit=limit, tolerate=0.2)
    cleaned = [result for result in results if isinstance(result, Cleaned)]
    unreadable = [
        each for each, result in zip(sources, results, strict=True) if not isinstance(result, Cleaned)
    ]
    set_progress(0.5, f"{len(cleaned)} files cleaned")

    loaded = await load.map([(database, each) for each in cleaned], limit=limit)
    return Report(
        database=database,
        files=len(loaded),
        loaded=sum(loaded),
        rejected=sum(each.rejected for each in cleaned),
        euro_by_product=await total(database),
        unreadable=unreadable,
    )


def read(source: Path) -> Iterator[dict[str, Any]]:
    with source.open(newline="") as file:
        yield from csv.DictReader(file) if source.suffix == ".csv" else json.load(file)


def open_database(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("CREATE TABLE IF NOT EXISTS sales (source TEXT, day TEXT, product TEXT, euro REAL)")
    return db


def write_samples(sources: Path, files: int = 8, rows: int = 250) -> None:
    """Write sales of eight shops. One row in fifty has no amount. The last shop's file is cut off in the middle."""
    chance = random.Random(1)
    making = sources.with_suffix(".making")
    making.mkdir(parents=True, exist_ok=True)
    for shop in range(files):
        sales = [
            {
                "day": str(date(2026, 1, 1) + timedelta(days=n % 31)),
                "product": chance.choice(["anchor", "buoy", "rope"]),
                "amount": "" if n % 50 == 49 else f"{chance.uniform(5, 500):.2f}",
                "currency": chance.choice(list(EURO_PER_UNIT)),
            }
            for n in range(rows)
        ]
        if shop % 2:
            text = json.dumps(sales)
            (making / f"shop{shop}.json").write_text(text if shop < files - 1 else text[: len(text) // 2])
        else:
            with (making / f"shop{shop}.csv").open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(sales[0]))
                writer.writeheader()
                writer.writerows(sales)
    making.rename(sources)  # all or nothing: a killed attempt leaves no half set of files
