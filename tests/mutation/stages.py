"""How a mutant is tried: fast tests of what is mutated first, then the simulation, then the roles on a store. The first
failure ends it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.mutation.mutants import PACKAGE, ROOT, SOURCE, Mutant

SEEDS = 300
PYTEST = ("-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=60")
LIMIT_S = {"sound": 60, "unit": 300, "store": 900, "simulation": 300, "roles": 900}
"""A stage that takes longer hangs. Most need a tenth of this. A single test that hangs fails after its own limit."""

NO_TESTS = 5
"""The exit code of pytest when there is nothing to run."""


def named(folder: str, names: str) -> list[str]:
    """Return the files of tests with these names."""
    paths = [name if "/" in name else f"{folder}/{name}" for name in names.split()]
    return [str(Path("tests", path).with_name(f"test_{Path(path).name}.py")) for path in paths]


class Nearest(NamedTuple):
    """The tests for an area, as names of files without `test_`, those that find most first."""

    unit: str
    store: str
    roles: str
    """A name may have another folder before it."""


AREAS = {
    "decider": Nearest("decider replay saga undo_plan retries workflow undo", "", "runs undo children retry"),
    "policy.py": Nearest("policy", "quarantine leader agents", "attempts quarantine"),
    "breaker.py": Nearest("breaker gatekeeper why_gates", "gates", "gates"),
    "lifecycle.py": Nearest("retries", "lifecycle schema", "runs"),
    "scheduler": Nearest(
        "writer decider",
        "hops",
        "simulation/moments runs children changed_code broken_rows rejoin lease",
    ),
    "agent": Nearest(
        "gatekeeper writer environment",
        "",
        "simulation/moments attempts changed_code isolated gates hedge rejoin lease",
    ),
    "supervisor": Nearest("alerts why_gates settings", "leader", "alerts recovery hedge gates pools clock"),
    "store": Nearest("retries filesystem addresses", "", "runs recovery writer within"),
}
FILES = {
    # store, by noun
    "acts": Nearest("", "acts", "acts"),
    "schedules": Nearest("decisions", "schedules", "schedules"),
    "backfills": Nearest("decisions", "schedules", "schedules"),
    "agents": Nearest("", "agents", "attempts runs"),
    "attention": Nearest("backlog", "reads", "runs"),
    "backlog": Nearest("backlog", "reads", "runs"),
    "statistics": Nearest("statistics", "reads", "runs"),
    "said": Nearest("said why_gates", "reads", "runs"),
    "answers": Nearest("", "hops agents", "runs"),
    "batch": Nearest("", "hops agents starts quarantine", "runs costs"),
    "children": Nearest("", "hops starts", "children"),
    "claims": Nearest("gatekeeper", "agents schedulers gates", "quarantine gates"),
    "clock": Nearest("", "sqlite_shared", "clock"),
    "connections": Nearest("postgres_addresses", "sqlite sqlite_shared postgres_start", "store_gone plain"),
    "doctor": Nearest("", "doctor", "leavings"),
    "durations": Nearest("durations", "durations", "durations"),
    "fragments": Nearest("", "agents schedulers quarantine", "runs"),
    "forks": Nearest("", "retries", "fork plain"),
    "gates": Nearest("", "gates", "gates"),
    "heart": Nearest("", "nodes", "heart"),
    "leader": Nearest("", "leader", "recovery"),
    "migrations": Nearest("", "schema", "settings"),
    "nodes": Nearest("", "nodes", "recovery"),
    "occasions": Nearest("occasions", "occasions", "triggers"),
    "operators": Nearest("", "operators", "client undo"),
    "quarantine": Nearest("alerts", "quarantine", "quarantine"),
    "reads": Nearest("", "reads", "client"),
    "remotes": Nearest("", "remotes", "remote/agents"),
    "retention": Nearest("", "prune", "client"),
    "retries": Nearest("retries", "retries", "retry"),
    "schedulers": Nearest("", "schedulers hops", "runs"),
    "schema": Nearest("", "schema sqlite", "settings"),
    "shortage": Nearest("shortage", "limits", "limits"),
    "tokens": Nearest("tokens", "tokens", "http/guard"),
    "twins": Nearest("", "twins", "hedge"),
    "views": Nearest("", "views", "pages/pages"),
    "saved_slots": Nearest("shortage", "saved_slots", "limits"),
    "walk": Nearest("shortage", "limits saved_slots queues fair_floods", "limits"),
    "within": Nearest("", "starts", "within"),
    "workflows": Nearest("", "workflows", "client"),
    "writer": Nearest("", "hops", "writer costs refusals"),
    # roles
    "alerts": Nearest("alerts", "alerts", "alerts"),
    "child": Nearest("", "", "isolated attempts"),
    "executor": Nearest("environment", "", "attempts isolated payloads"),
    "facts": Nearest("why_gates", "", "commands/why"),
    "fit": Nearest("replay", "", "changed_code"),
    "gatekeeper": Nearest("gatekeeper", "gates", "gates"),
    "health": Nearest("alerts", "alerts", "agents_health"),
    "hedge": Nearest("", "twins", "hedge"),
    "isolation": Nearest("", "", "isolated"),
    "landmarks": Nearest("durations", "", "durations"),
    "outbox": Nearest("alerts", "alerts", "alerts"),
    "owned_run": Nearest("writer", "hops", "runs costs"),
    "phrases": Nearest("phrases alerts", "", "alerts"),
    "pools": Nearest("pool_plan", "pools", "pools"),
    "reclaim": Nearest("policy", "leader", "recovery quarantine"),
    "stragglers": Nearest("durations", "durations", "hedge durations"),
    "threads": Nearest("environment", "", "attempts"),
    "staff": Nearest("why_gates", "", "commands/why quarantine"),
    "why": Nearest("why_gates", "", "commands/why quarantine gates"),
}
"""The same for a file that has tests of its own, by its name without the ending."""


class End(StrEnum):
    DEAD = "dead"
    SURVIVED = "survived"
    INVALID = "invalid"


class Verdict(msgspec.Struct, frozen=True):
    """What became of a mutant."""

    end: End
    stage: str
    by: str
    """The test that failed, or why the mutant is no program."""
    seconds: float


class Stage(NamedTuple):
    name: str
    arguments: tuple[str, ...]


def stages_of(mutant: Mutant, *, thorough: bool = False) -> Iterator[Stage]:
    """Yield what is run for a mutant. With `thorough` these are all tests of these folders."""
    area = mutant.area.split("/")[0].split(" ")[0]
    near = FILES.get(Path(mutant.file).stem, AREAS[area])
    is_postgres = mutant.file.startswith("store/postgres/")
    dialect = ("-m", "not long", "-k", "not sqlite" if is_postgres else "not postgres")

    if near.unit and not mutant.is_sql:
        yield Stage("unit", (*PYTEST, *named("unit", near.unit)))
    if near.store:
        yield Stage("store", (*PYTEST, *dialect, *named("store", near.store)))
    if not is_postgres:
        yield Stage("simulation", ("-m", "tests.mutation.play", str(SEEDS)))
    yield Stage("roles", (*PYTEST, *dialect, *named("roles", near.roles)))
    if thorough or area == "store":
        yield Stage("store", (*PYTEST, *dialect, "tests/store"))
    if thorough or area == "lifecycle.py":
        yield Stage("store", (*PYTEST, *dialect, "tests/modelcheck", "tests/differential"))
    if thorough:
        yield Stage("unit", (*PYTEST, "tests/unit"))
        yield Stage("roles", (*PYTEST, *dialect, "tests/roles"))


class Trials:
    """Tries mutants, each in a copy of the source of its own."""

    def __init__(self, postgres_url: str, *, thorough: bool = False) -> None:
        self._postgres_url, self._thorough = postgres_url, thorough
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._steady: dict[str, bool] = {}
        """Whether a test passes without any mutant."""

    def run(self, mutant: Mutant) -> Verdict:
        begun = time.monotonic()
        with copied(mutant) as source:
            end, stage, by = self._judge(mutant, source)
        return Verdict(end, stage, by, round(time.monotonic() - begun, 1))

    def stop(self) -> None:
        """End what is running."""
        for pid in list(self._running):
            os.killpg(pid, signal.SIGKILL)

    def _judge(self, mutant: Mutant, source: Path) -> tuple[End, str, str]:
        module = "" if mutant.is_sql else ".".join(("holdfast", *Path(mutant.file).with_suffix("").parts))
        code, output = self._call(source, "sound", ("-m", "tests.mutation.sound", str(source), module))
        if code != 0:
            return End.INVALID, "sound", _last_line(output)
        for stage in stages_of(mutant, thorough=self._thorough):
            if by := self._fails(source, stage):
                return End.DEAD, stage.name, by
        return End.SURVIVED, "", ""

    def _fails(self, source: Path, stage: Stage) -> str:
        """Return what fails, or an empty text. A test that also fails without a mutant, or that passes when it is run
        once more, has not noticed the mutant."""
        passed: list[str] = []
        broke_off = 0
        while True:
            arguments = (*stage.arguments, *(f"--deselect={test}" for test in passed))
            code, output = self._call(source, stage.name, arguments)
            if code == 0 or (code == NO_TESTS and stage.name != "simulation"):
                return ""
            if code is None:
                return f"more than {LIMIT_S[stage.name]} s"
            if stage.name == "simulation":
                return _last_line(output)
            failed = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)", output, re.MULTILINE)
            if failed is None:  # the process was killed, or killed itself
                broke_off += 1
                if broke_off > 1:
                    return f"pytest ended with {code}: {_last_line(output)}"
                continue
            if failed[1] in passed:
                raise RuntimeError(
                    f"{failed[1]} cannot be left out, and fails without a mutant: mend it first"
                )
            if self._is_steady(failed[1]) and self._alone(source, failed[1]) != 0:
                return failed[1]
            passed.append(failed[1])

    def _is_steady(self, test: str) -> bool:
        with self._lock:
            if test not in self._steady:
                self._steady[test] = self._alone(SOURCE, test) == 0
            return self._steady[test]

    def _alone(self, source: Path, test: str) -> int | None:
        return self._call(source, "unit", (*PYTEST, test))[0]

    def _call(self, source: Path, stage: str, arguments: tuple[str, ...]) -> tuple[int | None, str]:
        """Run Python with this source. Return its exit code and what it wrote. The code is None if it took too long."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "HOLDFAST_TEST_PG": self._postgres_url,
        }
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._running.add(process.pid)
        try:
            output, _ = process.communicate(timeout=LIMIT_S[stage])
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        finally:
            self._running.discard(process.pid)
        return process.returncode, output


@contextmanager
def copied(mutant: Mutant) -> Iterator[Path]:
    """Copy the source, with the mutant in it, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="holdfast-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(SOURCE, source)  # with what is compiled: the files keep their times
        file = source / PACKAGE.name / mutant.file
        file.write_text(mutant.applied_to(file.read_text("utf-8")), "utf-8")
        yield source


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"
