"""`why` is right in every situation: these tests do what it says, with the real command, and that moves the run."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import uuid4

import psycopg
import pytest

from holdfast.commands import SERVICES, main
from tests.commands.conftest import DEADLINE_S, Cli, until
from tests.postgres import Server
from tests.store.conftest import run_sql

COMMAND = re.compile(r"`(holdfast [^`]*)`")
AGO = re.compile(r"\bsince \d")


class World:
    """A folder with whys.py, a store, and the command line. Commands that look and operate run in this process, and
    services in processes of their own."""

    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        self.cli = Cli(folder, store)
        copyfile(Path(__file__).with_name("whys.py"), folder / "whys.py")

    def do(self, *arguments: str, code: int = 0) -> str:
        """Run a command in this process, and return what it prints."""
        out, errors = io.StringIO(), io.StringIO()
        with (
            patch.dict(os.environ, {"HOLDFAST_STORE": self.store, "NO_COLOR": "1"}),
            contextlib.chdir(self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
        ):
            ended = main(arguments)
        assert ended == code, (arguments, out.getvalue(), errors.getvalue())
        return out.getvalue()

    def serve(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a service, and return it when it is up."""
        before = len(self.nodes())
        process = self.cli.start(*arguments)
        until(lambda: len(self.nodes()) > before, process)
        return process

    def nodes(self) -> list[Any]:
        found: list[Any] = []
        with contextlib.suppress(AssertionError):  # there is no store yet
            found = json.loads(self.do("agents", "--all", "--json"))
        return found

    def stop(self, process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill a service as if its host had vanished: its lease runs out, and nobody knows more."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        past = "lease_until - 3600" if self.store.startswith("sqlite:") else "lease_until - interval '1 h'"
        run_sql(self.sql_url, f"UPDATE nodes SET lease_until = {past} WHERE retired_at IS NULL")

    @property
    def sql_url(self) -> str:
        return f"sqlite:///{self.folder}/holdfast.db" if self.store.startswith("sqlite:") else self.store

    def start(self, workflow: str, run_id: str, *options: str, gate: str | None = None) -> str:
        raw = json.dumps([gate or run_id])
        # This loads code, so it runs in a process of its own.
        self.cli("start", f"whys.py:{workflow}", "--id", run_id, "--input", raw, *options)
        return run_id

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.do("show", run_id, "--json"))
        return found

    def state(self, run_id: str) -> str:
        return str(self.run(run_id)["state"])

    def until_state(self, run_id: str, *states: str) -> None:
        until(lambda: self.state(run_id) in states)

    def until_step(self, run_id: str, key: str, state: str) -> None:
        """Wait until the step is in this state. A step that backs off or is held is ready."""
        until(lambda: (key, state) in [(step["key"], step["state"]) for step in self.run(run_id)["steps"]])

    def until_why(self, run_id: str, words: str) -> str:
        """Wait until the sentence has these words, and return it."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in (sentence := self.why(run_id)):
            assert time.monotonic() < deadline, f"{words!r} is not in {sentence!r}"
            time.sleep(0.05)
        return sentence

    def why(self, run_id: str) -> str:
        sentence = self.do("why", run_id).strip()
        assert not AGO.search(sentence), sentence
        assert sentence[0].isupper(), sentence
        assert sentence.endswith("."), sentence
        return sentence

    def open(self, gate: str) -> None:
        (self.folder / f"open-{gate}").touch()

    def follow(self, sentence: str, which: int = 0) -> str:
        """Do what the sentence says, and return the command. A command that only looks leads to the next sentence."""
        found = COMMAND.findall(sentence)
        assert found, sentence
        words = shlex.split(found[which])[1:]
        words = [{"FILE": "whys.py", "JSON": "7"}.get(word, word) for word in words]
        if words[0] in SERVICES:
            self.serve(*words)
        elif words[0] == "why":
            # Its run may have just begun, and its scheduler may still be deciding.
            return self.follow(self.until_why(words[1], "`holdfast "))
        else:
            self.do(*words)
        return str(found[which])


def new_database(server: Server) -> Iterator[str]:
    name = f"holdfast_{uuid4().hex[:16]}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    yield server.database_url(name)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A store that one process serves. All runs of this module that need such a store share it."""
    folder = tmp_path_factory.mktemp("served")
    with contextlib.ExitStack() as held:
        store = "sqlite:///holdfast.db"
        if request.param == "postgres":
            server = request.getfixturevalue("pg_server")
            store = held.enter_context(contextlib.contextmanager(new_database)(server))
        world = World(folder, store)
        held.callback(world.cli.close_all)
        world.serve("up", "whys.py")
        yield world


@pytest.fixture
def alone(folder: Path, store_url: str) -> Iterator[World]:
    """A store that nobody serves."""
    world = World(folder, "sqlite:///holdfast.db" if store_url.startswith("sqlite:") else store_url)
    yield world
    world.cli.close_all()


class Case(NamedTuple):
    """A situation: how a run comes into it, what `why` says, and where its advice leads."""

    name: str
    make: Callable[[World, str], object]
    says: str
    """A pattern of the sentence. `ID` is the run's id."""
    ends: str = "succeeded"
    """The state of the run, or of its retry, after that was done. Empty if nothing is to be done."""
    first: Callable[[World, str], object] = lambda world, run_id: None
    """What has to be done before."""
    which: int = 0
    """Which of the commands in the sentence is run."""
    of: str = "ID"
    """The run that ends in that state."""
    all_of_them: bool = False
    """True if every command in the sentence is needed."""


def starting(workflow: str, *options: str) -> Callable[[World, str], object]:
    return lambda world, run_id: world.start(workflow, run_id, *options)


def ended(workflow: str, state: str, *options: str) -> Callable[[World, str], object]:
    def make(world: World, run_id: str) -> None:
        world.start(workflow, run_id, *options)
        world.until_state(run_id, state)

    return make


def open_gate(world: World, run_id: str) -> None:
    world.open(run_id)


def held(*scope: str) -> Callable[[World, str], object]:
    def make(world: World, run_id: str) -> None:
        world.do("hold", *scope, "--note", "stocktaking")
        world.start("shipping", run_id)

    return make


def operate(workflow: str, *command: str) -> Callable[[World, str], object]:
    """Return a function that makes a run whose step is running, and runs an operator's command on it."""

    def make(world: World, run_id: str) -> None:
        world.start(workflow, run_id)
        world.until_step(run_id, "work", "running")
        world.do(*(run_id if word == "ID" else word for word in command))

    return make


def forced(world: World, run_id: str) -> None:
    world.do("breakers", "open", "stripe", "--note", "maintenance")
    world.start("paying", run_id)


def tripped(world: World, run_id: str) -> None:
    """Make a run whose breaker opened by itself, for longer than this test takes."""
    now = "unixepoch('subsec')" if world.store.startswith("sqlite:") else "clock_timestamp()"
    later = f"{now} + 3600" if world.store.startswith("sqlite:") else f"{now} + interval '1 h'"
    world.do("breakers", "open", "stripe")
    forced_off = "0" if world.store.startswith("sqlite:") else "false"
    run_sql(
        world.sql_url,
        f"UPDATE breakers SET forced = {forced_off}, opened_at = {now}, open_until = {later}, "
        "note = '25 of 28 attempts failed' WHERE name = 'stripe'",
    )
    world.start("paying", run_id)


def stuck(world: World, run_id: str) -> None:
    world.start("booking", run_id)
    world.until_state(run_id, "stuck")


def undone(world: World, run_id: str) -> None:
    world.open(run_id)
    ended("booking", "undone")(world, run_id)


def skipped(world: World, run_id: str) -> None:
    stuck(world, run_id)
    world.do("skip", run_id, "book", "--note", "by phone")
    world.until_state(run_id, "undone")


def abandoned(world: World, run_id: str) -> None:
    world.start("book_and_work", run_id)
    world.until_step(run_id, "work", "running")
    world.do("cancel", run_id, "--note", "no more")
    world.until_state(run_id, "stuck")
    world.do("cancel", run_id, "--force", "--note", "leave it")
    world.until_state(run_id, "cancelled")


def retried(world: World, run_id: str) -> None:
    ended("refused", "failed")(world, run_id)
    world.do("retry", run_id)
    world.until_state(f"{run_id}~2", "failed")


def child_held(world: World, run_id: str) -> None:
    world.start("parent_working", run_id)
    until(
        lambda: any(run["id"] == f"{run_id}-child" for run in json.loads(world.do("ps", "--all", "--json")))
    )
    world.until_step(f"{run_id}-child", "work", "running")
    world.do("hold", f"{run_id}-child")
    world.open(run_id)


def child_stuck(world: World, run_id: str) -> None:
    world.start("parent_booking", run_id)
    until(
        lambda: any(run["id"] == f"{run_id}-child" for run in json.loads(world.do("ps", "--all", "--json")))
    )
    world.until_state(f"{run_id}-child", "stuck")


def heard(world: World, run_id: str) -> None:
    operate("stubborn", "cancel", "ID", "--note", "too late")(world, run_id)
    world.until_step(run_id, "work#2", "running")


SERVED = [
    Case(
        "it waits for a signal",
        starting("waiting"),
        r"waiting for .* for the signal 'paid': `holdfast signal ID paid",
    ),
    Case(
        "its child waits for a signal",
        starting("parent_waiting"),
        r"for its child run ID-child, which is running: `holdfast why ID-child` says more",
    ),
    Case(
        "its child is held", child_held, r"for its child run ID-child, which is held: `holdfast why ID-child`"
    ),
    Case(
        "its child is stuck",
        child_stuck,
        r"for its child run ID-child, which is stuck: `holdfast why ID-child`",
        "failed",
        open_gate,
    ),
    Case(
        "it backs off",
        starting("charging"),
        r"^Step charge backs off after ConnectionError: the bank does not answer; attempt 2 of 3 begins in 60 min, and "
        r"`holdfast retry ID` begins it at once",
        first=open_gate,
    ),
    Case(
        "it needs a label",
        starting("rendering"),
        r"but no live agent with whys.render has gpu: start one with `holdfast agent whys.py --label gpu`\.$",
    ),
    Case(
        "it needs two labels",
        starting("printing"),
        r"has gpu, printer: start one with `holdfast agent whys.py --label gpu --label printer`\.$",
    ),
    Case(
        "its step is held",
        held("--step", "whys.ship"),
        r"the step whys.ship has been held by .* \(stocktaking\)",
    ),
    Case(
        "its workflow is held",
        held("--workflow", "whys.shipping"),
        r"the workflow whys.shipping has been held .*; `holdfast release --workflow whys.shipping` lets it go on",
    ),
    Case(
        "its dependency is held",
        held("--dependency", "whys.ship"),
        r"the dependency whys.ship has been held .*; `holdfast release --dependency whys.ship` lets it go on",
    ),
    Case(
        "its namespace is held",
        held("--namespace", "default"),
        r"the namespace default has been held .*`holdfast release --namespace default`",
    ),
    Case(
        "everything is held",
        held("--all", "--namespace", "*"),
        r"everything has been held .*; `holdfast release --all --namespace '\*'` lets it go on",
    ),
    Case(
        "its breaker was opened by hand",
        forced,
        r"the breaker of stripe was opened by .* \(maintenance\); it stays open until `holdfast breakers reset stripe` lets one step try it",
    ),
    Case(
        "its breaker is open",
        tripped,
        r"stripe has been in trouble for .* \(25 of 28 attempts failed\); its breaker is open for another 60 min, .*"
        r"`holdfast breakers reset stripe` tries it now\.$",
    ),
    Case(
        "it is in quarantine",
        ended("breaking", "stuck"),
        r"It is stuck: step fragile has been in quarantine for .*\. `holdfast quarantine release \w+` tries it again",
        first=open_gate,
    ),
    Case(
        "it is in quarantine, and is retried",
        ended("breaking", "stuck"),
        r"and so does `holdfast retry ID`",
        first=open_gate,
        which=1,
    ),
    Case(
        "an undo gave up",
        stuck,
        r"^It is stuck: unbook, the undo of book, gave up at attempt 1: the desk is closed\. Decide .*: `holdfast retry ID` tries the undo again",
        "undone",
        open_gate,
    ),
    Case(
        "an undo gave up, and is done by hand",
        stuck,
        r"`holdfast skip ID book --note 'done by hand'` counts it as done",
        "undone",
        which=1,
    ),
    Case(
        "an undo gave up, and is left",
        stuck,
        r"`holdfast cancel ID --force` stops undoing and leaves the rest as it is",
        "failed",
        which=2,
    ),
    Case(
        "an operator holds it",
        operate("working", "hold", "ID", "--note", "wait"),
        r"^It has been held by .* for .* \(wait\); `holdfast release ID` lets it go on\.$",
        first=open_gate,
    ),
    Case(
        "a step failed",
        ended("refused", "failed"),
        r"^It failed after step refuse#2 gave up at attempt 1: ValueError: no such card\. "
        r"`holdfast retry ID` keeps what was recorded, executes refuse#2 again, and goes on\.$",
        first=open_gate,
        of="ID~2",
    ),
    Case(
        "its own code failed",
        ended("careless", "failed"),
        r"^It failed: KeyError: .*\. `holdfast retry ID` keeps what was recorded and replays its code, which fails in the "
        r"same way unless the code has changed\.$",
        first=open_gate,
        of="ID~2",
    ),
    Case(
        "its deadline came",
        ended("working", "failed", "--timeout", "0.5"),
        r"^It failed: RunTimeout: .*\. `holdfast retry ID` keeps what was recorded and goes on where it was\.$",
        first=open_gate,
        of="ID~2",
    ),
    Case(
        "its child failed",
        ended("parent_refused", "failed"),
        r"^It failed after its child run ID/refused did not succeed: .*\. `holdfast retry ID` keeps",
        first=open_gate,
        of="ID~2",
    ),
    Case(
        "it was undone",
        undone,
        r"^It failed: ValueError: sold out; what it had done has been undone\. `holdfast retry ID` keeps what was recorded, "
        r"executes the 1 undone step again, and goes on\.$",
        "undone",
        of="ID~2",
    ),
    Case(
        "an undo was skipped",
        skipped,
        r"^It failed: ValueError: sold out; what it had done has been undone, but .* skipped the undo of book \(by phone\)\. "
        r"`holdfast retry ID` keeps what was recorded",
        "stuck",
        of="ID~2",
    ),
    Case(
        "it was cancelled",
        operate("working", "cancel", "ID", "--note", "no more"),
        r"^It was cancelled by .* ago \(no more\)\. `holdfast retry ID` keeps what was recorded and goes on where it was\.$",
        first=open_gate,
        of="ID~2",
    ),
    Case(
        "its undoing was stopped",
        abandoned,
        r"^It was cancelled by .* \(no more\); .* stopped its undoing \(leave it\) after 0 of 1 undos, and the rest stays as it is\. "
        r"`holdfast retry ID` keeps what was recorded and goes on where it was\.$",
        first=open_gate,
        of="ID~2",
    ),
    Case(
        "it was tried again",
        retried,
        r"^It failed .*\. It was retried as ID~2: `holdfast why ID~2` says how that run is doing\.$",
        first=open_gate,
        of="ID~3",
    ),
    Case(
        "it is undoing, and backs off",
        starting("reserving"),
        r"^It is undoing what it did, 1 of 1: free undoes reserve\. Step undo:reserve backs off after ConnectionError: .*"
        r"`holdfast retry ID` begins it at once",
        "undone",
        open_gate,
    ),
    Case(
        "its code heard a cancel",
        heard,
        r"^It was asked to cancel itself by .* ago \(too late\); its code got the request, .*`holdfast cancel ID --force` asks again",
        "cancelled",
    ),
    Case(
        "it succeeded",
        ended("shipping", "succeeded"),
        r"^It succeeded, .* after it was started; nothing is left to do\.$",
        "",
    ),
    Case("it sleeps", starting("sleeping"), r"^It sleeps \(sleep\) for another (60 min|3600 s)\.$", ""),
    Case(
        "a step runs",
        starting("working"),
        r"^Step work has been running on \S+ pid \d+ for .*, attempt 1\.$",
        "",
    ),
]


@pytest.mark.parametrize("case", SERVED, ids=[case.name for case in SERVED])
def test_what_why_says_moves_a_run_that_is_served(served: World, case: Case) -> None:
    """A process serves the store. The sentence fits, and doing what it says leads where it says."""
    run_id = f"r{uuid4().hex[:8]}"
    case.make(served, run_id)
    pattern = re.compile(case.says.replace("ID", run_id), re.DOTALL)
    deadline = time.monotonic() + DEADLINE_S
    while not pattern.search(sentence := served.why(run_id)):
        assert time.monotonic() < deadline, f"{pattern.pattern}\n{sentence}"
        time.sleep(0.05)
    if not case.ends:
        assert not COMMAND.search(sentence), sentence
        return
    case.first(served, run_id)
    served.follow(sentence, case.which)
    served.until_state(case.of.replace("ID", run_id), case.ends)


def test_an_id_is_quoted_as_a_shell_needs_it(served: World) -> None:
    """A command can be pasted even if the id of the run has special characters."""
    run_id = f"it's mine; rm -rf * {uuid4().hex[:8]}"
    served.start("working", run_id, gate="odd")
    served.until_step(run_id, "work", "running")
    served.do("hold", run_id)
    served.open("odd")
    served.follow(served.why(run_id))
    served.until_state(run_id, "succeeded")


def test_the_child_of_a_parent_leads_to_it(served: World) -> None:
    """`why` of a failed child names its parent, which decides what follows."""
    run_id = f"r{uuid4().hex[:8]}"
    ended("parent_refused", "failed")(served, run_id)
    why = served.why(f"{run_id}/refused")
    assert f" Its parent decides what happens next: `holdfast why {run_id}` says what that is." in why


# --- where nobody serves the store ----------------------------------------------------------------------------------


def left(*processes: str) -> Callable[[World, str], object]:
    """Return a function that makes a run, serves it until this step is in this state, and stops serving."""
    workflow, key, state = processes

    def make(world: World, run_id: str) -> None:
        world.start(workflow, run_id)
        process = world.serve("up", "whys.py")
        world.until_step(run_id, key, state)
        world.stop(process)

    return make


def killed(workflow: str, key: str, state: str) -> Callable[[World, str], object]:
    """Return a function that does the same, but the host of the process vanishes."""

    def make(world: World, run_id: str) -> None:
        world.start(workflow, run_id)
        process = world.serve("up", "whys.py")
        world.until_step(run_id, key, state)
        world.kill(process)
        world.open(run_id)

    return make


def then(make: Callable[[World, str], object], *command: str) -> Callable[[World, str], object]:
    def both(world: World, run_id: str) -> None:
        make(world, run_id)
        world.do(*(run_id if word == "ID" else word for word in command))

    return both


def only(*services: list[str]) -> Callable[[World, str], object]:
    """Return a function that makes a run and starts only some roles, so that the run waits for another one."""

    def make(world: World, run_id: str) -> None:
        world.start("shipping", run_id)
        for service in services:
            world.serve(*service)

    return make


def due(world: World, run_id: str) -> None:
    left("napping", "sleep", "waiting")(world, run_id)
    world.until_why(run_id, "came due")


def other_version(world: World, run_id: str) -> None:
    world.start("shipping", run_id)
    file = world.folder / "whys.py"
    whole = file.read_text()
    file.write_text(
        whole.replace("@workflow\nasync def shipping", '@workflow(version="2")\nasync def shipping')
    )
    world.serve("up", "whys.py")
    file.write_text(whole)


def undecided(world: World, run_id: str) -> None:
    """Make a run whose signal has arrived while nobody is there to take it."""
    killed("waiting", "paid", "waiting")(world, run_id)
    world.do("signal", run_id, "paid", "--data", "7")


ALONE = [
    Case(
        "nobody ever served it",
        starting("shipping"),
        r"^It has been waiting for a scheduler for .*\. No live scheduler has "
        r"whys.shipping version 1 loaded: start one with `holdfast up FILE`\.$",
    ),
    Case("who served it left", left("waiting", "paid", "waiting"), r"`holdfast signal ID paid", ""),
    Case(
        "a new run, and who served such left",
        lambda world, run_id: (
            left("waiting", "paid", "waiting")(world, "before"),
            world.start("shipping", run_id),
        ),
        r"loaded \(\S+ pid \d+ had it until .* ago\): start one with `holdfast up whys.py`\.$",
    ),
    Case(
        "there are agents and a Supervisor",
        only(["agent", "whys.py"], ["supervisor"]),
        r"^It has been waiting for a scheduler .*start one with `holdfast scheduler whys.py`\.$",
    ),
    Case(
        "there is a scheduler",
        only(["scheduler", "whys.py"], ["supervisor"]),
        r"^Step ship has been ready for .*, but no live agent has whys.ship: start one with `holdfast agent whys.py`\.$",
    ),
    Case(
        "another version is served",
        other_version,
        r"No live scheduler has whys.shipping version 1 loaded, only version 2: start one with `holdfast scheduler FILE`\.$",
    ),
    Case(
        "it sleeps, and nobody would wake it",
        left("sleeping", "sleep", "waiting"),
        r"^It sleeps .*Nobody could wake it now\. No live scheduler has .*: start one with `holdfast up whys.py`\.$",
        "running",
    ),
    Case(
        "its timer came due",
        due,
        r"^Its timer sleep came due .* ago\. No live scheduler has .*`holdfast up whys.py`\.$",
    ),
    Case(
        "the signal is here",
        then(left("waiting", "paid", "waiting"), "signal", "ID", "paid", "--data", "7"),
        r"^It waits for the signal 'paid', which was sent .* ago\. No live scheduler has .*`holdfast up whys.py`\.$",
    ),
    Case(
        "a cancel is here",
        then(left("waiting", "paid", "waiting"), "cancel", "ID", "--note", "no more"),
        r"^It was asked to cancel itself by .* \(no more\); its code does not know yet\. No live scheduler has .*"
        r"`holdfast up whys.py`\.$",
        "cancelled",
    ),
    Case(
        "its child was not begun",
        lambda world, run_id: (
            left("parent_waiting", "waiting", "waiting")(world, run_id),
            world.do("signal", f"{run_id}-child", "paid", "--data", "7"),
        ),
        r"for its child run ID-child, which is running: `holdfast why ID-child`",
    ),
    Case(
        "its agent is gone, and no Supervisor is up",
        killed("working", "work", "running"),
        r"^Step work has been running on \S+ pid \d+ for .*; that agent has been gone for .*, and no Supervisor is up to "
        r"reclaim the step: start one with `holdfast up whys.py`\.$",
    ),
    Case(
        "its scheduler is gone, and no Supervisor is up",
        undecided,
        r"^It waits for the signal 'paid', which was sent .*\. Its scheduler, \S+ pid \d+, is gone, and no Supervisor is up to "
        r"free the run: start one with `holdfast up whys.py`\.$",
    ),
    Case(
        "it backs off, and nobody is there",
        left("charging", "charge", "ready"),
        r"^Step charge backs off .*, and `holdfast retry ID` begins it at once, but no live agent has whys.charge \(.* had it until "
        r".* ago\): start one with `holdfast up whys.py`\.$",
        first=open_gate,
        all_of_them=True,
    ),
    Case(
        "it is undoing, and nobody is there",
        killed("reserving", "undo:reserve", "ready"),
        r"^It is undoing what it did, 1 of 1: free undoes reserve\. Step undo:reserve backs off .*, and `holdfast retry ID` "
        r"begins it at once, but no live agent has whys.free .*: start one with `holdfast up whys.py`\.$",
        "undone",
        all_of_them=True,
    ),
]


@pytest.mark.parametrize("case", ALONE, ids=[case.name for case in ALONE])
def test_what_why_says_moves_a_run_that_nobody_serves(alone: World, case: Case) -> None:
    """Some role is missing. The sentence says which, and the command that starts it moves the run."""
    run_id = "r1"
    case.make(alone, run_id)
    sentence = alone.why(run_id)
    assert re.search(case.says.replace("ID", run_id), sentence), sentence
    if case.ends:
        case.first(alone, run_id)
        for which in range(len(COMMAND.findall(sentence)) if case.all_of_them else 1):
            alone.follow(sentence, which)
        alone.until_state(run_id, case.ends)


def test_a_run_whose_hops_are_refused_says_what_the_store_said(served: World) -> None:
    """`why` quotes the store, and says that releasing the run helps when the cause is mended. Then it does."""
    run_id = f"r{uuid4().hex[:8]}"
    if served.store.startswith("sqlite:"):
        run_sql(
            served.sql_url,
            "CREATE TRIGGER shut BEFORE UPDATE OF state ON runs WHEN NEW.state = 'succeeded' AND "
            f"NEW.id = '{run_id}' BEGIN SELECT RAISE(ABORT, 'the ledger is closed'); END",
        )
    else:
        run_sql(
            served.sql_url,
            "CREATE FUNCTION shut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "RAISE EXCEPTION 'the ledger is closed'; END $$",
        )
        run_sql(
            served.sql_url,
            "CREATE TRIGGER shut BEFORE UPDATE ON runs FOR EACH ROW WHEN (NEW.state = 'succeeded' AND "
            f"NEW.id = '{run_id}') EXECUTE FUNCTION shut()",
        )
    ended("shipping", "held")(served, run_id)
    sentence = served.why(run_id)
    assert "It is held because the store refused 6 times what it had to write: " in sentence
    assert "the ledger is closed" in sentence
    run_sql(
        served.sql_url,
        "DROP TRIGGER shut" if served.store.startswith("sqlite:") else "DROP TRIGGER shut ON runs",
    )
    served.follow(sentence)
    served.until_state(run_id, "succeeded")


@pytest.mark.parametrize(("which", "ends"), [(0, "succeeded"), (1, "cancelled")])
def test_a_run_whose_code_changed_says_both_sides(alone: World, which: int, ends: str) -> None:
    """The run goes on when it is released under code that fits what it recorded. If it is cancelled, it ends without
    that."""
    left("charging", "charge", "ready")(alone, "r1")
    file = alone.folder / "whys.py"
    whole = file.read_text()
    file.write_text(whole.replace("return await charge(gate)", 'return await charge(f"{gate}!")'))
    changed = alone.serve("up", "whys.py")
    alone.open("r1")
    alone.do("retry", "r1")
    sentence = alone.until_why(
        "r1", "It is held because its code has changed and no longer fits what the run recorded: "
    )
    assert '{"gate":"r1"}' in sentence
    assert '{"gate":"r1!"}' in sentence
    if ends == "succeeded":
        alone.stop(changed)
        file.write_text(whole)
        alone.serve("up", "whys.py")
    alone.follow(sentence, which)
    alone.until_state("r1", ends)


def test_the_sentences_are_about_forty_situations() -> None:
    """No situation is left out by accident, and none stands there twice."""
    names = [case.name for case in (*SERVED, *ALONE)]
    assert len(names) == len(set(names)) >= 40
