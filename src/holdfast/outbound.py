"""Whatever Holdfast itself sends to a host that a settings file names: webhooks, and what is asked of an issuer. The host
name is resolved once, every address of it is checked, and the connection goes to a checked address. Redirects are not
followed."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import re
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from holdfast.errors import InvalidSettings

T = TypeVar("T")

HEADER_BYTES = 64 * 1024
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_INSIDE_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
"""IPv4 networks that are not public. They are listed here because Python's own list differs from version to version."""
_OUTSIDE_6 = IPv6Network("2000::/3")
_INSIDE_6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
"""Networks within that one that are not public: tunnels, whose far end nobody knows, and addresses for
documentation."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""By such an address a host that has only IPv6 reaches an IPv4 host. Its last 32 bits are the IPv4 address."""


def networks(texts: Sequence[str]) -> list[Network]:
    return [ip_network(text, strict=False) for text in texts]


def carried(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address stands for; None if it stands for none."""
    if not isinstance(address, IPv6Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped


def is_public(address: Address) -> bool:
    """True if the address means the same host everywhere on the internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _INSIDE_4)
    inner = carried(address)
    if inner is not None:
        return is_public(inner)
    return address in _OUTSIDE_6 and not any(address in network for network in _INSIDE_6)


def is_allowed(address: Address, allowed: Sequence[Network]) -> bool:
    """True if the address is public, or is in a network that the settings name."""
    inner = carried(address)
    both = [one for one in (address, inner) if one is not None]
    return is_public(address) or any(
        one.version == network.version and one in network for one in both for network in allowed
    )


class NotReached(Exception):
    """A host could not be reached, or did not answer as it should. The message is for the operator, and contains no secret."""


class Target(NamedTuple):
    """Where to connect to, and what to ask there."""

    host: str
    port: int
    netloc: str
    """What the header `Host` says."""
    path: str
    """The path with the query."""
    is_tls: bool


def target_of(url: str, what: str) -> Target:
    """Return the parts of an address. Raise InvalidSettings if it is none: `what` says whose it is."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
        raise InvalidSettings(
            f"{what}: the url must be https://host/path or http://host/path, without user or password"
        )
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidSettings(f"{what}: {error}") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not (path + parts.netloc).isascii() or re.search(r"[\s\x00-\x1f]", path):
        raise InvalidSettings(f"{what}: the url must be ASCII without spaces: encode it")
    return Target(parts.hostname, port, parts.netloc, path, parts.scheme == "https")


def tls_context(what: str, ca_file: str | None) -> ssl.SSLContext:
    """Return a context that checks certificates against the host's own authorities, or those in `ca_file`."""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise InvalidSettings(f"{what}: ca_file cannot be read: {error.strerror or error}") from None


async def checked_addresses(host: str, port: int, allowed: Sequence[Network]) -> list[str]:
    """Return the addresses of `host`. Raises NotReached if nobody may connect to one of them."""

    def resolve() -> list[str]:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))

    try:
        texts = await in_thread(resolve)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a host name"
        raise NotReached(f"the host cannot be resolved: {reason}") from None
    for text in texts:
        if not is_allowed(ip_address(text), allowed):
            raise NotReached(
                f"the host resolves to {text}, which is not a public address: if that is intended, name its network in `allow`"
            )
    return texts


async def connected(
    target: Target, allowed: Sequence[Network], tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to one of the checked addresses. The host name is not resolved again, but the certificate must be valid
    for it."""
    reason = "no address"
    for address in await checked_addresses(target.host, target.port, allowed):
        try:
            return await asyncio.open_connection(
                address,
                target.port,
                ssl=tls,
                server_hostname=target.host if tls is not None else None,
                limit=HEADER_BYTES,
            )
        except ssl.SSLCertVerificationError as error:
            reason = f"the certificate is not valid: {error.verify_message}"
        except OSError as error:
            reason = error.strerror or type(error).__name__
    raise NotReached(f"cannot connect: {reason}")


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close a connection. Whoever is at the other end is not waited for."""
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError, TimeoutError):
        await asyncio.wait_for(writer.wait_closed(), 1.0)


async def fetched(
    target: Target, allowed: Sequence[Network], tls: ssl.SSLContext | None, *, most: int, timeout_s: float
) -> bytes:
    """Return the body that a GET is answered with, of at most `most` bytes. Raise NotReached for any answer but 200."""
    head = {
        "Host": target.netloc,
        "User-Agent": "holdfast",
        "Accept": "application/json",
        "Connection": "close",
    }
    lines = [f"GET {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await connected(target, allowed, tls)
            try:
                writer.write("\r\n".join(lines).encode("ascii") + b"\r\n\r\n")
                await writer.drain()
                raw = await _until_end(reader, most + HEADER_BYTES)
            finally:
                await closed(writer)
    except TimeoutError:
        raise NotReached(f"it did not answer within {timeout_s:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise NotReached(f"the connection broke: {type(error).__name__}") from None
    return _body(raw, most)


async def _until_end(reader: asyncio.StreamReader, most: int) -> bytes:
    parts, size = [], 0
    while part := await reader.read(HEADER_BYTES):
        parts.append(part)
        size += len(part)
        if size > most:
            raise NotReached(f"the answer has more than {most:,} bytes")
    return b"".join(parts)


class _Answer(io.BytesIO):
    """What the standard library reads an answer from."""

    def makefile(self, *_: object) -> io.BytesIO:
        return self


def _body(raw: bytes, most: int) -> bytes:
    answer = http.client.HTTPResponse(_Answer(raw), method="GET")  # type: ignore[arg-type]
    try:
        answer.begin()
        if answer.status != 200:
            raise NotReached(
                f"it answered {answer.status}: name the final address"
                if 300 <= answer.status < 400
                else f"it answered {answer.status}"
            )
        body = answer.read()
    except (http.client.HTTPException, ValueError):
        raise NotReached("the answer is not HTTP") from None
    if len(body) > most:
        raise NotReached(f"the answer has more than {most:,} bytes")
    return body


async def in_thread(call: Callable[[], T]) -> T:
    """Run a call that blocks in a thread of its own, and return its result. The event loop's own threads are for the
    store. When the caller gives up, nobody waits for the thread."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if not answered.done():
            if error is not None:
                answered.set_exception(error)
            else:
                answered.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = call()
        except Exception as error:  # noqa: BLE001  the caller gets it
            failure = error
        try:
            loop.call_soon_threadsafe(finish, result, failure)
        except RuntimeError:
            pass  # the loop is closed, and the caller is gone with it

    threading.Thread(target=run, name="holdfast-outbound", daemon=True).start()
    return await answered
