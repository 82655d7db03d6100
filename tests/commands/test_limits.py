"""`holdfast limits`: what is limited, and how much of it is in use."""

from __future__ import annotations

from tests.commands.conftest import Cli

PROGRAM = """
from holdfast import step, workflow
from holdfast.limits import Limit

@step(limits=[Limit("bank", 2)])
async def pay() -> int:
    return 1

@workflow
async def order() -> int:
    return await pay()
"""


def test_a_limit_is_listed_shown_and_set(lite: Cli) -> None:
    """`--json` prints for one key what the documentation says, and nothing else."""
    (lite.folder / "limited.py").write_text(PROGRAM)
    lite("run", "limited.py:order")
    assert "bank  0 of 2" in lite("limits").out
    assert lite("limits", "--json").json[0]["key"] == "bank"
    shown = lite("limits", "bank", "--json").json
    assert (shown["limit"]["most"], shown["holders"], shown["waiters"]) == (2, [], [])
    assert lite("limits", "set", "bank", "1", "--note", "slow today", "--json").json["most"] == 1
    assert "1, set by" in lite("limits", "bank").out
    lite("limits", "nosuch", code=2)
