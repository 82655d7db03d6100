"""One word, one meaning: the glossary says which words we use, and which we do not."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "glossary.md"
RETIRED_FROM = "## Words we do not use"
KINDS = {".py", ".sql", ".md", ".toml", ".html", ".css", ".js", ".mjs", ".sh"}
PLACES = (
    "src",
    "tests",
    "docs",
    "examples",
    "bench",
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "pyproject.toml",
)
NOT_OURS = {
    GLOSSARY: "it lists them",
    Path(__file__): "it looks for them",
}
EXCUSED = {
    ("job", "--jobs"): "what every tool calls the number of processes it uses",
    ("job", "job_name"): "what Prometheus calls those that it asks for figures",
    ("told", "told_at"): "a column of the table `breakers`",
    ("worker", "post_worker_init"): "a hook of gunicorn",
    ("worker", "tests/conftest.py"): "pytest-xdist calls its processes so",
    ("worker", "tests/roles/test_servers.py"): "gunicorn calls its processes so",
    ("worker", "tests/roles/test_client.py"): "a role that does not exist",
    ("worker", "shared worker"): "what browsers call a script that pages share",
    ("worker", "SharedWorker"): "the same, in a script",
    ("worker", "docs/frameworks.md"): "what gunicorn and Celery call their processes",
}
"""Each exception is a word, and a file's path or a part of a line, with the reason."""


def _cells(text: str) -> Iterator[str]:
    """Yield the first cell of every row of the tables in a text."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield line.split("|")[1].strip()


def _words(text: str) -> list[str]:
    return [word.strip() for cell in _cells(text) for word in cell.split(",") if word not in {"word", "not"}]


def _pattern(word: str) -> re.Pattern[str]:
    """Return a pattern for a word in all its forms. Between the parts of a phrase it allows up to three other words."""
    first, *rest = word.split()
    stem = first.removesuffix("e") + r"\w{0,3}"
    return re.compile(r"\b" + r"(?: [\w'`]+){0,3} ".join([stem, *rest]) + r"\b", re.IGNORECASE)


def _spoken(line: str) -> str:
    """Return a line of code as the words it is made of: `take_back` and `TakeBack` are two words each."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", line)


def _files() -> Iterator[Path]:
    for place in PLACES:
        found = ROOT / place
        for file in [found] if found.is_file() else sorted(found.rglob("*")):
            if (
                file.suffix in KINDS
                and not {"migrations", "peers", "vendor"} & set(file.parts)
                and file not in NOT_OURS
            ):
                yield file


RETIRED = _words(GLOSSARY.read_text(encoding="utf-8").split(RETIRED_FROM)[1])
IN_USE = _words(GLOSSARY.read_text(encoding="utf-8").split(RETIRED_FROM)[0])


def test_the_glossary_is_read() -> None:
    """A table that this test cannot read would forbid nothing."""
    assert {"take back", "tenant", "worker"} <= set(RETIRED)
    assert {"run", "hop", "reclaim", "undo", "twin"} <= set(IN_USE)
    assert not set(RETIRED) & set(IN_USE)


def test_a_word_stands_once() -> None:
    """A word with two lines would have two meanings."""
    assert sorted(set(IN_USE)) == sorted(IN_USE)


@pytest.mark.parametrize("word", RETIRED)
def test_a_retired_word_is_gone(word: str) -> None:
    """The word does not occur in a name, a comment, a message or a page."""
    pattern = _pattern(word)
    lines = [
        (f"{file.relative_to(ROOT)}:{number}: {line.strip()}", _spoken(line))
        for file in _files()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    ]
    excuses = [given for of, given in EXCUSED if of == word]
    found = [
        line
        for line, spoken in lines
        if pattern.search(spoken) and not any(given in line for given in excuses)
    ]
    assert not found, "\n".join([f"{len(found)} lines say {word!r}", *found[:40]])
