"""CONTRIBUTING.md names what exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


def test_it_names_the_folders_of_tests_that_exist() -> None:
    """Each folder has a row, and each row has a folder."""
    table = PAGE.partition("| folder | claims about |\n|---|---|\n")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert sorted(named) == sorted(folders)


def test_it_names_targets_of_make_and_files_that_exist() -> None:
    """It names commands that a newcomer types, and files that they open."""
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)", PAGE)) <= targets
    for name in re.findall(r"`((?:tests|docs|examples|src)/[\w/]*[\w.]*)`", PAGE):
        assert (ROOT / name).exists(), name


def test_it_names_the_folders_of_the_source_that_exist() -> None:
    """Each folder has a row, and each row has a folder. Each file of a step's way exists."""
    source = ROOT / "src" / "holdfast"
    table = PAGE.partition("| folder of `src/holdfast` | what is in it |\n|---|---|\n")[2].partition("\n\n")[
        0
    ]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(named) == sorted({path.parent.name for path in source.glob("*/*.py")})
    way = PAGE.partition("A step's way:")[2].partition("\n\n")[0]
    files = re.findall(r"`(\w+/\w+\.py)`", way)
    assert len(files) > 5
    for name in files:
        assert (source / name).exists(), name
