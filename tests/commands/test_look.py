"""`ps`, `show`, `why`, `watch` and `doctor`: what a person or a script can see of a store."""

import signal

import apsw
import psycopg
import pytest

from holdfast.store.migrations import read_migrations
from tests.commands.conftest import Cli, until


@pytest.fixture
def seen(cli: Cli) -> Cli:
    """A store with runs of each kind."""
    return used(cli)


@pytest.fixture
def seen_lite(lite: Cli) -> Cli:
    """The same store on SQLite, for what does not depend on the store."""
    return used(lite)


def used(cli: Cli) -> Cli:
    """Make a run of each kind: one that succeeded, one that failed, one that waits for a scheduler and one for a
    signal."""
    cli.open_gate()
    cli("run", "app.py:gated", "--id", "done", "--tag", "team=billing")
    cli("run", "app.py:failing", "--id", "broken", code=1)
    process = cli.start("run", "app.py:everything", "--id", "open")
    until(lambda: "signal 'paid'" in cli("why", "open", code=None).out, process)
    process.send_signal(signal.SIGTERM)
    cli.end(process)
    cli("start", "app.py:gated", "--id", "later", "--tag", "team=billing")
    return cli


def ids(cli: Cli, *arguments: str) -> list[str]:
    return [row["id"] for row in cli("ps", "--json", *arguments).json]


def test_ps_lists_and_narrows(seen: Cli) -> None:
    """It lists the newest first, and chooses by state, workflow, tag, time, namespace, error, beginning
    of the id, and number. What cannot be meant is an error. With --json it prints a list of
    objects."""
    rows = seen("ps", "--json").json
    assert [row["id"] for row in rows] == ["later", "open/child", "open", "broken", "done"]
    assert rows[-2] | {"created_at": "", "started_at": "", "finished_at": "", "seconds": 0} == {
        "id": "broken",
        "workflow": "app.failing",
        "version": "1",
        "state": "failed",
        "namespace": "default",
        "priority": 0,
        "tags": {},
        "parent_id": None,
        "retry_of": None,
        "forked_from": None,
        "started_by": None,
        "generation": 1,
        "progress": None,
        "note": None,
        "created_at": "",
        "started_at": "",
        "finished_at": "",
        "deadline": None,
        "begin_at": None,
        "due_at": None,
        "fair": None,
        "seconds": 0,
        "error": {"type": "Stop", "message": "no such thing"},
        "eta": None,
    }
    assert ids(seen, "--state", "failed", "--state", "pending") == ["later", "broken"]
    assert ids(seen, "--workflow", "gated") == ["later", "done"]
    assert ids(seen, "--tag", "team=billing", "--state", "succeeded") == ["done"]
    assert ids(seen, "open") == ["open/child", "open"]
    assert (
        ids(seen, "--error", "Stop")
        == ids(seen, "--error", "holdfast.errors.Stop", "--since", "1h")
        == ["broken"]
    )
    assert ids(seen, "--since", "1h", "--namespace", "default", "--until", "0s", "d") == ["done"]
    assert ids(seen, "--until", "1h") == ids(seen, "--namespace", "other") == ids(seen, "pen") == []
    assert seen("ps", "nothing").out == "no such run\n"
    wrong = seen("ps", "--workflow", "gatd", code=2).errors
    assert "no workflow is called 'gatd' in this store: did you mean 'app.gated'?" in wrong
    assert "--since: 'soon' is no time: write how long ago" in seen("ps", "--since", "soon", code=2).errors
    assert ids(seen, "--limit", "2") == ["later", "open/child"]
    assert ids(seen, "--limit", "1", "--all") == ["later", "open/child", "open", "broken", "done"]


def test_ps_is_a_table_for_people(seen_lite: Cli) -> None:
    """Each run is a line with its state, its age, and how it ended or what it waits for."""
    lines = {line.split()[0]: line for line in seen_lite("ps").out.splitlines()[2:]}
    assert "○ pending" in lines["later"]
    assert "for a scheduler" in lines["later"]
    assert "Stop: no such thing" in lines["broken"]
    assert "50% half way · paid waits for signal 'paid'" in lines["open"]
    assert "✓ succeeded" in lines["done"]


def test_show_shows_everything_about_a_run(seen: Cli) -> None:
    """It shows payloads, steps with their failed attempts, signals, children, the journal, and the sentence of
    `why`."""
    seen("signal", "open", "paid", "--data", "900", "--key", "k")
    seen("hold", "open", "--note", "one moment")
    shown = seen("show", "open", "--json").json
    steps = {step["key"]: step for step in shown["steps"]}
    assert shown["input"] == {"n": 2}
    assert shown["published"] == {"phase": "middle"}
    assert shown["progress"] == {"fraction": 0.5, "note": "half way"}
    assert set(steps) == {
        "branch/last",
        "branch/last#2",
        "branch#2/last",
        "branch#2/last#2",
        "flaky",
        "child",
        "paid",
    }
    assert steps["branch#2/last#2"]["input"] == {"a": 1, "b": 1}
    assert steps["branch#2/last#2"]["output"] == 2
    assert [attempt["error"]["message"] for attempt in steps["flaky"]["failed_attempts"]] == [
        "line 1 broke",
        "line 2 broke",
    ]
    assert shown["children"] == [
        {"id": "open/child", "workflow": "app.child", "state": "succeeded", "n": steps["child"]["n"]}
    ]
    assert [(signal["name"], signal["payload"], signal["key"]) for signal in shown["signals"]] == [
        ("paid", 900, "k")
    ]
    assert [(entry["verb"], entry["note"]) for entry in shown["journal"]] == [("hold", "one moment")]
    assert "one moment" in shown["why"]


def test_show_draws_a_timeline(seen_lite: Cli) -> None:
    """It groups steps by the task tree, shows failed attempts with their reason, and draws a bar over the run's
    time."""
    out = seen_lite("show", "open").out
    rows = [line.rstrip() for line in out.splitlines()]
    assert rows[0] == "● running  everything  open"
    keys = [row[2:14].rstrip() for row in rows if row[:1] in {"✓", "◌"} or row.startswith("  branch")]
    assert [key.rstrip(" ┈━─═✗┄·") for key in keys] == [
        "branch",
        "  last",
        "  last#2",
        "branch#2",
        "  last",
        "  last#2",
        "flaky",
        "child",
        "paid",
        "succeeded  o",
    ]
    flaky = next(row for row in rows if row.startswith("✓ flaky"))
    assert "━" in flaky or "✗" in flaky
    assert any("attempt 2: ConnectionError: line 2 broke" in row for row in rows)
    assert any(row.startswith("◌ paid") for row in rows)
    assert "children" in rows
    assert "✓ succeeded  open/child  app.child" in rows


def test_show_of_a_failed_run_says_where(seen_lite: Cli) -> None:
    """It shows the error, the author's line that raised it, and what to do next."""
    out = seen_lite("show", "broken").out
    assert "Stop: no such thing" in out
    assert "raise Stop(why)" in out
    assert "`holdfast retry broken`" in out


def test_show_stays_usable_with_10_000_steps(lite: Cli) -> None:
    """People get a hundred lines and a note, and --json has all steps."""
    lite("run", "app.py:wide", "--input", "[10000]", "--id", "wide", "--json")
    lines = lite("show", "wide").out.splitlines()
    assert len(lines) < 120
    assert lines[-1] == "10,000 steps, 99 of them shown: --limit 0 shows all, and so does --json"
    assert len(lite("show", "wide", "--json").json["steps"]) == 10_000


def test_why_is_one_line(seen: Cli) -> None:
    """It says what the run waits for, and what would move it."""
    assert seen("why", "open").out.count("\n") == 1
    answer = seen("why", "open", "--json").json
    assert answer == {"id": "open", "why": answer["why"]}
    assert "`holdfast signal open paid --data 0`" in answer["why"]
    assert "No live scheduler has app.gated" in seen("why", "later").out


def test_watch_follows_until_the_end(cli: Cli) -> None:
    """It ends with a run that another process carries, with the same object and exit code as `run`."""
    cli("start", "app.py:gated", "--id", "w")
    watching = cli.start("watch", "w", "--json")
    failed = cli.start("watch", "f", "--json")
    carrying = cli.start("up", "app.py")
    until(lambda: "gate" in cli.effects(), carrying)
    assert watching.poll() is None
    cli.open_gate()
    ended = cli.end(watching)
    assert (ended.code, ended.json["state"], ended.json["output"]) == (0, "succeeded", 3)
    assert cli.end(failed).code == 2
    cli("start", "app.py:failing", "--id", "f")
    assert cli("watch", "f", "--json", code=1).json["error"]["message"] == "no such thing"


def test_leaving_a_watch_leaves_the_run(lite: Cli) -> None:
    """Ctrl-C ends the watching with exit code 130, and the run stays as it was."""
    lite("start", "app.py:gated", "--id", "w")
    watching = lite.start("watch", "w")
    assert watching.stderr is not None
    assert watching.stderr.readline() == "w pending app.gated\n"
    watching.send_signal(signal.SIGINT)
    assert lite.end(watching).code == 130
    assert lite("show", "w", "--json").json["state"] == "pending"


def test_doctor_says_that_all_is_well(seen: Cli) -> None:
    """On a store that was used every invariant holds. `doctor` lists facts, and what to do next."""
    shown = seen("doctor", "--json").json
    assert shown["ok"] is True
    assert shown["runs"] == {"pending": 1, "running": 1, "succeeded": 2, "failed": 1}
    assert shown["schema"] == len(read_migrations("holdfast.store.sqlite"))
    assert shown["oldest_pending_s"] > 0
    assert all(invariant["ok"] for invariant in shown["invariants"])
    out = seen("doctor").out
    assert "no scheduler is alive: start `holdfast up FILE`" in out
    assert "no step waits for an agent" in out
    assert "✓ I1 each key stands once in a run" in out


def test_doctor_names_the_step_that_waits_longest(cli: Cli) -> None:
    """A process handed the step back and left, and no agent is there. `doctor` names the step, how long it has waited,
    and what to start."""
    process = cli.start("run", "app.py:gated", "--id", "g")
    until(lambda: "gate" in cli.effects(), process)
    process.send_signal(signal.SIGTERM)
    cli.end(process)
    assert cli("doctor", "--json").json["oldest_ready_s"] > 0
    out = cli("doctor").out
    assert "! ready: step gate of g has been waiting for an agent for " in out
    assert "no agent is alive: start `holdfast up FILE` or `holdfast agent FILE`" in out


def test_doctor_finds_what_is_broken(seen: Cli) -> None:
    """Somebody deleted a run by hand. The exit code is 1, and `doctor` names the invariant, how many rows break it, and
    what to do."""
    statement = "DELETE FROM {}runs WHERE id = 'done'"
    if seen.store.startswith("sqlite:"):
        apsw.Connection(seen.store.removeprefix("sqlite:///")).execute(statement.format(""))
    else:
        with psycopg.connect(seen.store, autocommit=True) as connection:
            connection.execute(statement.format("holdfast.").encode())
    broken = [row for row in seen("doctor", "--json", code=1).json["invariants"] if not row["ok"]]
    assert [(row["name"], row["broken"]) for row in broken] == [("I17", 3)]
    out = seen("doctor", code=1).out
    assert "✗ I17 is broken in 3 rows" in out
    assert "report it" in out


def test_doctor_counts_live_nodes(cli: Cli) -> None:
    """A node that is up is counted as alive, with its roles, and as the leader."""
    process = cli.start("up", "app.py")
    until(lambda: cli("doctor", "--json", code=None).json.get("leader"), process)
    shown = cli("doctor", "--json").json
    assert [node["roles"] for node in shown["nodes"] if node["alive"]] == [
        ["scheduler", "agent", "supervisor"]
    ]
    assert shown["leader"] == shown["nodes"][0]["id"]
    assert "✓ leader: " in cli("doctor").out
    led = shown["leadership"]
    assert (led["node"], led["epoch"], led["vacant_s"], led["predecessor"]) == (
        shown["leader"],
        1,
        None,
        None,
    )
    assert led["since"] is not None


def test_doctor_says_how_long_nobody_led(cli: Cli) -> None:
    """After the leader was killed, it says who leads, since when, who led before, and how long nobody led."""
    first = cli.start("supervisor")
    until(lambda: cli("doctor", "--json", code=None).json.get("leader"), first)
    lost = cli("doctor", "--json").json["leader"]
    second = cli.start("supervisor")
    until(lambda: len(cli("agents", "--json").json) == 2, second)
    first.kill()
    until(lambda: cli("doctor", "--json").json["leader"] not in {None, lost}, second)
    led = cli("doctor", "--json").json["leadership"]
    assert (led["epoch"], led["predecessor"]) == (2, lost)
    assert 0 < led["vacant_s"] < 30
    assert "the one before was lost, and for" in cli("doctor").out
    assert [row["leads"] for row in cli("agents", "--json").json if row["id"] == led["node"]] == [True]


def test_looking_makes_no_file(lite: Cli) -> None:
    """A command that looks at a store that does not exist says so, and makes no file."""
    for command in ("ps", "doctor"):
        assert "there is no store at holdfast.db" in lite(command, code=2).errors
    assert "there is no store at" in lite("show", "x", code=2).errors
    assert not (lite.folder / "holdfast.db").exists()
