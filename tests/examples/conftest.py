"""What the examples need around them: the booking service, and the product's own command."""

import asyncio
import json
import os
import subprocess
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from examples.trip_service import BookingService
from tests.forkserver import HOLDFAST, Forked

ROOT = Path(__file__).parents[2]


def printed(*words: str | Path) -> str:
    """Return what a program printed."""
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


async def until(true: Callable[[], Awaitable[bool]], limit_s: float = 60.0) -> None:
    """Wait until something outside this process is true, with a deadline instead of a guess."""
    async with asyncio.timeout(limit_s):
        while not await true():  # noqa: ASYNC110  what happens outside gives no signal
            await asyncio.sleep(0.02)


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    shown: dict[str, Any]
    errors: str


@pytest.fixture
def booking_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BookingService]:
    """A booking service with an empty ledger. Its address is set for examples/trip.py and for processes that the test
    starts."""
    with BookingService(port=0, ledger=tmp_path / "bookings.db", latency_s=0.02) as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        monkeypatch.setenv("BOOKING_SERVICE", service.url)
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def start_command(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `holdfast …` in an empty folder and do not wait for it. It is killed at the end of the test if it still
    runs."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        process = Forked(
            [HOLDFAST, *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "NO_COLOR": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


@pytest.fixture
def command(start_command: Callable[..., subprocess.Popen[str]]) -> Callable[..., Ended]:
    """Run `holdfast … --json` in an empty folder, and return its exit code and the one object it printed."""

    def run(*arguments: str | Path) -> Ended:
        process = start_command(*arguments, "--json")
        shown, errors = process.communicate(timeout=90)
        assert "Traceback" not in errors, errors
        return Ended(process.returncode, json.loads(shown) if shown.strip() else {}, errors)

    return run
