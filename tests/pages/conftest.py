"""A browser, and a site with runs of every kind: one of each for all tests of a process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.http.conftest import busy as busy  # noqa: PLC0414
from tests.http.conftest import lone as lone  # noqa: PLC0414  fixtures are found by their names
from tests.http.conftest import quiet as quiet  # noqa: PLC0414
from tests.http.conftest import wide as wide  # noqa: PLC0414
from tests.http.processes import Process
from tests.pages.filled import APPLICATION, Filler

expect.set_options(timeout=60_000)  # a busy machine is slow, and only what never happens is a failure
PLACES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/pages/" in item.nodeid:
            item.add_marker(pytest.mark.xdist_group("pages"))


def chromium_path() -> str | None:
    named = os.environ.get("HOLDFAST_CHROMIUM")
    return named or next((found for name in PLACES if (found := shutil.which(name))), None)


def slack() -> float:
    """How much longer than alone something takes here, because others use the machine, too."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


class Site:
    """A server with a filled store."""

    def __init__(self, url: str, refs: dict[str, str]) -> None:
        self.url, self.refs = url, refs
        self.filler = Filler(url)

    def run(self, run_id: str) -> str:
        return f"/runs/{self.refs[run_id]}"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    process = Process(folder, f"sqlite:///{folder}/pages.db", "up", APPLICATION)
    # On a busy machine the tests take long. A server that nobody listens to waits for ever once its pipe is full.
    listener = threading.Thread(target=process.process.communicate, daemon=True)
    listener.start()
    try:
        yield Site(process.url, Filler(process.url).fill())
    finally:
        os.killpg(process.process.pid, signal.SIGKILL)
        listener.join()
        process.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while the driver is there, no other event loop can run in this thread."""
    path = chromium_path()
    if path is None:
        pytest.skip(
            "no Chromium is installed here: `make chromium` installs it, or HOLDFAST_CHROMIUM names one"
        )
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


class Window:
    """A window of the browser. Whatever its console says is wrong."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.url = context, url
        self.said: list[str] = []
        self.page = self.another()

    def another(self) -> Page:
        page = self.context.new_page()
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        self.said.append(f"{message.type}: {message.text}")

    def open(self, path: str) -> Page:
        answer = self.page.goto(self.url + path)
        assert answer is not None
        assert answer.ok, (path, answer.status)
        return self.page


@pytest.fixture
def window(browser: Browser, site: Site) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme="light")
    context.set_default_timeout(60_000)
    made = Window(context, site.url)
    yield made
    context.close()
    assert made.said == []


AXE = (Path(__file__).with_name("vendor") / "axe.js").read_text(encoding="utf-8")
PICTURES = Path(__file__).parents[2] / "work/pages"


def pictured(page: Page, place: str, kind: str) -> None:
    """Take a picture of what a page shows, for people to look at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"\W+", "-", place).strip("-") or "overview"
    page.screenshot(path=PICTURES / f"{name}-{kind}.png")
