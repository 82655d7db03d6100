"""A terminal shows the text of rows, and never obeys it."""

import json
import re
from pathlib import Path
from shutil import copyfile

import pytest

from holdfast.safe_text import visible, visible_json
from tests.commands.conftest import Cli, until
from tests.commands.hostile import EVIL
from tests.commands.test_terminal import COLOUR, Terminal

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[[0-9]*[AK]|\x1b\[2K|\x1b\[\?25[hl]|\r\n|\r")
"""The sequences that our own terminal library writes."""
FORGED = re.compile("^FORGED", re.MULTILINE)
"""The second line of a text, where a line of ours could begin."""
ID = "[/x][link=evil]y"


@pytest.fixture
def hostile(lite: Cli) -> Cli:
    """A store in which every field that anybody may fill has the hostile text."""
    copyfile(Path(__file__).with_name("hostile.py"), lite.folder / "hostile.py")
    given = json.dumps([EVIL])
    lite("run", "hostile.py:caught", "--input", given, "--id", ID, "--tag", f"k{EVIL}={EVIL}", "--json")
    lite("run", "hostile.py:failing", "--input", given, "--id", "failed", "--json", code=1)
    lite("start", "hostile.py:waiting", "--input", given, "--id", "held")
    lite("hold", "held", "--note", EVIL)
    lite("start", "hostile.py:waiting", "--input", given, "--id", "waits", "--tag", f"k={EVIL}")
    lite("signal", "waits", "go", "--data", json.dumps(EVIL), "--key", "k")
    lite("hold", "--workflow", "hostile.waiting", "--note", EVIL)
    lite("run", "hostile.py:waits_for_room", "--input", given, "--id", "logs", "--json")
    asking = lite.start("run", "hostile.py:asking", "--input", given, "--id", "asks")
    until(lambda: lite("asks", "--json").json)
    asking.terminate()
    lite.end(asking)
    lite("emit", "evil.came", "--data", json.dumps(EVIL), "--subject", "x", "--source", "shop")
    lite("limits", "set", "shared", "2", "--note", EVIL)
    lite("fair", "set", "acme", "3", "--note", EVIL)
    lite(
        "schedules",
        "create",
        "nightly",
        "hostile.caught",
        "--times",
        "0 3 * * *",
        "--input",
        json.dumps({"text": EVIL}),
    )
    lite("schedules", "pause", "nightly", "--note", EVIL)
    lite("hooks", "create", "billing", "--scheme", "github")
    lite("breakers", "open", "bank", "--note", EVIL)
    lite("hold", "--workflow", "hostile.waiting", "--state", "running", "--note", EVIL, "--yes", code=None)
    return lite


def commands() -> list[list[str]]:
    looks = [["show", one] for one in (ID, "failed", "held", "waits")]
    looks += [["why", one] for one in (ID, "failed", "held", "waits", "asks")]
    return [
        *looks,
        ["ps"],
        ["ps", "--all"],
        ["agents"],
        ["alerts"],
        ["breakers"],
        ["holds"],
        ["quarantine"],
        ["doctor"],
        ["logs", "logs"],
        ["graph", "hostile.py:waiting", "--run", "waits"],
        ["events"],
        ["limits"],
        ["limits", "shared"],
        ["fair"],
        ["schedules"],
        ["schedules", "nightly"],
        ["hooks"],
        ["tokens"],
        ["acts"],
        ["asks"],
        ["callbacks"],
        ["triggers"],
    ]


def test_nothing_that_is_shown_is_obeyed(hostile: Cli) -> None:
    """Every command that shows rows writes plain text into a pipe and as JSON, and ends well."""
    seen = ""
    for command in commands():
        for more in ([], ["--json"]) if command[-1] in ("waits", "--all") else ([],):
            ended = hostile(*command, *more, code=None)
            assert ended.code in (0, 1), (command, ended)
            assert "should not happen" not in ended.errors, (command, ended)
            assert not UNSEEN.search(ended.out.replace("\n", "") + ended.errors.replace("\n", "")), (
                command,
                ended,
            )
            assert more or not FORGED.search(ended.out + ended.errors), (command, ended)
            seen += ended.out
    assert "\\x1b]0;pwned" in seen
    assert "[/x][link=http://evil]y" in seen
    assert json.loads(hostile("show", "waits", "--json").out)["input"]["text"] == EVIL


def test_nothing_is_obeyed_at_a_terminal_or_in_a_log(hostile: Cli) -> None:
    """With colours and a live picture, what is left after our own sequences is plain text. So is what a node logs."""
    for command in (["ps", "--all"], ["show", ID], ["show", "failed"], ["watch", "failed"]):
        terminal = Terminal(hostile, *command)
        assert terminal.end() in (0, 1)
        left = OURS.sub("", terminal.seen)
        assert not UNSEEN.search(left.replace("\n", "")), repr(left)
        assert "]8;" not in terminal.seen, "a live link"
        assert "pwned" in COLOUR.sub("", terminal.seen) or command[0] == "ps"
    ended = hostile("run", "hostile.py:failing", "--input", json.dumps([EVIL]), "--id", "logged", code=1)
    assert "pwned" in ended.errors
    assert not FORGED.search(ended.errors)
    assert not UNSEEN.search(ended.errors.replace("\n", ""))


def test_visible_text_keeps_what_people_write() -> None:
    """Umlauts, emoji with joiners, flags, right-to-left letters, tabs and line ends are harmless, and stay as they
    are."""
    for text in ("Grüße\tund\nKüsse", "👩\u200d💻 ✓ 🇳🇴", "שלום", "日本語", ""):
        assert visible(text) == text
    assert visible("\x1b[31m\x9b\u202e") == "\\x1b[31m\\x9b\\u202e"


def test_visible_json_is_the_same_json() -> None:
    """Escaping changes the text of a JSON document, and not its value."""
    value = {EVIL: [EVIL, "\U000e0041"]}
    line = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(line) == value
    assert not UNSEEN.search(line)
