"""Bad input and faults get one line that says what to do, exit code 2 and no traceback. Nothing is lost."""

import json
import os
import subprocess
from pathlib import Path
from shutil import which

import apsw
import pytest

from tests.commands.conftest import Cli
from tests.forkserver import HOLDFAST

FILES = {
    "syntax.py": "x = 1\ndef f(:\n    pass\n",
    "boom.py": "import os\nraise ValueError('boom')\n",
    "needs.py": "\n\nimport nosuchthing\n",
    "exits.py": "import sys\nsys.exit(3)\n",
    "empty.py": "x = 1\n",
    "nul.py": "x = 1\0\n",
    "relative.py": "from . import x\n",
    "wrong.py": "from holdfast import step\n\n@step(timeout=-1)\ndef f() -> None: ...\n",
    "json.py": "x = 1\n",
    "notes.txt": "hello\n",
}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere.py", "there is no file nowhere.py"),
        ("nowhere/app.py:gated", "there is no file nowhere/app.py"),
        (".", "is not a Python file"),
        ("notes.txt", "is not a Python file"),
        ("syntax.py", "syntax.py, line 2: SyntaxError: invalid syntax"),
        ("boom.py", "boom.py, line 2: ValueError: boom"),
        ("needs.py", "needs.py, line 3: ModuleNotFoundError: No module named 'nosuchthing': install it"),
        ("exits.py", "exits.py, line 2: it ends the process when it is imported"),
        ("empty.py", "empty.py has no workflow: mark an async function with @workflow"),
        ("nul.py", "nul.py: SyntaxError: source code string cannot contain null bytes"),
        ("relative.py", "name the module instead of the file"),
        ("wrong.py", "wrong.py, line 3: DefinitionError: wrong.f: timeout"),
        ("json.py", "rename the file"),
        ("no.such.module", "there is no module 'no.such.module'"),
        ("app.py", "app.py has several workflows (gated, failing, "),
        ("app.py:nosuch", "app.py has no workflow 'nosuch'; it has gated, failing, "),
        ("app.py:", "write FILE.py:WORKFLOW"),
    ],
)
def test_a_target_that_cannot_be_loaded(lite: Cli, target: str, words: str) -> None:
    """The error says what is wrong, with the line of the file. No store is made."""
    for name, text in FILES.items():
        (lite.folder / name).write_text(text)
    ended = lite("run", target, code=2)
    assert ended.errors.startswith("error: ")
    assert words in ended.errors
    assert ended.errors.count("\n") == 1
    assert ended.out == ""
    assert not (lite.folder / "holdfast.db").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{", "pays(): the input is not JSON: Expecting property name"),
        ("", "pays(): the input is not JSON"),
        ('{"card": {"number": "1", "cents": 2}} x', "the input is not JSON: Extra data at line 1, column 39"),
        ('{"card": {"number": "1", "cents": NaN}}', "NaN is not JSON"),
        ('{"card": {"number": "1", "cents": "2"}}', "card.cents: expected `int`, got `str`"),
        ('{"card": {"number": "1"}}', "cents"),
        ('{"card": 1, "card": 2}', 'the key "card" occurs twice'),
        ('{"tip": 1}', "card"),
        ('{"card": {"number": "1", "cents": 2}, "tips": 1}', "unknown parameter `tips`"),
        ("[1, 2, 3]", "the array has 3 values, and there are 2 parameters"),
        ("7", "an object of parameters by name, or an array"),
    ],
)
def test_an_input_that_does_not_fit(lite: Cli, given: str, words: str) -> None:
    """The error names the field. Nothing is started, and no store is made."""
    ended = lite("run", "app.py:pays", "--input", "-", "--json", given=given, code=2)
    assert ended.json["error"]["type"] == "InvalidInput"
    assert words in ended.json["error"]["message"]
    assert ended.errors == f"error: {ended.json['error']['message']}\n"
    assert not (lite.folder / "holdfast.db").exists()


def test_a_missing_argument_is_named(lite: Cli) -> None:
    """Without --input, `run` and `start` name the argument that the workflow needs."""
    for command in ("run", "start"):
        assert (
            lite(command, "app.py:pays", code=2).errors
            == "error: pays(): missing `card`: give the arguments with --input\n"
        )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], "No such command 'nosuch': see `holdfast --help`"),
        (["run"], "Missing argument 'FILE[:WORKFLOW]': see `holdfast run --help`"),
        (["run", "app.py:gated", "--nosuch"], "--nosuch"),
        (["run", "app.py:gated", "--priority", "high"], "'high' is not a valid integer"),
        (["run", "app.py:gated", "--timeout", "0"], "--timeout"),
        (["run", "app.py:gated", "--tag", "billing"], "'billing' is not of the form name=value"),
        (["run", "app.py:gated", "--id", " x"], "' x'"),
        (["run", "app.py:gated", "--id", ""], "id"),
        (["ps", "--state", "asleep"], "'asleep' is not one of 'pending'"),
        (["signal", "r", "paid", "--data", "{"], "--data: the input is not JSON"),
        (["signal", "r", "paid", "--data", "NaN"], "NaN is not JSON"),
        (["agent", "app.py", "--label", ""], "a label: expected 1 to 200 printable characters"),
        (["server", "--tls-cert", "cert.pem"], "--tls-cert and --tls-key belong together: give both"),
        (["up", "app.py", "--tls-key", "key.pem"], "--tls-cert and --tls-key belong together: give both"),
        (["up", "app.py", "--host", "0.0.0.0"], "are about answering HTTP: give --port, too"),
        (["up", "app.py", "--tls-cert", "c", "--tls-key", "k"], "are about answering HTTP: give --port, too"),
    ],
)
def test_a_call_that_makes_no_sense(lite: Cli, arguments: list[str], words: str) -> None:
    """A usage error is one line, too, and an object with --json."""
    ended = lite(*arguments, "--json", code=2)
    assert words in ended.json["error"]["message"]
    assert ended.errors == f"error: {ended.json['error']['message']}\n"


def other_program(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE notes (text)")
    connection.close()


def newer_version(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("UPDATE migrations SET version = 99 WHERE version = 1")
    connection.close()


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("nonsense", "'nonsense' is not the address of a store: use sqlite:///file.db"),
        ("mysql://localhost/x", "use sqlite:///file.db or postgresql://"),
        ("sqlite:///nowhere/x.db", "nowhere does not exist: create it"),
        ("sqlite:///", "names no file"),
        ("sqlite:///app.py", "is not a SQLite database"),
        ("sqlite:///other.db", "was made by another program"),
        ("sqlite:////dev/full", "is full: make room"),
        ("sqlite:////proc/version", "can be read and written"),
        ("postgresql://127.0.0.1:1/x", "cannot reach the database"),
        ("postgresql://nowhere.invalid/x", "cannot reach the database"),
    ],
)
def test_a_store_that_cannot_be_used(lite: Cli, store: str, words: str) -> None:
    """The store is not reachable, not ours, not writable or full. The error says which, and what to do."""
    other_program(lite.folder / "other.db")
    ended = lite("run", "app.py:gated", "--store", store, code=2)
    assert words in ended.errors
    assert ended.errors.count("\n") == 1
    assert lite.effects() == []


def test_a_store_of_another_version(lite: Cli) -> None:
    """Holdfast does not touch a file that a newer Holdfast made."""
    lite("migrate")
    newer_version(lite.folder / "holdfast.db")
    assert "is at schema 99" in lite("ps", code=2).errors


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(lite: Cli) -> None:
    """If the program or the store may not be read, the error says so."""
    lite("migrate")
    (lite.folder / "holdfast.db").chmod(0)
    assert "can be read and written" in lite("ps", code=2).errors
    (lite.folder / "app.py").chmod(0)
    assert "cannot read app.py" in lite("run", "app.py:gated", code=2).errors


def test_the_database_that_does_not_exist(lite: Cli, pg_url: str) -> None:
    """The error keeps PostgreSQL's own words."""
    ended = lite("run", "app.py:gated", "--store", f"{pg_url}_nosuch", code=2)
    assert "does not exist" in ended.errors


def test_a_traceback_only_when_asked(lite: Cli) -> None:
    """HOLDFAST_DEBUG=1 shows where an error came from. The last line stays the same."""
    process = lite.start("show", "x", HOLDFAST_DEBUG="1")
    _, errors = process.communicate()
    assert "Traceback (most recent call last)" in errors
    assert errors.splitlines()[-1].startswith("error: there is no store")


def test_a_warning_about_the_code_is_one_line(lite: Cli) -> None:
    """The warning names the line that a replay would not repeat, and the run goes on."""
    (lite.folder / "clock.py").write_text(
        "import time\nfrom holdfast import workflow\n\n@workflow\nasync def w() -> bool:\n    return time.time() > 0\n"
    )
    ended = lite("run", "clock.py", "--json")
    assert ended.json["output"] is True
    assert "warning: clock.py, line 6: workflow w() uses time.time()" in ended.errors


def test_a_warning_that_no_line_has_caused_names_none(lite: Cli) -> None:
    """Python says of a coroutine that nobody awaited that it is in `sys`. Nobody can look there."""
    (lite.folder / "unawaited.py").write_text(
        "from holdfast import step, workflow\n"
        "@step\nasync def s() -> int:\n    return 1\n"
        "@workflow\nasync def w() -> int:\n    return s()\n"
    )
    ended = lite("run", "unawaited.py", code=1)
    assert "warning: coroutine 's' was never awaited" in ended.errors
    assert "await it first" in ended.errors


def test_a_closed_pipe_is_silent(lite: Cli) -> None:
    """`holdfast ps --all | head -1` prints no complaint."""
    lite("run", "app.py:wide", "--input", "[3000]", "--id", "wide", "--json")
    process = lite.start("show", "wide", "--limit", "0")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("✓ succeeded")
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr is not None
    assert process.stderr.read() == ""


LOOKS = [
    ["ps"],
    ["ps", "--json"],
    ["show", "w"],
    ["why", "w"],
    ["agents"],
    ["watch", "w", "--json"],
    ["run", "app.py:pays", "--id", "w", "--json"],
    ["alerts"],
    ["doctor"],
    ["quarantine"],
    ["hold", "--step", "x"],
    ["signal", "open", "paid", "--data", "1"],
    ["start", "app.py:pays", "--input", '{"card": {"number": "n", "cents": 1}}'],
    ["migrate"],
    ["--help"],
    [],
]


def test_a_reader_that_went_away_is_one_exit_code(lite: Cli) -> None:
    """If the reader of a pipe is gone, every command exits with 141 and prints nothing."""
    lite("run", "app.py:pays", "--id", "w", "--input", '{"card": {"number": "n", "cents": 7}}')
    lite("start", "app.py:everything", "--id", "open")
    found = {}
    for arguments in LOOKS:
        read, write = os.pipe()
        os.close(read)
        ended = lite.end(lite.start(*arguments, stdout=write))
        os.close(write)
        if (ended.code, ended.errors) != (141, ""):
            found[" ".join(arguments)] = ended
    assert found == {}


@pytest.mark.parametrize("arguments", [LOOKS[0], LOOKS[5], LOOKS[6], LOOKS[-1]], ids=" ".join)
def test_no_standard_output_is_the_same(lite: Cli, arguments: list[str]) -> None:
    """If there is no standard output, a command that prints lines, one that follows a run, one that runs it and the help
    exit with 141 and print nothing. Nothing is written where it does not belong."""
    lite("run", "app.py:pays", "--id", "w", "--input", '{"card": {"number": "n", "cents": 7}}')
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "bash", HOLDFAST, *arguments],
        cwd=lite.folder,
        env={**os.environ, "HOLDFAST_STORE": lite.store, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (141, "")
    assert lite("show", "w", "--json").json["state"] == "succeeded"


def test_no_standard_stream_at_all(lite: Cli) -> None:
    """Without standard input, output and errors, the store's file is not used as one of them."""
    lite.open_gate()
    script = f"exec {HOLDFAST} run app.py:noise --id n <&- >&- 2>&-"
    env = {**os.environ, "HOLDFAST_STORE": lite.store}
    done = subprocess.run(["bash", "-c", script], cwd=lite.folder, env=env, timeout=60, check=False)
    assert done.returncode == 141
    assert lite("show", "n", "--json").json["output"] == "quiet"


def test_a_service_whose_log_is_not_read_any_more_leaves_in_good_order(lite: Cli) -> None:
    """It hands back what it has, as when it is stopped, and exits with 141."""
    process = lite.start("up", "app.py", "--json")
    assert process.stdout is not None
    assert "hosts" in process.stdout.readline()
    process.stdout.close()
    lite("start", "app.py:failing", "--id", "f")  # the leader logs an alert
    assert process.wait(30) == 141
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    assert lite("agents", "--json").json == []


def test_a_full_disk_under_the_output_is_an_error(lite: Cli) -> None:
    """The command prints one line and exits with 2. The interpreter adds no complaint."""
    lite("run", "app.py:pays", "--id", "w", "--input", '{"card": {"number": "n", "cents": 7}}')
    env = {**os.environ, "HOLDFAST_STORE": lite.store, "NO_COLOR": "1"}
    for arguments in (["ps"], ["ps", "--json"], ["show", "w"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [HOLDFAST, *arguments],
                cwd=lite.folder,
                env=env,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


def may_mount() -> bool:
    """True if a test can mount a file system of its own, as root or in a user namespace."""
    return subprocess.run([*APART, "true"], capture_output=True, check=False).returncode == 0


APART = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.mark.skipif(not which("unshare") or not may_mount(), reason="needs a file system of its own")
def test_a_disk_that_fills_up_in_the_middle_loses_nothing(lite: Cli) -> None:
    """The run stops with one line and exit code 2, and goes on when there is room. Recorded steps do not run again."""
    (lite.folder / "grows.py").write_text(
        "from holdfast import step, workflow\n\n"
        "@step\nasync def blob(n: int) -> str:\n"
        "    with open('effects', 'a') as file:\n        file.write(f'{n}\\n')\n"
        "    return 'x' * 100_000\n\n"
        "@workflow\nasync def grows() -> int:\n"
        "    return sum([len(await blob(n)) for n in range(30)])\n"
    )
    (lite.folder / "small").mkdir()
    run = f"{HOLDFAST} run grows.py --id g --json"
    script = f"""
        mount -t tmpfs -o size=4000k none small
        {run}; echo "code $?"
        {HOLDFAST} show g --json
        mount -o remount,size=40m small
        {run}; echo "code $?"
    """
    done = subprocess.run(
        [*APART, "bash", "-c", script],
        cwd=lite.folder,
        env={**os.environ, "HOLDFAST_STORE": "sqlite:///small/holdfast.db"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    full, full_code, shown, room, room_code = done.stdout.splitlines()
    assert (json.loads(full)["error"]["type"], full_code) == ("StoreFull", "code 2")
    assert "is full: make room" in done.stderr
    assert (json.loads(room)["output"], room_code) == (3_000_000, "code 0")
    recorded = [step["input"]["n"] for step in json.loads(shown)["steps"] if step["state"] == "succeeded"]
    assert 0 < len(recorded) < 30
    assert [n for n in recorded if lite.effects().count(str(n)) != 1] == []
