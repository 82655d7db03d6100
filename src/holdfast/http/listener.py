"""Listens: uvicorn in our own event loop, without its signals. Leaving is graceful: the server is no longer ready,
everybody who waits is answered, and requests that are being answered get time to end."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

import uvicorn

from holdfast.desk.desk import LocalDesk
from holdfast.desk.opened import Opened
from holdfast.errors import HoldfastError, InvalidSettings, StoreError
from holdfast.http.app import Server, make_app
from holdfast.http.protocol import Bounded

if TYPE_CHECKING:
    from holdfast.http.oidc import Issuer

log = logging.getLogger("holdfast.http")

KEEP_ALIVE_S = 75
"""Above the 60 s after which balancers close an idle connection, and bounded, because a connection that a proxy reset is
kept until this ends."""


WRITE_S = 5.0
"""How long the store may take to write down what a server that leaves has refused."""


class Address(NamedTuple):
    host: str
    port: int
    tls_cert: str | None = None
    tls_key: str | None = None
    oidc: str | None = None
    """The settings file that names the issuer whose tokens are good beside those of the store."""

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


class _Quiet(uvicorn.Server):
    """uvicorn without its signals: the process that hosts it has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@asynccontextmanager
async def serving(hf: Opened, desk: LocalDesk, address: Address) -> AsyncIterator[str]:
    """Listen at an address, and yield the URL. At the end, leave gracefully."""
    issuer = None if address.oidc is None else _issuer(address.oidc, hf)
    if not address.is_loopback and issuer is None and not await hf.store.tokens.tokens(1):
        raise InvalidSettings(
            f"the server does not listen on {address.host} while no token exists, because everybody could use it: make one "
            "with `holdfast tokens create --role admin`, or listen on 127.0.0.1"
        )
    server = Server(hf, desk, is_loopback=address.is_loopback, issuer=issuer)
    listening = _bound(address)
    config = uvicorn.Config(
        make_app(server),
        http=Bounded,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(hf.config.leave_s)),
        limit_concurrency=hf.config.connections_max,
        ssl_certfile=address.tls_cert,
        ssl_keyfile=address.tls_key,
    )
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.ERROR)  # anybody may send anything: that is no reason to log
    try:
        config.load()
    except OSError as wrong:  # they cannot be read, or do not belong together
        listening.close()
        raise InvalidSettings(f"the server cannot use its certificate or key: {wrong}") from None
    quiet = _Quiet(config)
    task = asyncio.ensure_future(quiet.serve(sockets=[listening]))
    refused = asyncio.ensure_future(server.refused.keep())
    try:
        while not quiet.started:
            if task.done():
                await task
                raise HoldfastError("the server ended before it listened")
            await hf.environment.sleep(0.005)
        scheme = "http" if address.tls_cert is None else "https"
        port = listening.getsockname()[1]
        shown = f"[{address.host}]" if ":" in address.host else address.host
        yield f"{scheme}://{shown}:{port}"
    finally:
        server.leave()
        quiet.should_exit = True
        await task
        listening.close()
        await _written(refused, server)
        if issuer is not None:
            await issuer.close()


async def _written(keeping: asyncio.Future[None], server: Server) -> None:
    """Write down which requests were refused lately."""
    with contextlib.suppress(StoreError, TimeoutError):
        async with asyncio.timeout(WRITE_S):
            await server.refused.leave(keeping)


def _issuer(file: str, hf: Opened) -> Issuer:
    try:
        from holdfast.http.oidc import Issuer, load_oidc  # noqa: PLC0415  an optional dependency
    except ModuleNotFoundError as missing:
        raise InvalidSettings("--oidc needs its libraries: pip install 'holdfast[oidc]'") from missing
    return Issuer(load_oidc(file), hf.environment)


def _bound(address: Address) -> socket.socket:
    """Return a socket that is bound to the address, or raise with the reason."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol is named, because otherwise asyncio does not turn off Nagle's algorithm for its connections, and an
    # answer in two parts waits 40 ms for the other end's acknowledgement.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((address.host, address.port))
    except (OSError, OverflowError) as wrong:
        made.close()
        raise InvalidSettings(f"cannot listen on {address.host} port {address.port}: {wrong}") from None
    made.set_inheritable(False)
    return made
