"""The wheel that `pip install holdfast` would install gives the same command, in a virtual environment of its own."""

from __future__ import annotations

import email
import json
import re
import shutil
import subprocess
import sys
import tomllib
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
APP = """
from holdfast import step, workflow


@step
async def double(x: int) -> int:
    return 2 * x


@workflow
async def twice(x: int) -> int:
    return await double(await double(x))
"""


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wheel_in_a_clean_environment_gives_the_command(tmp_path: Path) -> None:
    """The wheel is built, and installed without any development tool. It runs a workflow to its end."""
    run(UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path, cwd=ROOT)
    (wheel,) = tmp_path.glob("holdfast-*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, tmp_path / "clean", cwd=tmp_path)
    python = tmp_path / "clean" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, wheel, cwd=tmp_path)
    (tmp_path / "app.py").write_text(APP)
    holdfast = tmp_path / "clean" / "bin" / "holdfast"
    ended = json.loads(run(holdfast, "run", "app.py:twice", "--input", "[3]", "--json", cwd=tmp_path))
    assert (ended["state"], ended["output"]) == ("succeeded", 12)


LINKS = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(packed.read(name))


def links(package: Message) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", str(package.get_payload()), flags=re.MULTILINE | re.DOTALL)
    return LINKS.findall(text)


def test_the_package_index_shows_no_link_that_leads_nowhere(tmp_path: Path) -> None:
    """Links into the repository are absolute when its address is known, and plain text while it is not."""
    settings = (ROOT / "pyproject.toml").read_text()
    known = tomllib.loads(settings)["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]
    for name in ("README.md", "LICENSE", "hatch_build.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for address in ("", "https://host.example/holdfast"):
        changed = settings.replace(f'repository = "{known}"', f'repository = "{address}"')
        (tmp_path / "pyproject.toml").write_text(changed)
        run(UV, "build", "--quiet", "--wheel", "--out-dir", tmp_path / "dist", cwd=tmp_path)
        (wheel,) = (tmp_path / "dist").glob("holdfast-*.whl")
        package = metadata(wheel)
        assert package["Author"]
        assert package["Description-Content-Type"] == "text/markdown"
        assert "## Documentation" in str(package.get_payload())
        found = links(package)
        assert all("://" in link for link in found), found
        inside = [link.partition(f"{address}/")[2] for link in found if address and link.startswith(address)]
        for link in inside:
            kind, version, path = link.split("/", 2)
            assert (kind, version) in {("blob", f"v{package['Version']}"), ("raw", f"v{package['Version']}")}
            assert (ROOT / path).exists(), link
        assert bool(inside) == bool(address) == bool(package.get_all("Project-URL"))
