"""A process loads only what it needs. These claims count modules: how long loading takes depends on the machine."""

import subprocess
import sys

import pytest

HEAVY = frozenset({"apsw", "asyncio", "asyncpg", "click", "msgspec", "rich", "typing_extensions", "uvloop"})
"""Packages that take long to load."""
HEART = """
from holdfast.store.heart import Order, renewer
import apsw
try: renewer(Order("sqlite:////nowhere/at/all.db", "n", 1, 10.0, 2.0, 60.0, 0.0))
except apsw.CantOpenError: pass
"""


def loaded(code: str) -> tuple[set[str], frozenset[str]]:
    """Run code in a process of its own. Return the modules of Holdfast, and the heavy packages, that it loads."""
    code += "\nimport sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    names = out.splitlines()[-1].split()
    return {name for name in names if name.startswith("holdfast.")}, HEAVY.intersection(names)


@pytest.mark.parametrize(
    ("code", "most", "heavy"),
    [
        ("import holdfast", 1, ""),
        ("from holdfast.commands import main; main(['--version'])", 8, "click"),
        ("from holdfast.commands import main; main(['--help'])", 8, "click"),
        ("import holdfast.commands.ps", 167, "asyncio click msgspec typing_extensions"),
        (HEART, 14, "apsw"),
        ("from holdfast import step, workflow", 57, "asyncio msgspec typing_extensions"),
        ("import holdfast.agent.child", 52, "asyncio msgspec typing_extensions"),
        ("import holdfast.testing.plugin", 3, "asyncio typing_extensions"),
    ],
    ids=[
        *("the package", "--version", "--help", "ps", "a heart", "declarations", "an isolated step"),
        "pytest where nothing is tested with Holdfast",
    ],
)
def test_a_process_loads_only_what_it_needs(code: str, most: int, heavy: str) -> None:
    """Each kind of process loads no more modules than this, and no heavy package but these. If one needs another module,
    raise its number; if it does not, import the module where it is used."""
    modules, packages = loaded(code)
    assert packages <= {*heavy.split()}
    assert len(modules) <= most, sorted(modules)


def test_the_decorator_stays_when_the_folder_of_its_name_is_imported() -> None:
    """`holdfast.workflow` is the decorator for authors, whatever was imported before."""
    code = (
        "import holdfast, holdfast.workflow.step; assert callable(holdfast.workflow);"
        "from holdfast.workflow.workflow import workflow; assert holdfast.workflow is workflow"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_that_nobody_has_used_yet_are_known_to_whoever_reads_code() -> None:
    """After the first use of a public name all names of authors are in the package. What reads a workflow's code
    without running it looks them up there."""
    code = "import holdfast; holdfast.step; assert {'now', 'patched', 'uuid4', 'workflow'} <= vars(holdfast).keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
