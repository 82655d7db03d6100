"""Every command has help, and it comes quickly."""

import subprocess
import sys

import click
import pytest

from holdfast.commands import COMMANDS, holdfast
from tests.commands.conftest import Cli


def test_the_list_says_what_the_commands_say() -> None:
    """Each command exists in the module that the list names, and its help begins with the words of the list."""
    context = click.Context(holdfast)
    for name, (_, purpose) in COMMANDS.items():
        command = holdfast.get_command(context, name)
        assert command is not None
        assert (command.name, (command.help or "").splitlines()[0]) == (name, purpose)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_and_the_two_options(name: str) -> None:
    """`holdfast NAME --help` shows one line to copy, --store and --json. `simulate` needs no --store: its store is in
    memory."""
    command = holdfast.get_command(click.Context(holdfast), name)
    assert command is not None
    text = command.get_help(
        click.Context(command, info_name=name, parent=click.Context(holdfast, info_name="holdfast"))
    )
    assert f"  holdfast {name}" in text
    assert ("--store URL" in text) is (name != "simulate")
    assert "--json" in text


def test_help_loads_nothing_it_does_not_need() -> None:
    """The list of commands needs no terminal library and no database driver."""
    code = (
        "import sys; from holdfast.commands import main; main(['--help']);"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'rich', 'apsw', 'asyncpg', 'uvloop'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.endswith("\n[]\n")


def test_no_command_is_the_list(lite: Cli) -> None:
    """`holdfast` alone lists the commands."""
    assert lite().out == lite("--help").out
    assert lite("--version").out.startswith("holdfast ")


def test_the_installed_command_is_the_same(lite: Cli) -> None:
    """The installed script and `python -m holdfast` do the same."""
    module = [sys.executable, "-m", "holdfast", "--help"]
    out = subprocess.run(module, capture_output=True, text=True, check=True).stdout
    assert out == lite("--help").out
