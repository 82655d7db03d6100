"""Renews the lease of a remote agent from its heart's process: each beat is a request of its own to the server.

A beat needs no connection that lasts, because there are seconds between two of them, and a server closes what is idle.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from holdfast.store.heart import Order, Renewer

ANSWER_S = 5.0
"""How long the answer to a beat may take. The lease of a remote agent is far longer, so there are several tries."""


class NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: the token is for one server."""

    def redirect_request(self, *_: Any) -> None:
        return None


class HttpRenewer:
    def __init__(self, order: Order) -> None:
        self._url, self._renew_s = f"{order.url}/beat", order.renew_s
        self._headers = {**order.headers, "Content-Type": "application/json"}
        self._opener = build_opener(NoRedirects)

    def renew(self, pulse: str | None, silent_s: float) -> float | None:
        """Beat. An old pulse is not sent again, so the store keeps the time at which the agent last gave one."""
        is_new = pulse is not None and silent_s <= self._renew_s
        found = self._send({"pulse": json.loads(pulse)} if is_new and pulse is not None else {})
        return None if found is None else float(found["now"])

    def say_gone(self) -> None:
        self._send({"gone": True})

    def _send(self, body: dict[str, Any]) -> dict[str, Any] | None:
        """Return what is answered. None if the agent was reclaimed."""
        request = Request(self._url, json.dumps(body).encode(), self._headers, method="POST")  # noqa: S310  a server's
        try:
            with self._opener.open(request, timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)
        except HTTPError as error:
            with error:
                if error.code == HTTPStatus.GONE:
                    return None
            raise
        return found

    def close(self) -> None: ...


def open_renewer(order: Order) -> Renewer:
    return HttpRenewer(order)
