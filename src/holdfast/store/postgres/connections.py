"""Connects to the first of several hosts that takes writes, in such a way that no connection hangs for ever.

Three things see to that. The kernels of both ends probe the connection, so that each end notices when the other host
has vanished. If a statement gets no answer in time, its connection is cut (`bounded`). That also helps where the
kernels notice nothing: a server or a proxy may accept everything and never answer. And the server ends a session that
is idle inside a transaction, because its process was stopped or its host is gone. Its locks would make everybody else
wait.
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
"""The kernel probes a peer that has been silent for 5 s. It gives the connection up after three probes without an
answer."""
UNACKNOWLEDGED_S = 10
"""How long the other end's kernel may take to acknowledge what was sent."""

ARRAYS = {
    "bool": (1000, 16),
    "bytea": (1001, 17),
    "int4": (1007, 23),
    "text": (1009, 25),
    "int8": (1016, 20),
    "float8": (1022, 701),
    "timestamptz": (1185, 1184),
}
"""The arrays that statements here take and return, with their number and that of what is in them. These numbers are the
same on every server. The driver does not know them, and would ask the server on every new connection: three statements,
one of which costs the server more than most of ours."""

HANG_UP_S = 1.0
"""How long a server may take to close a connection."""

SAFE_PATH = "pg_catalog, pg_temp"
"""The schemas in which the server looks up names without a schema. Our own tables are always written with their schema.
`public` is not among them: whoever may create functions there could overload one of the server's, such as
`unnest(int[])`, and it would run with our rights. `pg_temp` is named so that it comes last. If it were left out, it
would come first."""

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
"""Errors that mean: the database cannot be reached now, or not with this URL."""

TEMPORARY = (
    asyncpg.OperatorInterventionError,  # a person or a limit of the server cancelled the statement
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.TransactionTimeoutError,
    asyncpg.InsufficientPrivilegeError,
)
"""Errors that mean: the database refuses any statement like this for now. Nothing was done."""

POOLED = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
"""Errors that mean: a prepared statement is missing, or there already. A pooler gave us another session between two
statements."""


def refuses_settings(error: BaseException) -> bool:
    """True if a connection pooler answered. It accepts no settings, because it does not give us a session of our
    own."""
    return isinstance(error, asyncpg.PostgresError) and "unsupported startup parameter" in str(error)


def addresses(url: str) -> list[str]:
    """Return one URL for each host that `url` names: `postgresql://user@one,two:5433/database`, or hosts in `?host=`.

    The driver itself can try several hosts, but it has one time limit for all of them. A first host that does not
    answer at all would use it up.
    """
    parts = urlsplit(url)
    user, at, places = parts.netloc.rpartition("@")
    if "," in places:
        return [parts._replace(netloc=f"{user}{at}{place}").geturl() for place in places.split(",")]
    query = parse_qs(parts.query)
    hosts = ",".join(query.get("host", [""])).split(",")
    if len(hosts) < 2:
        return [url]
    ports = ",".join(query.get("port", ["5432"])).split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    rest = "".join(
        f"&{quote(name)}={quote(value)}"
        for name, values in query.items()
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
    """Connect to the first host that answers in time and takes writes."""
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
            declare_arrays(connection)
            return connection
    assert failed is not None
    raise failed


def _settings(config: Config) -> dict[str, str]:
    """Return the settings of a session: where names are looked up, and when the server gives up a client that is gone
    or idle.

    Limits on statements are switched off. They may be set for all users, and would end statements that are meant to
    wait. Every statement has a limit on our side. The isolation may be set for all users, too. A statement must see what was
    committed before it began: what is counted under a lock would otherwise be what was there before the lock was taken.
    """
    return {
        "search_path": SAFE_PATH,
        "default_transaction_isolation": "read committed",
        "statement_timeout": "0",
        "lock_timeout": "0",
        "idle_session_timeout": "0",
        "idle_in_transaction_session_timeout": str(round(config.lease_s * 1000)),
        "tcp_keepalives_idle": str(PROBE_AFTER_S),
        "tcp_keepalives_interval": str(PROBE_EVERY_S),
        "tcp_keepalives_count": str(PROBES),
    }


def declare_arrays(connection: asyncpg.Connection[Any]) -> None:
    """Give the driver what it would otherwise ask the server for."""
    unsaid = dict.fromkeys(("range_subtype", "attrtypoids", "attrnames", "basetype"))
    connection.get_settings().register_data_types(
        [
            {"oid": array, "ns": "pg_catalog", "name": f"_{name}", "kind": b"b", "elemtype": element}
            | {"elemtype_name": name, "elemdelim": ",", **unsaid}
            for name, (array, element) in ARRAYS.items()
        ]
    )


def _probe(connection: asyncpg.Connection[Any]) -> None:
    """Make the kernel notice that the server's host is gone, even while no statement is running."""
    found = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    # This uses a second descriptor of the same socket, because not every event loop allows changes to its own.
    with socket.socket(found.family, socket.SOCK_STREAM, fileno=os.dup(found.fileno())) as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (
            ("TCP_KEEPIDLE", PROBE_AFTER_S),
            ("TCP_KEEPINTVL", PROBE_EVERY_S),
            ("TCP_KEEPCNT", PROBES),
            ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_S * 1000),
        ):
            option = getattr(socket, name, None)  # some systems do not have all of them
            if option is not None:
                wire.setsockopt(socket.IPPROTO_TCP, option, value)


async def hang_up(connection: asyncpg.Connection[Any] | None) -> None:
    """Close the connection. Say goodbye to the server if it still answers."""
    if connection is not None and not connection.is_closed():
        try:
            await connection.close(timeout=HANG_UP_S)
        except AWAY:
            connection.terminate()


@contextmanager
def bounded(connection: asyncpg.Connection[Any], limit_s: float | None) -> Iterator[None]:
    """Cut the connection if the block takes longer than `limit_s`. Nothing gentler helps: to cancel a statement or to
    roll back, the server would have to answer."""
    if limit_s is None:
        yield
        return
    watchdog = asyncio.get_running_loop().call_later(limit_s, connection.terminate)
    try:
        yield
    finally:
        watchdog.cancel()
