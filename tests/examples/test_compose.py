"""The example for compose: what its files and its page say is run here as processes, without containers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.remote.processes import HOLDFAST, Fleet, fleet, until

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "compose"
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))["services"]
PAGE = (FOLDER / "README.md").read_text("utf-8")
ORDERS = 12


class Project:
    """The services as processes: names of hosts become addresses here, and variables come from `.env`."""

    def __init__(self, made: Fleet, store: str) -> None:
        self.fleet, self._store = made, store
        self.variables = {"DB_PASSWORD": "not used here", "AGENT_TOKEN": ""}

    def environment(self, service: str) -> dict[str, str]:
        found = {}
        for name, value in SERVICES[service].get("environment", {}).items():
            text = re.sub(r"\$\{(\w+)\}", lambda match: self.variables[match[1]], value)
            found[name] = self._store if text.startswith("postgresql://holdfast:") else text
        return found

    def words(self, service: str) -> list[str]:
        placed = {"http://server:8080": self.fleet.url, "0.0.0.0": "127.0.0.1", "8080": str(self.fleet.port)}
        return [placed.get(word, word) for word in SERVICES[service]["command"]]

    def up(self, service: str) -> subprocess.Popen[bytes]:
        environment = {"LEDGER": str(self.fleet.folder / "ledger"), **self.environment(service)}
        return self.fleet.run([HOLDFAST, *self.words(service)], **environment)

    def run(self, service: str, words: list[str]) -> str:
        """Do what `docker compose run --rm` does."""
        environment = {**os.environ, **self.environment(service)}
        done = subprocess.run(
            [HOLDFAST, *words],
            cwd=self.fleet.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, pg_url: str) -> Iterator[Project]:
    shutil.copy(FOLDER / "app.py", tmp_path)
    with fleet(tmp_path, pg_url) as made:
        yield Project(made, pg_url)


def test_it_works_as_its_page_says(project: Project) -> None:
    """The tokens are made as the page says, all services begin, and an order ends through kills of an agent and of the
    server, with each effect once."""
    folder, made = project.fleet.folder, project.fleet
    project.run("migrate", project.words("migrate"))
    for service, words, file in re.findall(
        r"^\$ docker compose run --rm (\S+) (.+) > (\S+)$", PAGE, re.MULTILINE
    ):
        (folder / file).write_text(project.run(service, shlex.split(words)))
    project.variables["AGENT_TOKEN"] = (folder / "agent.token").read_text()
    processes = {name: project.up(name) for name in ("scheduler", "supervisor", "server")}
    until(made.is_up, lambda: made.said(processes["server"]))
    processes |= {name: project.up(name) for name in ("agent-1", "agent-2")}
    started, ended = (
        line.replace("http://127.0.0.1:8080", made.url)
        for line in re.findall(r"^\$ (curl .+)$", PAGE, re.MULTILINE)
    )
    assert json.loads(_shell(folder, started))["id"] == "order-1"
    until(lambda: json.loads(_shell(folder, ended))["items"], lambda: made.said(processes["agent-1"]))
    (run,) = json.loads(_shell(folder, ended))["items"]
    assert (run["state"], run["output"]) == ("succeeded", ["order-1/0", "order-1/1", "order-1/2"])
    for number in range(ORDERS):
        _shell(folder, started.replace("order-1", f"more-{number}"))
        if number == ORDERS // 3:
            os.killpg(processes["agent-1"].pid, signal.SIGKILL)
        if number == ORDERS // 2:
            os.killpg(processes["server"].pid, signal.SIGKILL)
            processes["server"].wait()
            processes["server"] = project.up("server")
            until(made.is_up, lambda: made.said(processes["server"]))
    ids = [f"more-{number}" for number in range(ORDERS)]
    asked = ended.replace('["order-1"]', json.dumps(ids))

    def all_ended() -> bool:
        return len(json.loads(_shell(folder, asked))["items"]) == ORDERS

    until(all_ended, lambda: made.said(processes["agent-2"]))
    assert {one["state"] for one in json.loads(_shell(folder, asked))["items"]} == {"succeeded"}
    noted = [line.split()[:2] for line in (folder / "ledger").read_text().splitlines()]
    assert len({key for key, what in noted if what == "charge"}) == ORDERS + 1
    assert len({key for key, what in noted if what.startswith("pack")}) == 3 * (ORDERS + 1)


def _shell(folder: Path, line: str) -> str:
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_its_files_fit_together() -> None:
    """All services but the database are the image, whose extras exist; an agent sees the server and not the database; no
    secret stands in a file."""
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    extras = re.search(r"holdfast\[([a-z,]+)\]", text)
    assert extras is not None
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(extras[1].split(",")) <= known.keys()
    assert 'ENTRYPOINT ["holdfast"]' in text
    for name, service in SERVICES.items():
        assert ("build" in service) == (name != "db")
        assert not set(service["networks"]) - {"back", "front"}
        if name.startswith("agent"):
            assert service["networks"] == ["front"]
            assert "HOLDFAST_STORE" not in service["environment"]
        for value in service.get("environment", {}).values():
            assert "hf_" not in value
    assert {"agent-1", "agent-2", "server", "db"} <= SERVICES.keys()
