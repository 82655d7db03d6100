"""What alerts are sent to: a small web server, a mail server and a program, all real, all on this host."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any


class Web:
    """A web server that answers each POST with the next of `answers`, and repeats the last one. For None it never
    answers."""

    def __init__(self, answers: list[str | None]) -> None:
        self.answers = answers
        self.port = 0
        self.requests: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, _, body in self.requests]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await reader.readexactly(int(headers["Content-Length"]))
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            self.requests.append((first, headers, body))
            if answer is None:
                await asyncio.sleep(60)
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def web(*answers: str | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[Web]:
    found = Web(list(answers) or ["200 OK"])
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


class Post:
    """A mail server that takes everything, after STARTTLS if it has a certificate."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.port = 0
        self.letters: list[str] = []
        self.logins: list[str] = []
        self._tls = tls

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 post\r\n")
        secure = False
        try:
            while line := (await reader.readline()).decode().strip():
                verb = line.split(" ")[0].upper()
                if verb == "EHLO":
                    more = "AUTH PLAIN" if secure or self._tls is None else "STARTTLS"
                    writer.write(f"250-post\r\n250 {more}\r\n".encode())
                elif verb == "STARTTLS" and self._tls is not None:
                    writer.write(b"220 go on\r\n")
                    await writer.drain()
                    await writer.start_tls(self._tls)
                    secure = True
                elif verb == "AUTH":
                    self.logins.append(line)
                    writer.write(b"235 welcome\r\n")
                elif verb == "DATA":
                    writer.write(b"354 go on\r\n")
                    letter = await reader.readuntil(b"\r\n.\r\n")
                    self.letters.append(letter.decode())
                    writer.write(b"250 taken\r\n")
                elif verb == "QUIT":
                    writer.write(b"221 bye\r\n")
                    await writer.drain()
                    return
                else:
                    writer.write(b"250 fine\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def post(tls: ssl.SSLContext | None = None) -> AsyncIterator[Post]:
    found = Post(tls)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    """Return the server's side of TLS for `name`, and the certificate file that lets a client trust it."""
    key, file = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={name}"]
    made += ["-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(file)]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    return context, str(file)


class Program:
    """A program that appends its standard input to a file, and fails while `broken` exists."""

    def __init__(self, folder: Path) -> None:
        self.taken, self.broken = folder / "taken", folder / "broken"
        script = folder / "page.py"
        script.write_text(
            "import pathlib, sys\n"
            f"if pathlib.Path({str(self.broken)!r}).exists(): sys.exit(7)\n"
            f"with open({str(self.taken)!r}, 'a') as file: file.write(sys.stdin.read())\n"
        )
        self.argv = [sys.executable, str(script)]

    @property
    def notices(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._lines()]

    def _lines(self) -> Iterator[str]:
        with contextlib.suppress(FileNotFoundError):
            yield from self.taken.read_text().splitlines()
