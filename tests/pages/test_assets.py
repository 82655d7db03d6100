"""Styles, scripts and fonts: what is served is what was looked at, and there is little of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from holdfast.glyphs import COLOURS, GLYPHS
from holdfast.http.pages.assets import ASSETS, HERE
from holdfast.http.pages.words import STATES
from tests.http.conftest import Asked
from tests.pages.vendor import PRODUCT, TESTS, WANTED, digests

TEMPLATES = HERE.with_name("templates")
COLOUR_OF = {
    "green": "ok",
    "red": "fail",
    "yellow": "back",
    "cyan": "run",
    "blue": "wait",
    "magenta": "held",
    "bright_black": "idle",
}
SHAPE_OF = {
    "✓": "ok",
    "✗": "fail",
    "↶": "undo",
    "⊘": "cancelled",
    "●": "run",
    "◌": "wait",
    "○": "ready",
    "↻": "again",
    "!": "stuck",
    "‖": "held",
}


@pytest.mark.parametrize("folder", [PRODUCT, TESTS], ids=["product", "tests"])
def test_what_others_wrote_is_what_the_manifest_says(folder: Path) -> None:
    """Every file has a line, with a licence beside it, and is what was fetched."""
    lines = {one["file"]: one for one in json.loads((folder / "manifest.json").read_text())}
    licences = {one["licence_file"] for one in lines.values()}
    assert {path.name for path in folder.iterdir()} == {"manifest.json", *lines, *licences}
    for name, line in lines.items():
        assert digests((folder / name).read_bytes()).items() <= line.items(), name
    wanted = {(one.file, one.package, one.version) for one in WANTED if one.folder == folder}
    assert {(one["file"], one["package"], one["version"]) for one in lines.values()} == wanted


def test_pages_are_light() -> None:
    """At most 30 KB of scripts and 8 KB of styles, gzipped, and 90 KB of fonts."""
    scripts = sum(_packed(path) for path in HERE.rglob("*.js"))
    assert scripts < 30 * 1024, scripts
    assert _packed(HERE / "holdfast.css") < 8 * 1024
    assert sum(path.stat().st_size for path in HERE.rglob("*.woff2")) < 90 * 1024


def _packed(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


def test_nothing_in_a_page_is_executed_that_stands_in_a_page() -> None:
    """No inline script, style or handler; what is not escaped are our own shapes, in one file."""
    for path in TEMPLATES.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\son[a-z]+=|hx-on|hx-vals=.js:|javascript:|\sstyle=|<style", text), path.name
        assert all("src=" in one for one in re.findall(r"<script[^>]*>", text)), path.name
        assert "| safe" not in text or path.name == "sprite.html", path.name
        assert "|safe" not in text
        assert "autoescape" not in text
    for path in [*HERE.glob("*.js")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\.innerHTML|outerHTML\s*=|insertAdjacentHTML|\beval\(|new Function", text), (
            path.name
        )


def test_states_look_as_the_command_line_shows_them() -> None:
    """The same glyph and the same colour: what is learned in one place holds in the other."""
    for state, glyph in GLYPHS.items():
        assert STATES[state] == (COLOUR_OF[COLOURS[state]], SHAPE_OF[glyph]), state


async def test_files_are_served_by_their_digest_and_kept_for_ever(lone: Asked) -> None:
    """A name with another digest stands for nothing. Styles and scripts name one another by digests, too."""
    found = ASSETS["holdfast.css"]
    answer = await lone.get(found.url, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-encoding"] == "gzip"
    assert hashlib.sha256(answer.content).hexdigest()[:16] in found.url
    fonts = re.findall(r"url\(([^)]+)\)", answer.text)
    assert fonts
    for font in fonts:
        assert (await lone.get(font)).status_code == 200
    assert (await lone.get("/static/holdfast.0000000000000000.css")).status_code == 404
    assert (await lone.get("/static/..%2f..%2fpage.py")).status_code == 404
