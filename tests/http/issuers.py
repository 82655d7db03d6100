"""An issuer on this host: a real web server with discovery and keys, and real keys that sign."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from holdfast.access.grants import OidcSettings
from holdfast.environment import Environment
from holdfast.settings import checked_settings

AUDIENCE = "holdfast"
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def coded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def part(value: Any) -> str:
    return coded(value if isinstance(value, bytes) else json.dumps(value).encode())


@cache
def private(algorithm: str, number: int = 1) -> Private:
    """Return a key. Making an RSA key takes a while, so each is made once."""
    if algorithm == "RS256":
        return rsa.generate_private_key(65537, 2048)
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def public(algorithm: str, id: str | None, number: int = 1, **more: Any) -> dict[str, Any]:
    """Return a key as an issuer publishes it."""
    made: dict[str, Any] = jwt.get_algorithm_by_name(algorithm).to_jwk(
        private(algorithm, number).public_key(), as_dict=True
    )
    made.pop("key_ops", None)
    return {**made, **({} if id is None else {"kid": id}), **more}


def raw_signature(algorithm: str, content: bytes, number: int = 1) -> bytes:
    key = private(algorithm, number)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(content, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(content, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return key.sign(content)


def signed(claims: Any, head: dict[str, Any], number: int = 1, by: str | None = None) -> str:
    """Return a token with exactly this header and these claims, signed with the key of the algorithm."""
    content = f"{part(head)}.{part(claims)}"
    return f"{content}.{coded(raw_signature(by or str(head['alg']), content.encode(), number))}"


class Clock(Environment):
    """An environment whose time a test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead_s = 0.0

    def now(self) -> float:
        return super().now() + self.ahead_s

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class IssuerHost:
    def __init__(self) -> None:
        self.keys: list[Any] = [public("RS256", "r1"), public("ES256", "e1"), public("EdDSA", "d1")]
        self.port = 0
        self.asked: list[str] = []
        self.says: str | None = None
        """Which issuer it says that it is, if not itself."""
        self.status = "200 OK"
        self.body: bytes | None = None
        """What it answers instead of keys."""
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/realm"

    async def up(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1]
            self.asked.append(path)
            answer: Any = {"keys": self.keys}
            if path.endswith("openid-configuration"):
                answer = {"issuer": self.says or self.url, "jwks_uri": f"{self.url}/keys"}
            body = self.body if self.body is not None else json.dumps(answer).encode()
            # In chunks, as many issuers answer.
            writer.write(f"HTTP/1.1 {self.status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
            writer.write(f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n\r\n")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def settings(self, **more: Any) -> OidcSettings:
        given = {
            "issuer": self.url,
            "audience": AUDIENCE,
            "allow": ["127.0.0.0/8"],
            "person": "preferred_username",
            "teams": {"acme-finance": "finance"},
            "grants": [
                {"when": {"groups": "acme-admins"}, "role": "admin", "namespaces": ["*"]},
                {"when": {"groups": ["acme-finance"]}, "role": "answerer"},
                {"when": {"realm.roles": "ops"}, "role": "operator", "namespaces": ["default", "acme"]},
                {"when": {"groups": "acme-shop"}, "role": "starter", "can": ["workflows:shop.count"]},
                {"when": {"groups": "acme-eyes"}, "role": "viewer", "payloads": False},
            ],
            **more,
        }
        made = checked_settings(given, OidcSettings, "test")
        made.demand_sound("test")
        return made

    def claims(self, *groups: str, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        given = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "248289761001",
            "exp": now + 300,
            "nbf": now - 1,
            "iat": now,
            "preferred_username": "anna",
            "groups": list(groups or ("acme-admins",)),
            **more,
        }
        return {name: value for name, value in given.items() if value is not None}

    def token(self, *groups: str, alg: str = "RS256", kid: str = "r1", number: int = 1, **more: Any) -> str:
        """Return a good token, or one that differs from it in its claims."""
        return signed(self.claims(*groups, **more), {"alg": alg, "kid": kid, "typ": "JWT"}, number)


@asynccontextmanager
async def issuing() -> AsyncIterator[IssuerHost]:
    host = IssuerHost()
    await host.up()
    try:
        yield host
    finally:
        await host.down()
