"""Traces: one trace from the caller through the run to each attempt, by OpenTelemetry.

    python examples/traced.py

In production, the SDK sends spans to a collector, and each process says where:

    export HOLDFAST_TRACES=1 SPANS_FILE=spans.jsonl
    holdfast up examples/traced.py

What it shows:
- `Config(traces=True)`, or HOLDFAST_TRACES=1: without it, no span is made and nothing is looked up for one;
- the start of a run is a span of the caller, each attempt is a span under it, and a span in a step's code is under its
  attempt, in whatever process that runs;
- a retried step is two spans, a child run is in the trace of its parent, an undo is a span like any other;
- no span is open while the run sleeps.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from holdfast import Holdfast, Retry, Stop, here, step, workflow
from holdfast.config import Config
from holdfast.errors import RunUndone

tracer = trace.get_tracer("shop")


def write_spans(file: str) -> None:
    """Write the spans of this process to a file, one a line. Elsewhere this would be an exporter for a collector."""
    exporter = ConsoleSpanExporter(
        out=Path(file).open("a", buffering=1),  # noqa: SIM115  open for as long as the process lives
        formatter=lambda span: span.to_json(indent=None) + "\n",
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


if "SPANS_FILE" in os.environ:
    write_spans(os.environ["SPANS_FILE"])


@step(retry=Retry(attempts=3, on=ConnectionError, delay=0.05))
async def reserve(item: str) -> str:
    with tracer.start_as_current_span(
        "ask the warehouse"
    ):  # under the attempt, as any library's spans would be
        if here.attempt == 1:
            raise ConnectionError("the warehouse is busy")
    return f"shelf of {item}"


@reserve.undo
async def put_back(shelf: str | None, item: str) -> None:
    """The goods are free again."""


@step
def ship(item: str) -> str:
    if item == "unicorn":
        raise Stop("nobody ships unicorns")
    return f"parcel with {item}"


@workflow
async def delivery(item: str) -> str:
    return await ship(item)


@workflow
async def order(item: str) -> str:
    await reserve(item)
    await asyncio.sleep(0.2)  # durable: no span is open meanwhile
    return await delivery(item)


def drawn(lines: list[str]) -> str:
    """Return spans as trees, each under its parent, in the order in which they began."""
    spans: list[dict[str, Any]] = sorted(map(json.loads, lines), key=lambda span: str(span["start_time"]))
    known = {span["context"]["span_id"] for span in spans}
    under: dict[str | None, list[dict[str, Any]]] = {}
    for span in spans:
        parent = span["parent_id"] if span["parent_id"] in known else None
        under.setdefault(parent, []).append(span)

    def tree(parent: str | None, depth: int) -> list[str]:
        found = []
        for span in under.get(parent, ()):
            given = span["attributes"]
            more = given.get("holdfast.outcome") or given.get("holdfast.state") or ""
            found.append(f"{'  ' * depth}{span['name']} {more}".rstrip())
            found += tree(span["context"]["span_id"], depth + 1)
        return found

    return "\n".join(tree(None, 0))


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with Holdfast(f"sqlite:///{folder}/holdfast.db", config=Config(traces=True)) as hf:
            for item in ("anchor", "unicorn"):
                with tracer.start_as_current_span(f"POST /orders {item}"):  # as a web framework would
                    run = await hf.start(order, item)
                try:
                    print(await run.result(timeout=60))
                except RunUndone as undone:
                    print(undone)


if __name__ == "__main__":
    file = sys.argv[1] if len(sys.argv) > 1 else "spans.jsonl"
    write_spans(file)
    asyncio.run(main())
    print(drawn(Path(file).read_text().splitlines()))
