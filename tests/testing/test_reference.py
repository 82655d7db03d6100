"""docs/reference/testing.md lists what there is."""

import inspect
import re
from pathlib import Path

import pytest

from holdfast import testing
from holdfast.testing import Report, Sim, SimRun

PAGE = (Path(__file__).parents[2] / "docs/reference/testing.md").read_text()
INTERNAL = {"count", "add"}
"""Methods of a report that only fill it."""


@pytest.mark.parametrize(("kind", "name"), [(Sim, "sim"), (SimRun, "run"), (Report, "report")])
def test_every_member_is_listed(kind: type, name: str) -> None:
    """The page lists all of them, and no others."""
    made = {"workflow", *vars(Report("x"))} if kind is Report else set()
    members = {member for member in dir(kind) if not member.startswith("_")} - INTERNAL
    members |= {member for member in made if not member.startswith("_")} - {"workflow"}
    members |= {"id"} if kind is SimRun else set()
    assert set(re.findall(rf"`{name}\.([a-z_]+)", PAGE)) == members


def test_every_setting_is_listed() -> None:
    """The page names the settings as `using` does."""
    settings = [name for name in inspect.signature(Sim.using).parameters if name != "self"]
    table = PAGE.partition("| setting of `using`")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == settings


def test_every_name_is_listed() -> None:
    """Everything that can be imported is on the page."""
    for name in testing.__all__:
        assert name in PAGE, name
        assert getattr(testing, name)
