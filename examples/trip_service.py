"""The remote side of trip.py: a booking service that is as unreliable as real ones.

    python examples/trip_service.py --port 8700 --ledger bookings.db

POST /flights, /hotels or /cars with {"city": …, "traveller": …} and an Idempotency-Key books once per key: the same key
gets the same booking again. The first time the hotel desk sees a key, it books and hangs up before it has answered.
There are no cars in Venice.

DELETE /hotels/HO-1001 cancels a booking. DELETE /hotels with an Idempotency-Key cancels what was booked under that key.
If nothing was booked, the key is remembered, and a request that comes late is refused. Cancelling again changes nothing.

GET /bookings and GET /cancellations show the ledger, which is a file and survives the service.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Collection
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS bookings (
    key TEXT PRIMARY KEY, kind TEXT, city TEXT, traveller TEXT, reference TEXT UNIQUE, requests INTEGER DEFAULT 1,
    cancelled INTEGER  -- the first cancellation is 1; a cancelled row without a reference came before its booking
)
"""
BOOK = """
INSERT INTO bookings (key, kind, city, traveller, reference)
VALUES (?1, ?2, ?3, ?4, upper(substr(?2, 1, 2)) || '-' || (SELECT 1001 + count(*) FROM bookings))
ON CONFLICT (key) DO UPDATE SET requests = requests + 1 RETURNING reference, requests, cancelled
"""
CANCEL_BOOKING = """
UPDATE bookings SET cancelled = coalesce(cancelled, (SELECT 1 + count(cancelled) FROM bookings)) WHERE reference = ?
"""
CANCEL_KEY = """
INSERT INTO bookings (key, kind, requests, cancelled) VALUES (?, ?, 0, (SELECT 1 + count(cancelled) FROM bookings))
ON CONFLICT (key) DO UPDATE SET cancelled = coalesce(cancelled, excluded.cancelled)
"""


class BookingService(ThreadingHTTPServer):
    """A service that books into a ledger, once per key."""

    daemon_threads = True
    no_cars_in: Collection[str] = ("Venice",)
    hangs_up: Collection[str] = ()
    """Desks that book and never answer."""

    def __init__(self, port: int, ledger: Path, latency_s: float) -> None:
        super().__init__(("127.0.0.1", port), Desk)
        self.ledger, self.latency_s = ledger, latency_s
        ledger.parent.mkdir(parents=True, exist_ok=True)
        with closing(self.open_ledger()) as rows:
            rows.execute(SCHEMA)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def open_ledger(self) -> sqlite3.Connection:
        return sqlite3.connect(self.ledger, timeout=30, isolation_level=None)

    def book(self, key: str, kind: str, city: str, traveller: str) -> tuple[str, int, int | None]:
        """Book. Return the booking's reference, how often this key has asked for it, and the number of its cancellation."""
        with closing(self.open_ledger()) as rows:
            return rows.execute(BOOK, (key, kind, city, traveller)).fetchone()  # type: ignore[no-any-return]

    def cancel(self, key: str, kind: str, reference: str) -> None:
        with closing(self.open_ledger()) as rows:
            if reference:
                rows.execute(CANCEL_BOOKING, (reference,))
            else:
                rows.execute(CANCEL_KEY, (key, kind))

    def bookings(self) -> list[dict[str, Any]]:
        """Return what is booked, oldest first."""
        return self._rows("cancelled IS NULL ORDER BY rowid")

    def cancellations(self) -> list[dict[str, Any]]:
        """Return what was booked and then cancelled, in the order of the cancellations."""
        return self._rows("cancelled IS NOT NULL AND reference IS NOT NULL ORDER BY cancelled")

    def _rows(self, where: str) -> list[dict[str, Any]]:
        with closing(self.open_ledger()) as rows:
            rows.row_factory = sqlite3.Row
            return [dict(row) for row in rows.execute(f"SELECT * FROM bookings WHERE {where}")]


class Desk(BaseHTTPRequestHandler):
    """A desk of the service: it answers one request."""

    server: BookingService

    def do_GET(self) -> None:
        if self.path == "/bookings":
            self.answer(200, self.server.bookings())
        elif self.path == "/cancellations":
            self.answer(200, self.server.cancellations())
        else:
            self.answer(404, {"error": f"there is no {self.path} here"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind, _, key = self.wanted()
        if not kind or not key:
            self.answer(400, {"error": "book /flights, /hotels or /cars with an Idempotency-Key"})
        elif kind == "car" and asked["city"] in self.server.no_cars_in:
            self.answer(409, {"error": f"there are no cars in {asked['city']}"})
        else:
            reference, requests, cancelled = self.server.book(key, kind, asked["city"], asked["traveller"])
            if cancelled is not None:
                self.answer(410, {"error": f"this {kind} was cancelled before it was booked"})
            elif kind in self.server.hangs_up or (kind == "hotel" and requests == 1):
                return  # booked, but the caller will never know
            else:
                self.answer(201, {"kind": kind, "reference": reference})

    def do_DELETE(self) -> None:
        kind, reference, key = self.wanted()
        if not kind or not (reference or key):
            self.answer(400, {"error": "cancel /hotels/REFERENCE, or /hotels with an Idempotency-Key"})
        else:
            self.server.cancel(key, kind, reference)
            self.answer(200, {"cancelled": reference or key})

    def wanted(self) -> tuple[str, str, str]:
        """Return kind, reference and key of a request, after the time that such a service takes."""
        time.sleep(self.server.latency_s)
        kind, _, reference = self.path.strip("/").partition("/")
        kind = kind.removesuffix("s")
        return (
            kind if kind in {"flight", "hotel", "car"} else "",
            reference,
            self.headers["Idempotency-Key"] or "",
        )

    def answer(self, code: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the run's own progress is the interesting output."""


def leave_with_the_starter() -> None:
    """Exit as soon as the process that started this one is gone. However it ends, its end of our stdin closes then."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="A booking service on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="a free one by default")
    parser.add_argument("--ledger", type=Path, default=Path("work/trip/bookings.db"))
    parser.add_argument("--latency", type=float, default=0.4, help="seconds an answer takes")
    parser.add_argument("--attached", action="store_true", help="exit when standard input closes")
    options = parser.parse_args()
    with BookingService(options.port, options.ledger, options.latency) as service:
        print(service.url, flush=True)
        if options.attached:
            threading.Thread(target=leave_with_the_starter, daemon=True).start()
        try:
            service.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
