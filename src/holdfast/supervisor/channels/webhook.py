"""A channel that sends a signed JSON document by POST to a checked address. It does not follow redirects.

The signature is HMAC-SHA256 with the shared secret over `{timestamp}.{delivery}.{body}`. A receiver that checks it and
the timestamp, and remembers delivery ids for some minutes, accepts nothing forged, nothing old and nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import ssl
from urllib.parse import urlsplit

from holdfast.errors import InvalidSettings
from holdfast.supervisor.channels.addresses import checked_addresses, networks
from holdfast.supervisor.channels.channel import Channel, Notice, NotSent

ANSWER = re.compile(rb"HTTP/1\.[01] (\d{3})(?: |\r|$)")
HEADER_BYTES = 64 * 1024


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
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
            raise InvalidSettings(
                f"channel {name!r}: the url must be https://host/path or http://host/path, without user or password"
            )
        try:
            self._port = parts.port or (443 if parts.scheme == "https" else 80)
            self._allowed = networks(allow)
        except ValueError as error:
            raise InvalidSettings(f"channel {name!r}: {error}") from None
        self._host = parts.hostname
        self._netloc = parts.netloc
        self._target = path + (f"?{parts.query}" if parts.query else "")
        if not (self._target + self._netloc).isascii() or re.search(r"[\s\x00-\x1f]", self._target):
            raise InvalidSettings(f"channel {name!r}: the url must be ASCII without spaces: encode it")
        self._secret = secret.encode() if secret else None
        self._tls = tls_context(name, ca_file) if parts.scheme == "https" else None

    async def send(self, notice: Notice) -> None:
        body = notice.as_json()
        addresses = await checked_addresses(self._host, self._port, self._allowed)
        reader, writer = await self._connect(addresses)
        try:
            writer.write(self._request(notice.delivery, body))
            await writer.drain()
            line = await reader.readline()
        except (OSError, ValueError, asyncio.LimitOverrunError) as error:
            raise NotSent(f"the connection broke: {type(error).__name__}") from None
        finally:
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1.0)
        judge_answer(line)

    async def _connect(self, addresses: list[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one of the checked addresses. The host name is not resolved again, but the certificate must be
        valid for it."""
        reason = "no address"
        for address in addresses:
            try:
                return await asyncio.open_connection(
                    address,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls is not None else None,
                    limit=HEADER_BYTES,
                )
            except ssl.SSLCertVerificationError as error:
                reason = f"the certificate is not valid: {error.verify_message}"
            except OSError as error:
                reason = error.strerror or type(error).__name__
        raise NotSent(f"cannot connect: {reason}")

    def _request(self, delivery: str, body: bytes) -> bytes:
        headers = {
            "Host": self._netloc,
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
        lines = [f"POST {self._target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
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


def tls_context(name: str, ca_file: str | None) -> ssl.SSLContext:
    """Return a context that checks certificates against the host's own authorities, or those in `ca_file`."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidSettings(
            f"channel {name!r}: ca_file cannot be read: {error.strerror or error}"
        ) from None
