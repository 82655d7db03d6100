"""Continuous integration: check out, lint, test in parallel, build, publish.

    holdfast run examples/ci.py:pipeline
    holdfast run examples/ci.py:pipeline --input '{"repository": "path/or/url", "entry": "package.module:function"}'
    holdfast run examples/ci.py:pipeline --input '{"folder": "work/ci-red", "broken": true}'     a test fails

What it shows:
- subprocesses with time limits in `def` steps;
- one step for each test module, in parallel, each under a key of its own;
- git is retried, a red test is not (`retry=1`), and the run's error has the output of the test;
- the artifact is published whole or not at all.

Without a repository, the first step makes one with git, in work/ci/repository: a package `calc` and its tests.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import zipapp
from dataclasses import dataclass
from pathlib import Path

from holdfast import Stop, set_progress, step, workflow

SAMPLE = {
    "calc/__init__.py": "def add(a, b):\n    return a + b\n\n\ndef half(a):\n    return a / 2\n",
    "calc/cli.py": "import sys\n\nfrom calc import add\n\n\ndef main():\n    print(add(*map(int, sys.argv[1:3])))\n",
    "tests/__init__.py": "",
    "tests/test_add.py": "import unittest\nfrom calc import add\n\n\nclass Add(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
    "tests/test_half.py": "import unittest\nfrom calc import half\n\n\nclass Half(unittest.TestCase):\n"
    "    def test_half(self):\n        self.assertEqual(half(6), 3)\n",
}


class CommandFailed(Exception):
    """A program ended with another code than 0."""


@dataclass(frozen=True)
class Checkout:
    path: str
    commit: str
    test_modules: list[str]


@dataclass(frozen=True)
class Published:
    commit: str
    artifact: str
    sha256: str
    tests: int


@step
def make_repository(folder: str, broken: bool) -> str:
    """Make a small repository to work on, if there is none."""
    path = Path(folder, "repository").resolve()
    if not (path / ".git" / "refs" / "heads" / "main").exists():
        for name, text in SAMPLE.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text.replace("a / 2", "a // 3") if broken else text)
        run("git", "init", "--quiet", "--initial-branch=main", path)
        run("git", "-C", path, "add", ".")
        author = ["-c", "user.name=Example", "-c", "user.email=example@example.org"]
        run("git", "-C", path, *author, "commit", "--quiet", "--message", "A calculator")
    return str(path)


@step(timeout=120)
def check_out(folder: str, repository: str, ref: str) -> Checkout:
    commit = run("git", "ls-remote", "--", repository, ref).split("\t")[0]
    if not commit:
        raise Stop(f"{repository} has no {ref}")
    path = Path(folder, "checkouts", commit[:12]).resolve()
    run("git", "init", "--quiet", path)
    run("git", "-C", path, "fetch", "--quiet", "--depth=1", "--", repository, ref)
    run("git", "-C", path, "checkout", "--quiet", "--force", "FETCH_HEAD")
    modules = sorted(f"tests.{module.stem}" for module in path.glob("tests/test_*.py"))
    return Checkout(str(path), commit, modules)


@step(retry=1, timeout=60)
def lint(checkout: Checkout) -> None:
    """Check that everything compiles, and that the indentation is unambiguous."""
    run(sys.executable, "-m", "compileall", "-q", ".", cwd=checkout.path)
    run(sys.executable, "-m", "tabnanny", ".", cwd=checkout.path)


@step(retry=1, timeout=60)
def test(checkout: Checkout, module: str) -> int:
    """Run one test module. Return how many tests passed."""
    output = run(sys.executable, "-m", "unittest", module, cwd=checkout.path)
    return int(output.partition("Ran ")[2].split()[0])


@step(timeout=60)
def build(folder: str, checkout: Checkout, entry: str) -> str:
    """Make one file that Python can run: the package, without its tests."""
    package = entry.partition(".")[0]
    artifact = Path(folder, "built", f"{package}-{checkout.commit[:12]}.pyz")
    artifact.parent.mkdir(parents=True, exist_ok=True)
    zipapp.create_archive(
        checkout.path,
        artifact,
        main=entry,
        filter=lambda file: file.parts[0] == package and file.suffix == ".py",
    )
    return str(artifact)


@step
def publish(folder: str, checkout: Checkout, artifact: str, tests: int) -> Published:
    """Put the artifact where others find it. It appears whole, and doing it again changes nothing."""
    shelf = Path(folder, "published")
    shelf.mkdir(parents=True, exist_ok=True)
    content = Path(artifact).read_bytes()
    target = shelf / Path(artifact).name
    draft = target.with_suffix(".draft")
    draft.write_bytes(content)
    draft.replace(target)
    return Published(checkout.commit, str(target), hashlib.sha256(content).hexdigest(), tests)


@workflow
async def pipeline(
    folder: str = "work/ci",
    repository: str = "",
    ref: str = "main",
    entry: str = "calc.cli:main",
    broken: bool = False,
) -> Published:
    source = repository or await make_repository(folder, broken)
    checkout = await check_out(folder, source, ref)
    tests = (test.using(key=module)(checkout, module) for module in checkout.test_modules)
    passed, _ = await asyncio.gather(asyncio.gather(*tests), lint(checkout))
    set_progress(0.7, f"{sum(passed)} tests passed")
    artifact = await build(folder, checkout, entry)
    return await publish(folder, checkout, artifact, sum(passed))


def run(*command: str | Path, cwd: str | None = None) -> str:
    """Return what the command printed. When it fails, raise an error with its last lines."""
    done = subprocess.run(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )
    if done.returncode:
        last_lines = "\n".join(done.stdout.strip().splitlines()[-12:])
        raise CommandFailed(f"{' '.join(map(str, command[1:]))} gave {done.returncode}:\n{last_lines}")
    return done.stdout
