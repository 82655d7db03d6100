"""`holdfast run` takes a run to its end, or goes on from where it stopped."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.commands.conftest import Cli, until


def test_a_run_answers_with_one_object(cli: Cli) -> None:
    """--json prints id, state, output and steps as one object, and nothing else on standard output."""
    cli.open_gate()
    shown = cli("run", "app.py:gated", "--input", '{"x": 4}', "--id", "one", "--json").json
    assert (shown["id"], shown["state"], shown["output"]) == ("one", "succeeded", 7)
    assert [(step["key"], step["state"], step["attempts"]) for step in shown["steps"]] == [
        ("first", "succeeded", 1),
        ("gate", "succeeded", 1),
        ("last", "succeeded", 1),
    ]
    assert shown["steps"][0] | {"started_at": "", "finished_at": "", "seconds": 0} == {
        "key": "first",
        "name": "app.first",
        "kind": "call",
        "state": "succeeded",
        "attempts": 1,
        "started_at": "",
        "finished_at": "",
        "seconds": 0,
        "error": None,
    }


def test_a_failed_run_is_exit_code_1_with_its_error(cli: Cli) -> None:
    """The object has the type and the message of the author's own error."""
    shown = cli("run", "app.py:failing", "--input", '{"why": "closed on Sundays"}', "--json", code=1).json
    assert shown["state"] == "failed"
    assert shown["error"] == {"type": "Stop", "message": "closed on Sundays"}
    assert "output" not in shown


def test_people_get_the_result_on_stdout_and_the_rest_on_stderr(lite: Cli) -> None:
    """Without a terminal, each thing that happened is a line on standard error. Standard output has only the result."""
    lite.open_gate()
    ended = lite("run", "app.py:gated", "--id", "plain")
    assert ended.out == "3\n"
    lines = ended.errors.splitlines()
    assert lines[-1].startswith("✓ plain succeeded in ")
    assert any(line.startswith("  last succeeded") for line in lines)


def test_people_see_why_a_run_failed_and_how_to_go_on(lite: Cli) -> None:
    """Standard error has the reason and what to do next. Standard output has nothing."""
    ended = lite("run", "app.py:failing", "--id", "f", code=1)
    assert ended.out == ""
    assert "✗ f failed after " in ended.errors
    assert "Stop: no such thing" in ended.errors
    assert "`holdfast retry f`" in ended.errors


def test_what_the_code_prints_does_not_disturb_the_object(lite: Cli) -> None:
    """With --json, what the workflow, its steps and the programs they start print goes to standard error."""
    ended = lite("run", "app.py:noise", "--json")
    assert ended.json["output"] == "quiet"
    for words in ("printed by a workflow", "printed by a step", "printed by a program"):
        assert words in ended.errors


def test_an_ended_run_answers_again_without_running(cli: Cli) -> None:
    """The same id after the run's end prints the recorded result, with or without the input. Nothing is executed."""
    cli.open_gate()
    first = cli("run", "app.py:gated", "--input", "[1]", "--id", "again", "--json").json
    effects = cli.effects()
    for more in (["--input", '{"x": 1}'], []):
        assert cli("run", "app.py:gated", "--id", "again", "--json", *more).json == first
    assert cli.effects() == effects


def test_another_input_under_the_same_id_is_a_conflict(cli: Cli) -> None:
    """The exit code is 2 and nothing is executed, whether the run has ended or not. Another workflow is a conflict,
    too."""
    cli("start", "app.py:gated", "--input", "[1]", "--id", "taken")
    for target, given in (("app.py:gated", "[2]"), ("app.py:failing", "[]")):
        shown = cli("run", target, "--input", given, "--id", "taken", "--json", code=2).json
        assert shown["error"]["type"] == "Conflict"
        assert "taken" in shown["error"]["message"]
    assert cli.effects() == []
    cli.open_gate()
    cli("run", "app.py:gated", "--id", "taken")
    ended = cli("run", "app.py:gated", "--input", "[2]", "--id", "taken", code=2)
    assert ended.errors.startswith("error: run 'taken' exists and was started with another")


def test_a_killed_run_goes_on_at_once(cli: Cli) -> None:
    """The whole process group is killed in the middle. The same command, without the input, goes on with what was
    recorded: the finished step does not run again, and nobody waits for the dead process."""
    process = cli.start("run", "app.py:gated", "--input", '{"x": 10}', "--id", "killed", "--json")
    until(lambda: "gate" in cli.effects(), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    cli.open_gate()
    shown = cli("run", "app.py:gated", "--id", "killed", "--json").json
    assert (shown["state"], shown["output"]) == ("succeeded", 13)
    assert cli.effects() == ["first", "gate", "gate", "last"]
    gate = shown["steps"][1]
    assert (gate["key"], gate["attempts"]) == ("gate", 2)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_leaving_keeps_the_run(cli: Cli, number: signal.Signals, code: int) -> None:
    """Ctrl-C and SIGTERM end the process with the signal's exit code. It says how to go on, and the run goes on
    later."""
    process = cli.start("run", "app.py:gated", "--id", "left", "--json")
    until(lambda: "gate" in cli.effects(), process)
    process.send_signal(number)
    ended = cli.end(process)
    assert ended.code == code
    assert ended.json["state"] == "running"
    assert "holdfast run app.py:gated --id left" in ended.json["error"]["message"]
    cli.open_gate()
    assert cli("run", "app.py:gated", "--id", "left", "--json").json["output"] == 3
    assert cli.effects() == ["first", "gate", "gate", "last"]


def test_a_thread_that_does_not_end_is_not_waited_for(lite: Cli) -> None:
    """A `def` step cannot be stopped, so a process that leaves does not wait for it."""
    process = lite.start("run", "app.py:endless", "--id", "e")
    until(lambda: "stubborn" in lite.effects(), process)
    process.send_signal(signal.SIGTERM)
    assert lite.end(process).code == 143


def test_a_held_run_is_not_waited_for(cli: Cli) -> None:
    """Only a person can move the run, so the exit code is 1, and a sentence says how."""
    cli("start", "app.py:gated", "--id", "h")
    cli("hold", "h", "--note", "the bank is closed")
    shown = cli("run", "app.py:gated", "--id", "h", "--json", code=1).json
    assert shown["state"] == "held"
    assert "the bank is closed" in shown["error"]["message"]
    assert "holdfast release h" in shown["error"]["message"]
    assert cli.effects() == []


def test_code_that_changed_under_a_run_holds_it(lite: Cli) -> None:
    """The code now asks for something else than the step that was recorded under that key. The run is held, and both
    sides are shown."""
    process = lite.start("run", "app.py:gated", "--id", "drift")
    until(lambda: "gate" in lite.effects(), process)
    process.kill()
    process.wait()
    file = lite.folder / "app.py"
    text = file.read_text().replace("await first()", "await first(5)")
    file.write_text(text.replace("async def first()", "async def first(n: int = 4)"))
    shown = lite("run", "app.py:gated", "--id", "drift", "--json", code=1).json
    assert shown["state"] == "held"
    assert "its code has changed" in shown["error"]["message"]
    assert '{"n":5}' in shown["error"]["message"]
    assert lite.effects() == ["first", "gate"]


def test_settings_of_the_run_are_kept(cli: Cli) -> None:
    """The run has the --priority and the --tag that were given, and --timeout fails it when it takes longer."""
    arguments = (
        "--id",
        "s",
        "--priority",
        "7",
        "--tag",
        "team=billing",
        "--tag",
        "day=monday",
        "--timeout",
        "0.2",
    )
    shown = cli("run", "app.py:gated", *arguments, "--json", code=1).json
    assert (shown["state"], shown["error"]["type"]) == ("failed", "RunTimeout")
    row = cli("show", "s", "--json").json
    assert (row["priority"], row["tags"]) == (7, {"team": "billing", "day": "monday"})


def test_a_label_makes_an_agent_able(lite: Cli) -> None:
    """A step that needs a GPU runs in a process with that --label."""
    assert lite("run", "app.py:render", "--label", "gpu", "--json").json["output"] == "a picture"


@pytest.mark.parametrize(
    "given", ['{"card": {"number": "1", "cents": 2}, "tip": 1}', '[{"number": "1", "cents": 2}, 1]']
)
def test_input_comes_from_standard_input(lite: Cli, given: str) -> None:
    """`--input -` reads an object by name, or an array."""
    assert lite("run", "app.py:pays", "--input", "-", "--json", given=given).json["output"] == 3


def test_a_file_with_one_workflow_need_not_name_it(lite: Cli) -> None:
    """FILE alone is enough if it has one workflow. The file finds its neighbours."""
    (lite.folder / "shop.py").write_text(
        "from app import last\nfrom holdfast import workflow\n\n"
        "@workflow\nasync def sell() -> int:\n    return await last(20, 1)\n"
    )
    assert lite("run", "shop.py", "--json").json["output"] == 21


def test_a_module_is_named_as_python_names_it(lite: Cli) -> None:
    """package.module:workflow is found from the working folder. Its workflow has the same name as when it is loaded by
    file."""
    (lite.folder / "shop").mkdir()
    (lite.folder / "shop" / "__init__.py").touch()
    (lite.folder / "app.py").rename(lite.folder / "shop" / "app.py")
    lite.open_gate()
    shown = lite("run", "shop.app:gated", "--id", "m", "--json").json
    assert (shown["output"], shown["workflow"]) == (3, "shop.app.gated")
    assert lite("run", "shop/app.py:gated", "--id", "m", "--json").json == shown


def test_an_old_version_that_is_gone_is_an_error_not_a_hold(lite: Cli) -> None:
    """The run is of version 1, and the file has only version 2. The exit code is 2, and the run stays as it is."""
    lite("start", "app.py:gated", "--id", "v")
    file = lite.folder / "app.py"
    file.write_text(
        file.read_text().replace("@workflow\nasync def gated", '@workflow(version="2")\nasync def gated')
    )
    ended = lite("run", "app.py:gated", "--id", "v", code=2)
    assert "version 1 of app.gated" in ended.errors
    assert lite("show", "v", "--json").json["state"] == "pending"


def test_two_at_once_are_one_run(cli: Cli) -> None:
    """A second process with the same id follows the run that the first one carries, and both print its result."""
    first = cli.start("run", "app.py:gated", "--id", "both", "--json")
    until(lambda: "gate" in cli.effects(), first)
    second = cli.start("run", "app.py:gated", "--id", "both", "--json")
    until(lambda: _nodes(cli) == 2, second)
    cli.open_gate()
    for process in (first, second):
        ended = cli.end(process)
        assert (ended.code, ended.json["output"]) == (0, 3)
    assert cli.effects() == ["first", "gate", "last"]


def _nodes(cli: Cli) -> int:
    return sum(node["alive"] for node in cli("doctor", "--json").json["nodes"])


def test_the_example_of_the_readme_is_found_by_a_path(lite: Cli, tmp_path: Path) -> None:
    """A file elsewhere is loaded by its path. What it writes goes to the folder where the command was started."""
    lite.open_gate()
    lite("run", str(lite.folder / "app.py") + ":gated", "--store", f"sqlite:///{tmp_path}/other.db")
    assert (tmp_path / "other.db").exists()
    assert lite.effects() == ["first", "gate", "last"]


def test_a_second_signal_ends_at_once(lite: Cli) -> None:
    """A second signal ends a process that is draining at once."""
    process = lite.start("up", "app.py", stdin=subprocess.DEVNULL)
    lite("start", "app.py:gated", "--id", "g")
    until(lambda: "gate" in lite.effects(), process)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    while "draining" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert lite.end(process).code == 143


def test_a_run_is_all_that_its_process_works_on(cli: Cli) -> None:
    """It leaves other runs in the store to those who serve them, and does not show their errors as this run's."""
    cli("start", "app.py:failing", "--id", "other")
    cli("start", "app.py:waits_an_hour", "--id", "late")
    cli.open_gate()
    ended = cli("run", "app.py:gated", "--id", "mine")
    assert "no such thing" not in ended.errors
    states = {run["id"]: run["state"] for run in cli("ps", "--json").json}
    assert states == {"mine": "succeeded", "other": "pending", "late": "pending"}
    assert cli.effects() == ["first", "gate", "last"]


def test_a_killed_run_goes_on_with_its_children_and_nothing_else(cli: Cli) -> None:
    """The process that runs it again takes up its children, their timers, and their steps that were reclaimed or back
    off. It leaves alone what others left behind."""
    others = cli.start("run", "app.py:gated", "--id", "other")
    until(lambda: cli.effects().count("gate") == 1, others)
    mine = cli.start("run", "app.py:nested", "--id", "mine", "--input", "[5]")
    until(lambda: cli.effects().count("gate") == 2, mine)
    for process in (others, mine):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)
    cli.open_gate()
    ended = cli("run", "app.py:nested", "--id", "mine", "--json").json
    assert ended["output"] == 5 + 2 + 3 + 5 * 2
    assert cli("show", "other", "--json").json["state"] == "running"
    assert cli.effects().count("gate") == 3, (
        "the gate of its child ran once more, and that of the other run did not"
    )
    assert cli("run", "app.py:gated", "--id", "other", "--json").json["output"] == 3


def test_another_process_may_serve_the_run(cli: Cli) -> None:
    """A process that waits for a run sees it end, even if another process has taken it up."""
    up = cli.start("up", "app.py")
    cli("start", "app.py:nested", "--id", "mine", "--input", "[5]")
    until(lambda: "gate" in cli.effects(), up)
    process = cli.start("run", "app.py:nested", "--id", "mine", "--json")
    cli.open_gate()
    assert cli.end(process).json["output"] == 20
    assert cli.effects().count("gate") == 1


def test_a_second_ctrl_c_leaves_at_once(lite: Cli) -> None:
    """The first Ctrl-C says what happens. The second does not wait for a step that will not end. There is no
    traceback."""
    process = lite.start("run", "app.py:never", "--id", "n")
    until(lambda: "restless" in lite.effects(), process)
    process.send_signal(signal.SIGINT)
    until(lambda: "asked" in lite.effects(), process)
    process.send_signal(signal.SIGINT)
    ended = lite.end(process)
    assert ended.code == 130
    assert "leaving: what runs here is handed back" in ended.errors
    assert "a second Ctrl-C leaves at once" in ended.errors
