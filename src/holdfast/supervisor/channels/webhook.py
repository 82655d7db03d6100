"""A channel that sends a signed JSON document by POST to a checked address. It does not follow redirects.

The signature is HMAC-SHA256 with the shared secret over `{timestamp}.{delivery}.{body}`. A receiver that checks it and
the timestamp, and remembers delivery ids for some minutes, accepts nothing forged, nothing old and nothing twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from urllib.parse import urlsplit

from holdfast.errors import InvalidSettings
from holdfast.outbound import NotReached, closed, connected, networks, target_of, tls_context
from holdfast.supervisor.channels.channel import Channel, Notice, NotSent

ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r|$)")


class Webhook(Channel):
    type = "webhook"

    def __init__(
        self,
        name: str,
        *,
        url: str,
        secret: str | None,
        allow: tuple[str, ...],
        ca_file: str | None,
        **more: object,
    ) -> None:
        parts = urlsplit(url)
        path = parts.path or "/"
        secrets = [secret or "", url, path if len(path) > 1 else "", parts.query, parts.password or ""]
        super().__init__(name, secrets=secrets, **more)  # type: ignore[arg-type]
        what = f"channel {name!r}"
        self._target = target_of(url, what)
        try:
            self._allowed = networks(allow)
        except ValueError as error:
            raise InvalidSettings(f"{what}: {error}") from None
        self._secret = secret.encode() if secret else None
        self._tls = tls_context(what, ca_file) if self._target.is_tls else None

    async def send(self, notice: Notice) -> None:
        body = notice.as_json()
        try:
            reader, writer = await connected(self._target, self._allowed, self._tls)
        except NotReached as error:
            raise NotSent(str(error)) from None
        try:
            writer.write(self._request(notice.delivery, body))
            await writer.drain()
            line = await reader.readline()
        except (OSError, ValueError, asyncio.LimitOverrunError) as error:
            raise NotSent(f"the connection broke: {type(error).__name__}") from None
        finally:
            await closed(writer)
        judge_answer(line)

    def _request(self, delivery: str, body: bytes) -> bytes:
        headers = {
            "Host": self._target.netloc,
            "User-Agent": "holdfast",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Holdfast-Delivery": delivery,
        }
        if self._secret is not None:
            stamp = str(int(self._environment.now()))
            headers["Holdfast-Timestamp"] = stamp
            headers["Holdfast-Signature"] = f"v1={signature(self._secret, stamp, delivery, body)}"
        lines = [
            f"POST {self._target.path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


def signature(secret: bytes, stamp: str, delivery: str, body: bytes) -> str:
    return hmac.new(secret, f"{stamp}.{delivery}.".encode() + body, hashlib.sha256).hexdigest()


def judge_answer(line: bytes) -> None:
    match = ANSWER.match(line)
    if match is None:
        raise NotSent("the answer is not HTTP" if line else "the connection was closed without an answer")
    code = int(match[1])
    if 300 <= code < 400:
        raise NotSent(f"it answered {code}: redirects are not followed, name the final address")
    if not 200 <= code < 300:
        raise NotSent(f"it answered {code}")
