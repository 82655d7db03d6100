"""Importer: many customers' shops are copied through one API that allows so many calls, and bears nobody knows how many.

    holdfast up examples/importer.py
    holdfast start examples/importer.py:import_shop --fair acme --input '{"shop": "acme.example", "pages": 40}'
    holdfast limits
    holdfast fair set acme 3 --note "they pay for it"

What it shows:
- `fair`: a customer with a large shop does not delay the others, and an operator may give one a larger share;
- one run is open for each shop, and starting it again answers with that one;
- a customer has five calls at work at most, and the API gets twenty a second and a few more after a pause;
- how many calls the API bears at once is found by itself: fewer when it gets slow or fails, more when it is well again.

Files go to work/importer.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

from holdfast import Retry, RetryIn, Stop, set_progress, step, workflow
from holdfast.limits import Limit, Rate


class TooMany(Exception):
    """The API answers 429, and says when to come again."""

    def __init__(self, after_s: float) -> None:
        super().__init__(f"come again in {after_s} s")
        self.after_s = after_s


@dataclass(frozen=True)
class Imported:
    shop: str
    pages: int
    products: int


@step(
    limits=[
        Limit("customer:{fair}", 5),
        Limit("catalogue", 50, adaptive=True, least=2),
        Rate("catalogue-calls", 20, per=1, burst=10),
    ],
    retry=Retry(attempts=20, delay=0.1, max_delay=5),
    timeout=30,
)
async def fetch_page(shop: str, page: int, folder: str) -> int:
    """Write one page of products to a file. Fetching it twice writes the same."""
    try:
        products = await call_api(shop, page)
    except TooMany as busy:
        raise RetryIn(busy.after_s, "the API has too much to do") from None
    except LookupError:
        raise Stop(f"{shop} has no page {page}") from None
    save(Path(folder, shop, f"{page}.json"), products)
    return len(products)


def save(path: Path, products: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(products))


@workflow(limits=[Limit("import:{shop}", 1, full="skip")])
async def import_shop(shop: str, pages: int, folder: str = "work/importer") -> Imported:
    """Copy all pages of a shop."""
    found = 0
    for first in range(1, pages + 1, 10):
        last = min(first + 10, pages + 1)
        found += sum(await asyncio.gather(*(fetch_page(shop, page, folder) for page in range(first, last))))
        set_progress((last - 1) / pages)
    return Imported(shop, pages, found)


# --- the API of somebody else, made up --------------------------------------------------------------------------------


async def call_api(shop: str, page: int) -> list[str]:
    """Return the products of a page."""
    if not shop.endswith(".example"):
        raise LookupError(shop)
    await asyncio.sleep(0.01)
    return [f"{shop}: product {page}-{number}" for number in range(3)]
