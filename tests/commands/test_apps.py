"""Several applications on one store. If two of them use the same name, the second is refused, with both places and what
to do."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.commands.conftest import Cli, Ended, until

APP = """
from pathlib import Path
from holdfast import Signal, step, workflow

paid = Signal("paid", int)

@step
def work(n: int) -> str:
    with open("effects", "a") as ledger:
        ledger.write("{who}\\n")
    return "{who}"

@workflow
async def order(n: int = 1) -> str:
    return await work(n)

@workflow
async def waits() -> int:
    return await paid.wait()
"""


@pytest.fixture
def two(cli: Cli) -> Iterator[Cli]:
    """The command in a folder that has billing/app.py and mailing/app.py."""
    for who in ("billing", "mailing"):
        (cli.folder / who).mkdir()
        (cli.folder / who / "app.py").write_text(APP.replace("{who}", who))
    return cli  # type: ignore[return-value]  # closed by the fixture it comes from


def up(cli: Cli, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a process, and return it when it hosts its roles."""
    process = cli.start(*arguments, **environment)  # type: ignore[arg-type]  # no variable is called stdin
    assert process.stderr is not None
    for line in process.stderr:
        if "hosts" in line:
            return process
    raise AssertionError(f"the process ended: {process.wait()}")


def refused(cli: Cli, *arguments: str, **environment: str) -> str:
    ended: Ended = cli(*arguments, code=2, **environment)
    assert "belongs to another application on this store" in ended.errors
    for part in ("billing/app.py", "mailing/app.py", "pid ", "name=…", "another store", "--app NAME"):
        assert part in ended.errors, part
    return ended.errors


@pytest.mark.parametrize(
    ("first", "others"),
    [("up", ["up"]), ("scheduler", ["agent", "scheduler"]), ("agent", ["scheduler", "agent"])],
)
def test_the_second_of_two_applications_is_refused(two: Cli, first: str, others: list[str]) -> None:
    """It is refused whatever roles the two have: a scheduler asks for steps that the other's agents have. A process
    that was killed is in nobody's way."""
    process = up(two, first, "billing/app.py")
    for role in others:
        refused(two, role, "mailing/app.py")
    refused(two, "run", "mailing/app.py:order")
    if first == "up":
        refused(two, "start", "mailing/app.py:order")
    assert two.effects() == []
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert two("run", "mailing/app.py:order", "--json").json["output"] == "mailing"


def test_a_deploy_of_changed_code_is_let_in(two: Cli) -> None:
    """A process with changed code may start while the processes with the old code are up."""
    up(two, "agent", "billing/app.py")
    file = two.folder / "billing" / "app.py"
    file.write_text(file.read_text().replace('return "billing"', 'return "billing" + str(n)'))
    up(two, "up", "billing/app.py")
    assert two("run", "billing/app.py:order", "--json").json["output"] in {"billing", "billing1"}


def test_processes_that_name_the_same_application_are_let_in(two: Cli) -> None:
    """They name it by an option or by the environment. Another name is another application."""
    up(two, "agent", "billing/app.py", "--app", "shop")
    refused_by = two("agent", "mailing/app.py", "--app", "mail", code=2).errors
    assert "shop (" in refused_by
    assert "mail (" in refused_by
    up(two, "agent", "mailing/app.py", HOLDFAST_APP="shop")
    assert [node["origins"] for node in two("agents", "--json").json] == [["shop"], ["shop"]]
    assert "of shop" in two("agents").out


def test_modules_of_packages_have_names_of_their_own(two: Cli) -> None:
    """With an `__init__.py` beside each of them, they share a store, and each run is executed by its own code."""
    for who in ("billing", "mailing"):
        (two.folder / who / "__init__.py").touch()
    up(two, "up", "billing/app.py")
    up(two, "up", "mailing/app.py")
    for who in ("billing", "mailing"):
        for number in range(2):
            assert (
                two("run", f"{who}/app.py:order", "--id", f"{who}-{number}", "--json").json["output"] == who
            )
    assert sorted(set(two.effects())) == ["billing", "mailing"]
    assert {name for node in two("agents", "--json").json for name in node["steps"]} == {
        "billing.app.work",
        "mailing.app.work",
    }


def test_two_lone_files_of_one_project_are_two_applications(two: Cli) -> None:
    """One pyproject.toml above both does not make their two `app.order` the same."""
    (two.folder / "pyproject.toml").write_text('[project]\nname = "Mono_Repo"\n')
    up(two, "up", "billing/app.py")
    assert "mono-repo:billing/app.py" in refused(two, "up", "mailing/app.py")


def test_a_pool_hands_the_application_to_its_agents(lite: Cli) -> None:
    """Agents of a pool belong to the application that the pool was given."""
    lite.start("pool", "app.py", "--app", "shop", "--max", "1")
    until(lambda: "shop" in lite("agents", "--json", code=None).out)


def test_a_wrong_signal_is_refused_with_the_right_command(two: Cli) -> None:
    """The error names a command, and that command works as it is printed."""
    process = up(two, "up", "billing/app.py")
    two("start", "billing/app.py:waits", "--id", "w 1")
    error = two("signal", "w 1", "payed", "--data", "1", code=2).errors
    assert "run 'w 1' takes no signal 'payed': its workflow app.waits takes paid" in error
    assert "try `holdfast signal 'w 1' paid --data 0`" in error
    shown = two("signal", "w 1", "paid", "--json", code=2).json["error"]
    assert shown["type"] == "InvalidInput"
    assert "expected `int`, got `null`" in shown["message"]
    two("signal", "w 1", "paid", "--data", "0")
    assert two("watch", "w 1", "--json").json["output"] == 0
    assert process.poll() is None


class TestLoading:
    """Files of the same name in one process."""

    def write(self, cli: Cli, *files: str, text: str = APP) -> None:
        for file in files:
            (cli.folder / file).parent.mkdir(exist_ok=True)
            (cli.folder / file).write_text(text)

    def test_two_lone_files_of_one_name_get_a_sentence_with_a_way_out(self, lite: Cli) -> None:
        """The error names a way out, and that way works."""
        self.write(lite, "app1/tasks.py", "app2/tasks.py", text=APP.replace("{who}", "x"))
        error = lite("up", "app1/tasks.py", "app2/tasks.py", code=2).errors
        assert "app2/tasks.py cannot be imported as 'tasks', which is app1/tasks.py already" in error
        assert "put an empty __init__.py beside each, and they are app1.tasks and app2.tasks" in error
        self.write(lite, "app1/__init__.py", "app2/__init__.py", text="")
        lite.start("up", "app1/tasks.py", "app2/tasks.py")
        until(lambda: "app2.tasks.work" in lite("agents", "--json", code=None).out)

    def test_a_neighbour_of_another_file_is_not_taken_for_ones_own(self, lite: Cli) -> None:
        """Python would give the first `helpers` to both files."""
        self.write(lite, "app1/helpers.py", "app2/helpers.py", text="ME = __file__\n")
        self.write(lite, "app1/one.py", text="import helpers\n" + APP)
        self.write(lite, "app2/two.py", text="from helpers import ME\n" + APP)
        lite("start", "app1/one.py:order")
        error = lite("up", "app1/one.py", "app2/two.py", code=2).errors
        assert (
            "app2/two.py imports helpers, which is app1/helpers.py already, and not the one beside it"
            in error
        )

    def test_a_file_in_a_package_may_import_as_it_likes(self, lite: Cli) -> None:
        """It may name its package, import relatively, or import its neighbours without the package."""
        self.write(lite, "shop/__init__.py", text="")
        self.write(lite, "shop/near.py", "shop/nearer.py", "shop/nearest.py", text="X = 1\n")
        names = "from shop import near\nfrom . import nearer\nimport nearest\n"
        self.write(lite, "shop/app.py", text=names + APP.replace("{who}", "shop"))
        assert lite("run", "shop/app.py:order", "--json").json["output"] == "shop"
        assert lite("ps", "--json").json[0]["workflow"] == "shop.app.order"

    def test_a_package_that_is_hidden_by_another_gets_a_sentence(self, lite: Cli) -> None:
        """Python already has a package `json`. The error says so, and what to rename."""
        self.write(lite, "json/__init__.py", text="")
        self.write(lite, "json/app.py")
        error = lite("up", "json/app.py", code=2).errors
        assert "json/app.py is 'json.app', because of the __init__.py beside it" in error
        assert "rename the folder" in error

    def test_an_isolated_step_of_a_package_finds_itself(self, lite: Cli) -> None:
        """Its process imports the module as the agent did, even if the file was run by its path."""
        text = APP.replace("{who}", "apart").replace("@step", "@step(isolate=True)")
        text += """
if __name__ == "__main__":
    from holdfast import Holdfast
    with Holdfast("sqlite:///holdfast.db") as hf:
        run = hf.wait(hf.start(order))
        print(order.name, hf.wait(run.result(timeout=60)))
"""
        self.write(lite, "shop/__init__.py", text="")
        self.write(lite, "shop/app.py", text=text)
        assert lite("run", "shop/app.py:order", "--json").json["output"] == "apart"
        for started in (["shop/app.py"], ["-m", "shop.app"]):
            done = subprocess.run(
                [sys.executable, *started],
                cwd=lite.folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.stdout == "shop.app.order apart\n", done.stderr
