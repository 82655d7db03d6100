"""Connecting: to that host of several that takes writes, and so that a way that swallows everything is noticed.

Three things keep a connection from hanging for ever. The kernels of both ends probe it, so that a host that vanished is
noticed by the other. A statement that is not answered in time is given up with its connection (`bounded`), which also covers
what the kernels cannot see: a server or proxy that takes everything and says nothing. And the server ends a session that sits
inside a transaction, whose locks would keep everybody else waiting: its process was stopped, or its host is gone.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg

from holdfast.config import Config

PROBE_AFTER_S, PROBE_EVERY_S, PROBES = 5, 2, 3
"""A peer that is silent for 5 s is probed, and given up after three probes without an answer."""
UNACKNOWLEDGED_S = 10
"""What was sent must have been acknowledged by the other end's kernel by then."""

HANG_UP_S = 1.0
"""How long a server may take to say goodbye."""

SAFE_PATH = "pg_catalog, pg_temp"
"""The schemas in which names without one are looked up. Ours are always written with theirs. Were `public` among them,
whoever may create functions there could overload one of the server's, such as `unnest(int[])`, and it would run with our
rights. `pg_temp` is named so that it comes last: left out, it would come first."""

AWAY = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # a connection that was cut in the middle of a statement; a host that only reads
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""What says that the database cannot be reached now, or with this URL."""


TEMPORARY = (
    asyncpg.OperatorInterventionError,  # somebody cancelled the statement, or a limit of the server's did
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.TransactionTimeoutError,
    asyncpg.InsufficientPrivilegeError,
)
"""What says that the database would not do it now, whatever was asked. Nothing was done."""

POOLED = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
"""What was prepared is not there, or twice: between two statements somebody else's session was handed to us."""


def refuses_settings(error: BaseException) -> bool:
    """Whether a pooler answered, which takes no settings for a session because it gives none away."""
    return isinstance(error, asyncpg.PostgresError) and "unsupported startup parameter" in str(error)


def addresses(url: str) -> list[str]:
    """One URL for each host that `url` names: `postgresql://user@one,two:5433/database`, or hosts in `?host=`.

    The driver tries hosts one after the other, but gives all of them one time limit, which a first host that does not
    answer at all uses up.
    """
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    if "," in places:
        return [parts._replace(netloc=f"{user}{at}{place}").geturl() for place in places.split(",")]
    asked = parse_qs(parts.query)
    hosts = ",".join(asked.get("host", [""])).split(",")
    if len(hosts) < 2:
        return [url]
    ports = ",".join(asked.get("port", ["5432"])).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    rest = "".join(
        f"&{quote(name)}={quote(value)}"
        for name, values in asked.items()
        if name not in {"host", "port"}
        for value in values
    )
    return [
        parts._replace(query=f"host={quote(host, safe='/')}&port={port}{rest}").geturl()
        for host, port in zip(hosts, ports, strict=True)
    ]


async def connect(
    url: str, config: Config, settings: Mapping[str, str] | None = None, **options: Any
) -> asyncpg.Connection[Any]:
    """A connection to the first host that answers in time and takes writes."""
    places = addresses(url)
    if len(places) > 1 and "target_session_attrs" not in url:
        options["target_session_attrs"] = "read-write"
    failed: BaseException | None = None
    for place in places:
        try:
            connection: asyncpg.Connection[Any] = await asyncpg.connect(
                place,
                timeout=config.connect_s,
                server_settings={**_settings(config), **(settings or {})},
                **options,
            )
        except AWAY as error:
            failed = error
        else:
            _probe(connection)
            return connection
    assert failed is not None
    raise failed


def _settings(config: Config) -> dict[str, str]:
    """Where names are looked up, and what the server should do about a client that is gone or stands still. Limits on statements that
    somebody set for all users would end what is meant to wait, and every statement has a limit here."""
    return {
        "search_path": SAFE_PATH,
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_session_timeout": "0",
        "idle_in_transaction_session_timeout": str(round(config.lease_s * 1000)),
        "tcp_keepalives_idle": str(PROBE_AFTER_S),
        "tcp_keepalives_interval": str(PROBE_EVERY_S),
        "tcp_keepalives_count": str(PROBES),
    }


def _probe(connection: asyncpg.Connection[Any]) -> None:
    """Have the kernel find out that the server's host is gone, also while nothing is asked."""
    found = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # A second descriptor of the same socket: not every event loop lets its own be changed.
    with socket.socket(found.family, socket.SOCK_STREAM, fileno=os.dup(found.fileno())) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", PROBE_AFTER_S),
            ("TCP_KEEPINTVL", PROBE_EVERY_S),
            ("TCP_KEEPCNT", PROBES),
            ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_S * 1000),
        ):
            option = getattr(socket, name, None)  # not all of them are known everywhere
            if option is not None:
                wire.setsockopt(socket.IPPROTO_TCP, option, value)


async def hang_up(connection: asyncpg.Connection[Any] | None) -> None:
    """Close, politely if the server still listens."""
    if connection is not None and not connection.is_closed():
        try:
            await connection.close(timeout=HANG_UP_S)
        except AWAY:
            connection.terminate()


@contextmanager
def bounded(connection: asyncpg.Connection[Any], limit_s: float | None) -> Iterator[None]:
    """Cut the connection when what happens inside takes longer. Nothing gentler helps: to cancel a statement, or to roll
    back, the server would have to answer."""
    if limit_s is None:
        yield
        return
    watchdog = asyncio.get_running_loop().call_later(limit_s, connection.terminate)
    try:
        yield
    finally:
        watchdog.cancel()
