"""Rolling deployment: a new version goes to a set of servers, batch by batch, and stops at the first bad one.

    holdfast run examples/deployment.py:roll_out --input '{"version": "2.0"}'
    holdfast run examples/deployment.py:roll_out --input '{"version": "2.1", "unconfigured": ["web-3"]}'     undone
    holdfast run examples/deployment.py:shut_down

What it shows:
- steps that start real processes and can be repeated safely;
- a health check that waits for a server that is still starting, and fails at once when a server says that it is ill;
- a durable pause between batches;
- an undo that starts the previous version again;
- `keep()`: a batch that proved itself keeps the new version, whatever comes after it.

A server is a folder in work/deployment with a small HTTP process of its own. It ends by itself after ten minutes.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import Retry, keep, set_progress, step, workflow

SERVERS = ["web-1", "web-2", "web-3", "web-4"]

# The application that is deployed. It forks once it listens. So the command that starts it returns when it can be reached.
APP = """
import http.server, json, os, pathlib, signal, sys

VERSION, home = "@VERSION@", pathlib.Path(sys.argv[1])
settings = dict(line.split("=", 1) for line in (home / "settings.env").read_text().splitlines())

class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ill = "no DATABASE in settings.env" if VERSION >= "2" and "DATABASE" not in settings else None
        body = json.dumps({"server": home.name, "version": VERSION, "ill": ill}).encode()
        self.send_response(503 if ill else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.send_response(202)
        self.end_headers()
        os._exit(0)

    def log_message(self, *args): pass

server = http.server.HTTPServer(("127.0.0.1", 0), App)
if os.fork():
    os._exit(0)
os.setsid()
signal.alarm(600)
(home / "address.new").write_text(f"http://127.0.0.1:{server.server_port}")
(home / "address.new").rename(home / "address")
server.serve_forever()
"""


class Ill(Exception):
    """A server answers, and says that it cannot work."""


@dataclass(frozen=True)
class Rollout:
    version: str
    servers: list[str] = field(default_factory=list)


@step
def prepare(folder: str, servers: list[str], unconfigured: list[str]) -> dict[str, str]:
    """Make the servers that do not exist yet, with version 1.0. Return which version each server runs now."""
    release(folder, "1.0")
    for server in servers:
        home = Path(folder, server)
        home.mkdir(parents=True, exist_ok=True)
        (home / "settings.env").write_text("" if server in unconfigured else "DATABASE=sales\n")
        if ask(home) is None:
            start(folder, server, "1.0")
    return {server: (ask(Path(folder, server)) or {}).get("version", "1.0") for server in servers}


@step
def build(folder: str, version: str) -> str:
    """Make the release and return its path. The digest of what will be installed would be a good result, too."""
    return str(release(folder, version))


@step(timeout=30)
def install(folder: str, server: str, version: str, before: str) -> None:
    """Stop what runs on the server and start the version. Doing it twice ends in the same state."""
    start(folder, server, version)


@install.undo
def put_back(done: None, folder: str, server: str, version: str, before: str) -> None:
    """Start the version from before. It makes no difference whether the new one was ever started."""
    start(folder, server, before)


@step(retry=Retry(attempts=10, on=OSError, never=Ill, delay=0.1, max_delay=1), timeout=10)
def check(folder: str, server: str, version: str) -> None:
    """Check that the server is healthy, and really runs the version."""
    health = ask(Path(folder, server))
    if health is None:
        raise ConnectionError(f"{server} does not answer yet")
    if health["version"] != version or health["ill"]:
        raise Ill(f"{server} runs {health['version']}: {health['ill'] or f'expected {version}'}")


@workflow
async def roll_out(
    version: str = "2.0",
    servers: list[str] = SERVERS,
    batch: int = 2,
    soak_s: float = 0.5,
    unconfigured: list[str] = [],  # noqa: B006  decoded anew for every run
    folder: str = "work/deployment",
) -> Rollout:
    before = await prepare(folder, servers, unconfigured)
    await build(folder, version)
    done: list[str] = []
    for first in range(0, len(servers), batch):
        group = servers[first : first + batch]
        await asyncio.gather(*(install(folder, server, version, before[server]) for server in group))
        await asyncio.gather(*(check(folder, server, version) for server in group))
        await asyncio.sleep(soak_s)  # give trouble time to show, then look again
        await asyncio.gather(*(check(folder, server, version) for server in group))
        keep()
        done += group
        set_progress(len(done) / len(servers), f"{len(done)} of {len(servers)} servers run {version}")
    return Rollout(version, done)


@step
def stop_servers(folder: str) -> list[str]:
    return [home.parent.name for home in sorted(Path(folder).glob("*/address")) if stop(home.parent)]


@workflow
async def shut_down(folder: str = "work/deployment") -> list[str]:
    return await stop_servers(folder)


def release(folder: str, version: str) -> Path:
    app = Path(folder, "releases", version, "app.py")
    app.parent.mkdir(parents=True, exist_ok=True)
    app.write_text(APP.replace("@VERSION@", version))
    return app


def start(folder: str, server: str, version: str) -> None:
    home = Path(folder, server)
    stop(home)
    shutil.copytree(Path(folder, "releases", version), home / "app", dirs_exist_ok=True)
    with (home / "server.log").open("a") as log:
        subprocess.run(
            [sys.executable, "app/app.py", home.resolve()],
            cwd=home,
            stdout=log,
            stderr=log,
            check=True,
            timeout=20,
        )


def stop(home: Path) -> bool:
    """Stop the server's process if there is one. Return whether there was one."""
    running = ask(home) is not None
    if running:
        try:
            urllib.request.urlopen((home / "address").read_text(), data=b"stop", timeout=5).close()
        except OSError:
            pass  # it ended without an answer, which is what we wanted
    (home / "address").unlink(missing_ok=True)
    return running


def ask(home: Path) -> dict[str, Any] | None:
    """Return what the server's process says about itself. None: there is no process, or its port belongs to another one."""
    try:
        with urllib.request.urlopen((home / "address").read_text(), timeout=5) as answer:
            health = json.load(answer)
    except urllib.error.HTTPError as ill:
        with ill:
            health = json.load(ill)
    except OSError:
        return None
    return health if health.get("server") == home.name else None
