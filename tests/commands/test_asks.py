"""`holdfast asks` and `holdfast answer`, as people and scripts use them."""

from __future__ import annotations

from tests.commands.conftest import Cli, until

APP = """
from dataclasses import dataclass

from holdfast import ask, workflow

@dataclass
class Approval:
    ok: bool

@workflow
async def expense(cents: int = 900) -> bool:
    answers = await ask("team:finance", "Pay it?", Approval, show={"cents": cents}, of=2, not_by="starter")
    return all(one.value.ok for one in answers)
"""


def test_a_question_is_listed_shown_handed_over_and_answered(cli: Cli) -> None:
    """Each step has words for people, and JSON for scripts."""
    (cli.folder / "app.py").write_text(APP)
    cli("start", "app.py:expense", "--id", "e1", "--by", "person:eva")
    assert "nobody is asked anything" in cli("asks").out
    process = cli.start("up", "app.py")
    try:
        until(lambda: cli("asks", "--json").json, process)
        (asked,) = cli("asks", "--json").json
        ask = asked["id"]
        assert (asked["question"], asked["of"], asked["show"]) == ("Pay it?", 2, {"cents": 900})
        assert asked["form"]["$defs"]["Approval"]["required"] == ["ok"]
        assert f"{ask} Pay it?" in cli("asks", "--who", "team:finance").out
        assert cli("asks", "--who", "person:anna", "--json").json == []
        assert "0 of 2 answered" in cli("asks", ask).out
        assert f"holdfast answer {ask}" in cli("why", "e1").out
        assert "Pay it?" not in cli("why", "e1").out
        wrong = cli("answer", ask, "--data", '{"ok": 1}', "--by", "person:anna", code=2)
        assert "ok: expected `bool`" in wrong.errors
        assert (
            "somebody else"
            in cli("answer", ask, "--data", '{"ok": true}', "--by", "person:eva", code=2).errors
        )
        first = cli("answer", ask, "--data", '{"ok": true}', "--by", "person:anna")
        assert "1 more answer wanted" in first.out
        again = cli("answer", ask, "--data", '{"ok": true}', "--by", "person:anna")
        assert "had the same answer before" in again.out
        other = cli("answer", ask, "--data", '{"ok": false}', "--by", "person:anna", code=2)
        assert "has answered this already" in other.errors
        handed = cli("asks", "delegate", ask, "person:dan", "--by", "person:bob", "--note", "away", code=2)
        assert "no place to hand over" in handed.errors
        done = cli("answer", ask, "--data", '{"ok": true}', "--by", "person:dan", "--json").json
        assert (done["new"], done["ask"]["state"]) == (True, "answered")
        late = cli("answer", ask, "--data", '{"ok": true}', "--by", "person:cy", code=2)
        assert "person:anna, person:dan came first" in late.errors
        until(lambda: cli("show", "e1", "--json").json["state"] == "succeeded", process)
    finally:
        process.terminate()
    assert "answered" in cli("asks", "--ended").out
    assert "no ask has the id" in cli("asks", "nobody", code=2).errors
