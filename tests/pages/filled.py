"""Fills a store by its server: runs of every kind, in every state.

.venv/bin/python -m tests.pages.filled /tmp/folder    # serves it until Ctrl-C
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.http.processes import Process
from tests.pages.hostile import HOSTILE

APPLICATION = str(Path(__file__).with_name("application.py"))
DEADLINE_S = 90.0
RUNS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("order-1001", "buy", {"item": "lamp", "cents": 250}),
    ("order-1002", "buy", {"item": "chair", "cents": 251}),
    ("order-1003", "buy", {"item": "piano", "cents": 90_000}),
    ("trip-8841", "wait_for_approval", {"item": "car"}),
    ("letter-7", "backs_off", {"item": "letter"}),
    ("room-12", "gets_stuck", {"what": "room"}),
    ("scene-3", "needs_a_gpu", {"scene": "harbour"}),
    ("poison-1", "is_poison", {"size": 3}),
    ("tent-5", "sleeps", {"hours": 20}),
    ("family-2", "family", {"children": 3}),
    ("interest-2026-11-15", "posts", {"count": 40}),
    ("shop-prod", "provision", {"name": "shop", "machines": 2}),
    ("mall-prod", "provision", {"name": "mall", "machines": 7}),
    (HOSTILE, "talks", {"words": f"fail {HOSTILE}"}),
    ("odd/id ü ☃", "talks", {"words": "ok"}),
    ("held-1", "sleeps", {"hours": 1}),
    ("gone-1", "sleeps", {"hours": 2}),
    ("trip-9", "approve", {}),
    ("expense-4", "approve_cap", {"question": f"Pay this expense? {HOSTILE}"}),
)
LIMITED: tuple[tuple[str, str, Mapping[str, Any], str], ...] = (
    *((f"signature-{n}", "signs", {"n": n}, "globex") for n in range(5)),
    *((f"mail-{n}", "mails", {"n": n}, HOSTILE) for n in range(3)),
    ("shop-acme", "import_shop", {"shop": "acme.example", "pages": 30}, "acme"),
    ("shop-globex", "import_shop", {"shop": "globex.example", "pages": 10}, "globex"),
)
"""Runs that need room under a limit, and the fair keys of those whom they are for."""
EVENTS: tuple[tuple[str, str, str, Any], ...] = (
    ("order.created", "shop", "order-42", {"id": "order-42", "item": "lamp", "cents": 900}),
    ("positions.delivered", "custodian", "2026-11-18", {"path": "positions.csv", "rows": 3}),
    ("fx.published", "bank", "2026-11-18", {"eur": 11.6}),
    ("file.arrived", "ftp", "2026-11-18", "a.csv"),
    ("fx.published", "bank", "2026-11-17", {"eur": 11.5}),
    ("file.arrived", "ftp", "2026-11-17", "a.csv"),
    ("file.arrived", "ftp", "2026-11-17", "b.csv"),
    ("file.arrived", "ftp", "2026-11-17", "c.csv"),
    ("fx.published", "bank", "2026-11-16", {"eur": 11.4}),
    ("fx.published", HOSTILE, HOSTILE, HOSTILE),
    ("heard.by-nobody", "shop", HOSTILE, {"words": HOSTILE}),
)
AIMS = {
    "order-1001": "succeeded",
    "order-1002": "succeeded",
    "order-1003": "undone",
    "room-12": "stuck",
    "family-2": "succeeded",
    "interest-2026-11-15": "succeeded",
    "shop-prod": "succeeded",
    "mall-prod": "undone",
    HOSTILE: "failed",
    "odd/id ü ☃": "succeeded",
}


class Filler:
    def __init__(self, url: str, token: str = "") -> None:
        self._url, self._token = url, token

    def ask(self, verb: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        headers = {"Content-Type": kind}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, headers, method=verb)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def tried(self, verb: str, path: str, body: Any = None) -> bool:
        """True if the server does it. False if it cannot now."""
        try:
            self.ask(verb, path, body)
        except urllib.error.HTTPError as wrong:
            if wrong.code != 503:
                raise
            return False
        return True

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self._url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def start(self, id: str, workflow: str, given: Mapping[str, Any], **more: Any) -> str:
        names = [one["name"] for one in self.ask("GET", "/v1/workflows")["items"]]
        name = next(one for one in names if one.rpartition(".")[2] == workflow)
        return str(self.ask("POST", "/v1/runs", {"workflow": name, "id": id, "input": given, **more})["ref"])

    def schedule(self, name: str, times: str, tz: str) -> None:
        names = [one["name"] for one in self.ask("GET", "/v1/workflows")["items"]]
        workflow = next(one for one in names if one.endswith("talks"))
        given = {"name": name, "workflow": workflow, "times": times, "tz": tz, "input": {}}
        self.ask("POST", "/v1/schedules", given)

    def emit(self, n: int, type: str, source: str, subject: str, data: Any) -> None:
        event = {
            "specversion": "1.0",
            "id": f"e{n}",
            "type": type,
            "source": source,
            "subject": subject,
            "data": data,
        }
        self.ask("POST", "/v1/events", event, "application/cloudevents+json")

    def fill_limits(self) -> None:
        """Let limits be full, keys have weights, events come in, and occasions wait for the rest."""
        for run, workflow, given, fair in LIMITED:
            self.start(run, workflow, given, fair=fair)
        self.until(lambda: self.ask("GET", "/v1/limits/bank")["limit"]["used"] == 2)
        self.until(lambda: len(self.ask("GET", "/v1/limits/bank")["waiters"]) == 3)
        self.ask("POST", "/v1/fair", {"key": "acme", "weight": 3, "note": "they pay for it"})
        self.ask("POST", "/v1/fair", {"key": HOSTILE, "weight": 2, "note": HOSTILE})
        self.ask("POST", "/v1/limits/catalogue-calls", {"most": 12, "note": f"they are slow today {HOSTILE}"})
        for n, event in enumerate(EVENTS):
            self.emit(n, *event)
        self.ask("POST", "/v1/occasions/evening@when:2026-11-16/drop", {"note": f"a holiday {HOSTILE}"})
        self.ask("POST", "/v1/hooks", {"name": "billing", "scheme": "stripe"})

    def fill(self) -> dict[str, str]:
        """Start all, and wait until they are as they will stay. Return the form of each id that stands in a path."""
        refs: dict[str, str] = {}
        for run, workflow, given in RUNS:
            if run == "mall-prod":  # it wants more machines than are left
                self.until(partial(self.is_now, refs["shop-prod"], "succeeded"))
            tags = {"region": "eu"} if run == "mall-prod" else {"region": "eu", "note": HOSTILE}
            refs[run] = self.start(run, workflow, given, tags=tags)
        for run, state in AIMS.items():
            self.until(partial(self.is_now, refs[run], state))
        for n in range(6):
            self.start(f"payment-{n}", "pay_while_down", {"cents": 100 + n})
        self.ask("POST", f"/v1/runs/{refs['held-1']}/hold", {"note": f"waiting for the bank {HOSTILE}"})
        self.ask("POST", f"/v1/runs/{refs['gone-1']}/cancel", {"note": "not wanted"})
        self.ask("POST", "/v1/holds", {"scope": "workflow", "value": "shop.closed", "note": HOSTILE})
        self.ask("POST", "/v1/breakers/smtp/open", {"note": "they announced maintenance"})
        self.until(lambda: bool(self.ask("GET", "/v1/quarantine")["items"]))
        self.until(lambda: len(self.ask("GET", "/v1/asks")["items"]) == 2)
        for name, times, tz in (("nightly", "0 3 * * *", "Europe/Oslo"), ("every-5-min", "5m", "UTC")):
            self.schedule(name, times, tz)
        self.ask("POST", "/v1/schedules/nightly/pause", {"note": "the warehouse counts its stock"})
        self.fill_limits()
        return refs

    def is_now(self, ref: str, state: str) -> bool:
        return bool(self.ask("GET", f"/v1/runs/{ref}")["state"] == state)

    @staticmethod
    def until(true: Any, limit_s: float = DEADLINE_S) -> None:
        end = time.monotonic() + limit_s
        while not true():
            assert time.monotonic() < end, f"it did not happen: {true}"
            time.sleep(0.1)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    process = Process(folder, f"sqlite:///{folder}/pages.db", "up", APPLICATION)
    print(process.url, flush=True)
    try:
        Filler(process.url).fill()
        print("filled", flush=True)
        process.process.communicate()  # whoever does not read what a server says makes it wait in the end
    finally:
        process.close()


if __name__ == "__main__":
    main()
