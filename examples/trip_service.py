"""The remote side of trip.py: a booking service that is as unreliable as real ones.

    python examples/trip_service.py --port 8700 --ledger bookings.db

POST /flights, /hotels or /cars with {"city": …, "traveller": …} and an Idempotency-Key books once per key: the same key
gets the same booking again. The hotel desk books and hangs up before it has answered, the first time it sees a key.
There are no cars in Venice. GET /bookings shows the ledger, which is a file and survives the service.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS bookings (
    key TEXT PRIMARY KEY, kind TEXT, city TEXT, traveller TEXT, reference TEXT, requests INTEGER DEFAULT 1
)
"""


class BookingService(ThreadingHTTPServer):
    """Books into a ledger, once per key."""

    daemon_threads = True

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

    def book(self, key: str, kind: str, city: str, traveller: str) -> tuple[str, int]:
        """The booking's reference, and how often this key has asked for it."""
        with closing(self.open_ledger()) as rows:
            return rows.execute(  # type: ignore[no-any-return]
                "INSERT INTO bookings (key, kind, city, traveller, reference)"
                " VALUES (?1, ?2, ?3, ?4, upper(substr(?2, 1, 2)) || '-' || (SELECT 1001 + count(*) FROM bookings))"
                " ON CONFLICT (key) DO UPDATE SET requests = requests + 1 RETURNING reference, requests",
                (key, kind, city, traveller),
            ).fetchone()

    def bookings(self) -> list[dict[str, Any]]:
        with closing(self.open_ledger()) as rows:
            rows.row_factory = sqlite3.Row
            return [dict(row) for row in rows.execute("SELECT * FROM bookings ORDER BY rowid")]


class Desk(BaseHTTPRequestHandler):
    """Answers one request."""

    server: BookingService

    def do_GET(self) -> None:
        if self.path == "/bookings":
            self.answer(200, self.server.bookings())
        else:
            self.answer(404, {"error": f"there is no {self.path} here"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key, kind = self.headers["Idempotency-Key"], self.path.strip("/").removesuffix("s")
        time.sleep(self.server.latency_s)
        if kind not in {"flight", "hotel", "car"} or not key:
            self.answer(400, {"error": "book /flights, /hotels or /cars with an Idempotency-Key"})
        elif kind == "car" and asked["city"] == "Venice":
            self.answer(409, {"error": "there are no cars in Venice"})
        else:
            reference, requests = self.server.book(key, kind, asked["city"], asked["traveller"])
            if kind == "hotel" and requests == 1:
                return  # booked, but the caller will never know
            self.answer(201, {"kind": kind, "reference": reference})

    def answer(self, code: int, body: object) -> None:
        raw = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet: the run's own progress is the interesting output."""


def leave_with_the_starter() -> None:
    """Exit as soon as whoever started this process is gone, however it went: its end of our stdin closes."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description="A booking service on 127.0.0.1.")
    parser.add_argument("--port", type=int, default=0, help="a free one by default")
    parser.add_argument("--ledger", type=Path, default=Path("work/trip/bookings.db"))
    parser.add_argument("--latency", type=float, default=0.4, help="seconds a booking takes")
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
