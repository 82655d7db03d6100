"""Trip booking: three remote services, and a trip is only a trip when all three have accepted.

    holdfast run examples/trip.py:book_trip --input '{"city": "Oslo"}'
    holdfast run examples/trip.py:book_trip --input '{"city": "Venice"}'     no cars there: the trip is cancelled

What it shows:
- bookings in parallel;
- a lost reply that is retried, and `here.key`, by which the service recognises the same booking;
- an answer that no retry can change, raised as `Stop`;
- `@step.undo`: when one booking fails, the others are cancelled, and nothing is left behind;
- `undo_failed`: a service may have booked although all its replies were lost. So a booking that failed is cancelled, too:
  by its key, because there is no reference.

The services are in examples/trip_service.py. It is started beside the run, unless BOOKING_SERVICE names one that runs.
Bookings are kept in work/trip/bookings.db (BOOKING_LEDGER).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Retry, Stop, here, set_progress, step, workflow

PATIENT = Retry(attempts=4, on=OSError, delay=1, jitter="equal")


@dataclass(frozen=True)
class Booking:
    kind: str
    reference: str


@dataclass(frozen=True)
class Trip:
    traveller: str
    city: str
    flight: Booking
    hotel: Booking
    car: Booking


@step(retry=PATIENT, timeout=10, undo_failed=True)
def book_flight(city: str, traveller: str) -> Booking:
    return book("flights", city, traveller)


@book_flight.undo
def cancel_flight(booked: Booking | None, city: str, traveller: str) -> None:
    cancel("flights", booked)


@step(retry=PATIENT, timeout=10, undo_failed=True)
def book_hotel(city: str, traveller: str) -> Booking:
    return book("hotels", city, traveller)


@book_hotel.undo
def cancel_hotel(booked: Booking | None, city: str, traveller: str) -> None:
    cancel("hotels", booked)


@step(retry=PATIENT, timeout=10, undo_failed=True)
def book_car(city: str, traveller: str) -> Booking:
    return book("cars", city, traveller)


@book_car.undo
def cancel_car(booked: Booking | None, city: str, traveller: str) -> None:
    cancel("cars", booked)


@workflow
async def book_trip(city: str = "Oslo", traveller: str = "Ada") -> Trip:
    flight, hotel = await asyncio.gather(book_flight(city, traveller), book_hotel(city, traveller))
    set_progress(2 / 3, "flight and hotel are booked")
    car = await book_car(city, traveller)
    set_progress(1, "all three are booked")
    return Trip(traveller, city, flight, hotel, car)


def book(what: str, city: str, traveller: str) -> Booking:
    """Make one booking per `here.key`, however often this is called."""
    wanted = json.dumps({"city": city, "traveller": traveller}).encode()
    return Booking(**ask("POST", f"/{what}", here.key, wanted))


def cancel(what: str, booked: Booking | None) -> None:
    """Cancel a booking, however often this is called. Without a reference, cancel whatever the step's key booked, or may
    still book."""
    ask("DELETE", f"/{what}/{booked.reference}" if booked else f"/{what}", here.undoes)


def ask(method: str, path: str, key: str, body: bytes | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = urllib.request.Request(service_url() + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.load(answer)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as refusal:
        with refusal:
            reason = json.load(refusal)["error"]
        if refusal.code in {409, 410}:
            raise Stop(reason) from None  # asking again would not change the answer
        raise


_started: list[tuple[str, subprocess.Popen[str]]] = []
_starting = threading.Lock()


def service_url() -> str:
    """Return the address of the booking service. Start one for this process if none is named."""
    if url := os.environ.get("BOOKING_SERVICE"):
        return url
    with _starting:
        if not _started:
            program = str(Path(__file__).with_name("trip_service.py"))
            ledger = os.environ.get("BOOKING_LEDGER", "work/trip/bookings.db")
            command = [sys.executable, program, "--attached", "--ledger", ledger]
            service = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert service.stdout is not None
            _started.append((service.stdout.readline().strip(), service))
        return _started[0][0]
