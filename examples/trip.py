"""Trip booking: three remote services, and a trip is only a trip when all three said yes.

    holdfast run examples/trip.py:book_trip --input '{"city": "Oslo"}'
    holdfast run examples/trip.py:book_trip --input '{"city": "Venice"}'     no cars there: the run ends failed

What it shows: bookings in parallel; a lost reply that is retried, and `here.key`, by which the service knows that it is
the same booking; an answer that no retry can change, raised as `Stop`.

The services are examples/trip_service.py. It is started beside the run, unless BOOKING_SERVICE names one that runs.
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

from holdfast import Retry, Stop, here, set_progress, step, workflow

PATIENT = Retry(attempts=5, on=OSError, delay=1, jitter="equal")


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


@step(retry=PATIENT, timeout=10)
def book_flight(city: str, traveller: str) -> Booking:
    return book("flights", city, traveller)


@step(retry=PATIENT, timeout=10)
def book_hotel(city: str, traveller: str) -> Booking:
    return book("hotels", city, traveller)


@step(retry=PATIENT, timeout=10)
def book_car(city: str, traveller: str) -> Booking:
    return book("cars", city, traveller)


@workflow
async def book_trip(city: str = "Oslo", traveller: str = "Ada") -> Trip:
    flight, hotel = await asyncio.gather(book_flight(city, traveller), book_hotel(city, traveller))
    set_progress(2 / 3, "flight and hotel are booked")
    car = await book_car(city, traveller)
    set_progress(1, "all three are booked")
    return Trip(traveller, city, flight, hotel, car)


def book(what: str, city: str, traveller: str) -> Booking:
    """One booking per `here.key`, however often this is called."""
    request = urllib.request.Request(
        f"{service_url()}/{what}",
        data=json.dumps({"city": city, "traveller": traveller}).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": here.key},
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return Booking(**json.load(answer))
    except urllib.error.HTTPError as refusal:
        with refusal:
            reason = json.load(refusal)["error"]
        if refusal.code == 409:
            raise Stop(reason) from None  # asking again would not change the answer
        raise


_started: list[tuple[str, subprocess.Popen[str]]] = []
_starting = threading.Lock()


def service_url() -> str:
    """Where the booking service is; one is started for this process if none is named."""
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
