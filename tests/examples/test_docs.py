"""The documentation is executed.

In a page, ```` ```python run ```` is a complete program, ```` ```python file=NAME ```` is a file of the page's folder,
and the lines after `$` in ```` ```console run ```` are one shell script (`exit=1`: it ends with that code). They run in
the page's order, in one empty folder with an empty store. `run postgres` has the address of an empty PostgreSQL in
DATABASE_URL.
"""

import ast
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from holdfast.commands import COMMANDS, holdfast
from holdfast.config import Config
from holdfast.lifecycle import RUN_TRANSITIONS, STEP_TRANSITIONS, Transition
from holdfast.model import RunState, StepState
from tests.examples.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if "decisions" not in page.parts]
CONFIG = ROOT / "src/holdfast/config.py"
BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    info: list[str]
    text: str
    line: int

    def option(self, name: str) -> str | None:
        return next((word.partition("=")[2] for word in self.info if word.startswith(f"{name}=")), None)


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found["info"].split(), textwrap.dedent(found["text"]), text[: found.start()].count("\n") + 1)
        for found in BLOCK.finditer(text)
    ]


def named(pages: Iterable[Path]) -> list[object]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


def runs(block: Block) -> bool:
    return "run" in block.info or block.option("file") is not None


SLEEP = """
sleep() {
  command sleep "$1"
  case "$1" in 0*) return;; esac
  SECONDS=0; holdfast --version > /dev/null; command sleep "$((10 * SECONDS))"
}
"""
"""A reader's machine has nothing else to do. On a busy one, where a command takes seconds, `sleep` takes longer, too."""


def execute(block: Block, folder: Path, ending: ExitStack, database: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_COLOR": "1",
        "DATABASE_URL": database,
        "PYTHONWARNINGS": "error",
        "PYTEST_ADDOPTS": "-p no:asyncio -p no:timeout -p no:xdist",  # a reader has only Holdfast's own plugin
    }
    environment.pop("HOLDFAST_STORE", None)
    if name := block.option("file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(block.text)
        return
    if block.info[0] == "python":
        (folder / "program.py").write_text(block.text)
        command = [sys.executable, "program.py"]
    else:
        lines = [line[2:] for line in block.text.splitlines() if line.startswith(("$ ", "> "))]
        command = ["bash", "-ec", "\n".join([SLEEP, *lines])]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    ending.callback(stop_group, process.pid)
    with process:
        shown, _ = process.communicate(timeout=180)
    message = f"line {block.line}:\n{block.text}\n{shown}"
    assert process.returncode == int(block.option("exit") or 0), message


def stop_group(leader: int) -> None:
    """End the processes that a block left running in the background."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@pytest.mark.parametrize("page", named(page for page in PAGES if any(map(runs, blocks(page)))))
def test_what_a_page_shows_works(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every program and command of the page runs, in the order in which a reader meets them."""
    asks = any("postgres" in block.info for block in blocks(page))
    database = str(request.getfixturevalue("pg_url")) if asks else ""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with ExitStack() as ending:
        for block in blocks(page):
            if runs(block):
                execute(block, tmp_path, ending, database)


@pytest.mark.parametrize("page", named(PAGES))
def test_every_piece_of_python_is_python(page: Path) -> None:
    """Fragments that cannot run by themselves are at least free of syntax errors."""
    for block in blocks(page):
        if block.info[:1] == ["python"]:
            compile(
                f"async def fragment():\n{textwrap.indent(block.text, '    ')}\n    ...",
                f"{page}:{block.line}",
                "exec",
            )


@pytest.mark.parametrize("page", named(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    """A relative link names a file that exists, and a heading that it has."""
    for link in LINK.findall(BLOCK.sub("", page.read_text())):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", target.read_text()), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, link


def diagram(transitions: Iterable[Transition], states: type[RunState] | type[StepState]) -> list[str]:
    """Return the lines of a state diagram, in the order of the tables. Two roles may make the same change."""
    lines = [
        f"{source} --> {row.target}: {row.name}"
        for row in transitions
        for source in ([state.value for state in states if state.value in row.sources] or ["[*]"])
    ]
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize(
    ("transitions", "states"),
    [(RUN_TRANSITIONS, RunState), (STEP_TRANSITIONS, StepState)],
    ids=["run", "step"],
)
def test_the_diagrams_are_the_tables(
    transitions: tuple[Transition, ...], states: type[RunState] | type[StepState]
) -> None:
    """docs/concepts.md draws exactly the transitions of lifecycle.py."""
    drawn = [
        [line.strip() for line in block.text.splitlines()[1:]]
        for block in blocks(ROOT / "docs" / "concepts.md")
        if block.info == ["mermaid"]
    ]
    assert diagram(transitions, states) in drawn


def _shown(default: float | str) -> str:
    return f'`"{default}"`' if isinstance(default, str) else f"{default:,}"


def test_every_limit_is_documented() -> None:
    """docs/reference/configuration.md lists each limit of config.py with its default and its reason."""
    (config,) = (each for each in ast.parse(CONFIG.read_text()).body if isinstance(each, ast.ClassDef))
    expected = []
    for limit, reason in pairwise(config.body):
        if isinstance(limit, ast.AnnAssign) and isinstance(reason, ast.Expr):
            name, words = ast.unparse(limit.target), str(ast.literal_eval(reason.value)).split()
            default = getattr(Config(), name)
            shown = (
                "none" if default is None else str(default) if isinstance(default, bool) else _shown(default)
            )
            expected.append(f"| `{name}` | {shown} | {' '.join(words)} |")
    page = (ROOT / "docs/reference/configuration.md").read_text()
    table = page.partition("| limit | default | reason |\n|---|---|---|\n")[2].rstrip().splitlines()
    assert table == expected


SHARED = {"--json", "--store", "--namespace"}
"""Options of all commands, which stand in a section of their own."""


def test_every_command_and_option_is_documented() -> None:
    """docs/reference/cli.md has a section for each command, which names each of its options, and no other. The options
    for many runs are the same for all commands that have them, and stand in one section."""
    page = (ROOT / "docs/reference/cli.md").read_text()
    sections = dict(
        re.findall(r"^### `holdfast (\w+)[^\n]*`\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    )
    assert list(sections) == list(COMMANDS)
    many = set(re.findall(r"`(--[a-z-]+)", page.partition("### Many runs\n")[2].partition("\n##")[0]))
    for name, text in sections.items():
        command = holdfast.get_command(click.Context(holdfast), name)
        assert command is not None
        options = {parameter.opts[0] for parameter in command.params if isinstance(parameter, click.Option)}
        named = set(re.findall(r"`(--[a-z-]+)", text))
        if "--dry-run" in options:
            assert named <= options, name
            named |= many
            options |= many
        assert named - SHARED == options - SHARED, name
