"""Requests that schemathesis makes up from our own OpenAPI: none gets a 5xx, and what is refused changes nothing.

`make test` sends some hundred, `make fuzz` sends 20,000 (HOLDFAST_FUZZ is the number).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import hypothesis
import pytest
import schemathesis
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast import Holdfast
from holdfast.http.app import Server, make_app
from holdfast.http.call import Route
from holdfast.http.openapi import document
from holdfast.http.routes import ROUTES
from holdfast.store.reads import RunFilter
from tests.http import flows
from tests.http.conftest import FAST

REQUESTS = int(os.environ.get("HOLDFAST_FUZZ", "400"))
EACH = max(2, REQUESTS * 5 // 4 // len(ROUTES))
"""Some more, because routes without parameters need only a few."""

assert flows.count.name


class Lived:
    """A server in a thread of its own, which the made-up requests are sent to."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.sent, self.failed = 0, 0
        self.hf, self.client = self.wait(self._open())

    def wait(self, what: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(60)

    async def _open(self) -> tuple[Holdfast, httpx2.AsyncClient]:
        hf = Holdfast("sqlite://:memory:", roles=(), config=FAST)
        await hf.open()
        server = Server(hf, hf.desk, is_loopback=True)
        server.leave()  # so that nobody waits here
        app = make_app(server)
        client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost")
        for n in range(3):
            body = {"workflow": "shop.pay", "input": {"cents": 1}, "id": f"run-{n}"}
            assert (await client.post("/v1/runs", json=body)).status_code == 201
        return hf, client

    def send(self, case: Any) -> httpx2.Response:
        self.sent += 1
        if "run" in case.path_parameters and self.sent % 2:
            case.path_parameters["run"] = f"run-{self.sent % 3}"
        given = case.as_transport_kwargs(base_url="http://localhost")
        given.pop("files", None)
        cookies = given.pop("cookies", None)
        headers = {
            name: value.encode("latin-1", "replace") if isinstance(value, str) else value
            for name, value in (given.pop("headers", None) or {}).items()
        }
        if cookies:
            headers["Cookie"] = "x=1"
        data = given.pop("data", None)
        answer: httpx2.Response = self.wait(
            self.client.request(
                given["method"],
                given["url"],
                params=given.get("params"),
                headers=headers,
                content=data if isinstance(data, str | bytes) else None,
                json=given.get("json"),
            )
        )
        return answer

    def rows(self) -> int:
        return len(self.wait(self.hf.store.reads.runs(RunFilter(limit=100_000))))

    def close(self) -> None:
        self.wait(self.client.aclose())
        self.wait(self.hf.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@pytest.fixture
def lived() -> Iterator[Lived]:
    made = Lived()
    yield made
    made.close()
    print(f"{made.sent:,} requests, {made.failed} answered 5xx")


SCHEMA = schemathesis.openapi.from_dict(document(ROUTES))


@pytest.mark.timeout(7200)
def test_no_request_is_answered_5xx(lived: Lived) -> None:
    """Whatever is sent is answered as it is described, and a start that is refused starts nothing."""
    for route in ROUTES:
        if route.path != "/readyz":  # this server is leaving, and says so
            _try(lived, route)
    assert lived.sent >= REQUESTS * 3 // 4
    assert lived.failed == 0


def _try(lived: Lived, route: Route) -> None:
    operation = SCHEMA[route.path][route.verb]

    @hypothesis.given(case=operation.as_strategy())
    @hypothesis.settings(
        max_examples=EACH,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate,),
    )
    def try_one(case: Any) -> None:
        before = lived.rows() if route.path == "/v1/runs" else 0
        answer = lived.send(case)
        lived.failed += answer.status_code >= 500
        assert answer.status_code < 500, (answer.status_code, answer.text, case.as_curl_command())
        if route.path == "/v1/runs" and answer.status_code >= 400:
            assert lived.rows() == before
        case.validate_response(
            schemathesis.Response(
                status_code=answer.status_code,
                headers={name: [value] for name, value in answer.headers.items()},
                content=answer.content,
                request=_request(answer),
                elapsed=0.0,
                verify=False,
            ),
            checks=[status_code_conformance, content_type_conformance, response_schema_conformance],
        )

    try_one()


def _request(answer: httpx2.Response) -> Any:
    import requests

    return requests.Request(answer.request.method, str(answer.request.url)).prepare()
