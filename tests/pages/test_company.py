"""Pages that are not alone: many tabs, other people, a store that goes away, a run that is pruned."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.chaos.servers import own_server
from tests.forkserver import HOLDFAST
from tests.http.processes import Process
from tests.pages.conftest import Window, pictured, slack
from tests.pages.filled import APPLICATION, Filler

TABS = 20
CHANGES = 10
BUSY_MOST = 0.5
"""How much of a core the pages of one browser may cost a server. They leave it alone for three quarters of the time; the rest is
its streams, and room for a machine that others use, too."""
REFUSED = re.compile(r"error: Failed to load resource: the server responded with a status of (409|503)")
"""What the browser itself logs about an answer that says no."""


@contextmanager
def running(folder: Path, store: str, *arguments: str) -> Iterator[Process]:
    process = Process(folder, store, *arguments)
    try:
        yield process
    finally:
        process.close()


@contextmanager
def seen_by(browser: Browser, url: str) -> Iterator[Window]:
    """A browser of somebody, with one window. Its console says nothing but what is expected of the browser itself."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(60_000)
    made = Window(context, url)
    try:
        yield made
    finally:
        context.close()
    assert [one for one in made.said if not REFUSED.match(one)] == []


def live(page: Page) -> None:
    expect(page.locator("#pulse")).to_contain_text("Live")


def streams(url: str) -> int:
    for line in Filler(url).text("/metrics").splitlines():
        if line.startswith("holdfast_streams_open "):
            return int(float(line.split()[1]))
    raise AssertionError("the server does not say how many streams are open")


def worked_s(pid: int) -> float:
    """How long a process has used a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_both_themes(page: Page, place: str) -> None:
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        pictured(page, place, f"1440-{theme}")


def show(page: Page, is_shown: bool) -> None:
    """Let a page believe that it came to the front, or that another one did: a browser without a screen shows all."""
    page.evaluate(
        """(isShown) => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => !isShown });
            document.dispatchEvent(new Event("visibilitychange", { bubbles: true }));
        }""",
        is_shown,
    )


def test_twenty_tabs_are_live_by_one_stream(browser: Browser, store_url: str, tmp_path: Path) -> None:
    """All of them follow each change, the next page opens as quickly as ever, and a server has one stream and time to spare. When
    nobody looks, it has none."""
    with (
        running(tmp_path, store_url, "up", APPLICATION) as up,
        running(tmp_path, store_url, "server") as server,
        seen_by(browser, server.url) as window,
    ):
        filler = Filler(up.url)
        filler.start("tent", "sleeps", {"hours": 1})
        filler.until(partial(filler.is_now, "tent", "running"))
        others = ["/", "/limits", "/events", "/triggers", "/agents", "/workflows"]
        places = ["/runs/tent"] * 7 + ["/runs?prefix=tent"] * 7 + others
        pages, opened = [window.page], []
        pages += [window.another() for _ in places[1:]]
        for page, place in zip(pages, places, strict=True):
            begun = time.monotonic()
            page.goto(server.url + place)
            opened.append(time.monotonic() - begun)
        for page, place in zip(pages, places, strict=True):
            if place not in {"/agents", "/workflows"}:  # they have no topic
                live(page)
        assert len(pages) == TABS
        Filler.until(lambda: streams(server.url) == 1)

        took, last, worked, begun = [], [], worked_s(server.process.pid), time.monotonic()
        for n in range(CHANGES):
            verb, state = ("hold", "held") if n % 2 == 0 else ("release", "running")
            filler.ask("POST", f"/v1/runs/tent/{verb}", {})
            changed = time.monotonic()
            for page in pages[:7]:
                expect(page.locator(".head .pill")).to_have_text(state)
                took.append(time.monotonic() - changed)
            for page in pages[7:14]:
                expect(page.locator("#run-tent .st")).to_have_text(state)
            last.append(time.monotonic() - changed)
        share = (worked_s(server.process.pid) - worked) / (time.monotonic() - begun)

        begun = time.monotonic()
        pages[0].goto(f"{server.url}/runs")
        expect(pages[0].get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        next_s = time.monotonic() - begun
        print(
            f"{TABS} tabs: opened in {statistics.median(opened):.2f} s (longest {max(opened):.2f}), a change on a page in "
            f"{statistics.median(took):.2f} s, on all in {statistics.median(last):.2f} s (longest {max(last):.2f}), "
            f"{share:.0%} of a core, one page more in {next_s:.2f} s"
        )
        assert statistics.median(last) < 3 * slack()
        assert next_s < 2 * slack()
        assert share < BUSY_MOST
        assert streams(server.url) <= 1

        for page in pages:
            show(page, is_shown=False)
        Filler.until(lambda: streams(server.url) == 0)
        filler.ask("POST", "/v1/runs/tent/hold", {})
        show(pages[1], is_shown=True)
        expect(pages[1].locator(".head .pill")).to_have_text("held")
        live(pages[1])
        assert pages[2].locator(".head .pill").inner_text() == "running", (
            "a tab that nobody looks at was fetched"
        )


def test_pages_of_several_namespaces_leave_room_for_others(browser: Browser, tmp_path: Path) -> None:
    """A stream is for one namespace, and a browser has six connections. So at most three streams are open, and the other pages ask
    by themselves until somebody leaves."""
    store = f"sqlite:///{tmp_path}/spaces.db"
    with running(tmp_path, store, "server") as server, seen_by(browser, server.url) as window:
        pages = [window.page, *(window.another() for _ in range(7))]
        for n, page in enumerate(pages):
            page.goto(f"{server.url}/runs?namespace=space-{n}")
            expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
        for page in pages[:3]:
            live(page)
        Filler.until(lambda: streams(server.url) == 3)
        for page in pages[3:]:
            expect(page.locator("#pulse")).to_contain_text("As of")
        for page in pages[:3]:
            page.close()
        Filler.until(lambda: sum("Live" in page.locator("#pulse").inner_text() for page in pages[3:]) == 3)


def test_a_page_that_cannot_share_a_stream_has_its_own(browser: Browser, tmp_path: Path) -> None:
    """Such as those of many phones: then each page has its own stream."""
    with (
        running(tmp_path, f"sqlite:///{tmp_path}/phone.db", "up", APPLICATION) as up,
        seen_by(browser, up.url) as window,
    ):
        filler = Filler(up.url)
        filler.start("tent", "sleeps", {"hours": 1})
        window.page.add_init_script("delete globalThis.SharedWorker")
        page = window.open("/runs/tent")
        live(page)
        filler.ask("POST", "/v1/runs/tent/hold", {})
        expect(page.locator(".head .pill")).to_have_text("held")


def test_all_lists_follow_the_stream(browser: Browser, tmp_path: Path) -> None:
    """What somebody else does is on these pages within a second or two: the median of what is tried. None of them asks by itself more
    often than every 15 seconds, but for the numbers of those who wait for a limit."""
    store = f"sqlite:///{tmp_path}/followed.db"
    with running(tmp_path, store, "up", APPLICATION) as up, seen_by(browser, up.url) as window:
        filler = Filler(up.url)
        for n in range(3):
            filler.start(f"signature-{n}", "signs", {"n": n})
        filler.until(lambda: filler.ask("GET", "/v1/limits/bank")["limit"]["used"] == 2)
        filler.until(lambda: len(filler.ask("GET", "/v1/limits/bank")["waiters"]) == 1)
        filler.schedule("nightly", "0 3 * * *", "Europe/Oslo")
        took = []

        def tried(
            place: str, selector: str, words: Callable[[int], str], act: Callable[[int], object]
        ) -> None:
            page = window.open(place)
            live(page)
            rarely = page.locator("#content").get_attribute("data-every")
            assert rarely is None or place == "/limits"
            for n in range(1, 4):
                act(n)
                begun = time.monotonic()
                expect(page.locator(selector)).to_contain_text(words(n))
                took.append(time.monotonic() - begun)
                print(f"{place}: {took[-1]:.2f} s")

        def numbered(n: int) -> object:
            return filler.ask("POST", "/v1/limits/bank", {"most": n, "note": f"note {n}"})

        def paused(n: int) -> object:
            verb = "resume" if n % 2 == 0 else "pause"
            return filler.ask("POST", f"/v1/schedules/nightly/{verb}", {"note": f"night {n}"})

        def held(n: int) -> object:
            return filler.ask("POST", "/v1/holds", {"scope": "workflow", "value": f"shop.w{n}", "note": ""})

        def planned(n: int) -> object:
            return filler.ask(
                "POST", "/v1/acts", {"verb": "hold", "prefix": "signature", "note": f"plan {n}"}
            )

        def until(workflow: str, path: str) -> Callable[[int], object]:
            """Start a run, and wait until the server knows what becomes of it."""

            def act(n: int) -> None:
                before = filler.ask("GET", path)["items"]
                filler.start(f"{workflow}-{n}", workflow, {})
                filler.until(lambda: filler.ask("GET", path)["items"] != before)

            return act

        tried("/limits", "#limit-bank", lambda n: f"“note {n}”", numbered)
        tried("/limits/bank", ".note", lambda n: f"“note {n}”", numbered)
        tried(
            "/events",
            "tbody",
            lambda n: f"day-{n}",
            lambda n: filler.emit(n, "fx.published", "bank", f"day-{n}", {}),
        )
        tried(
            "/triggers",
            ".needs",
            lambda n: f"eve-{n}",
            lambda n: filler.emit(10 + n, "fx.published", "bank", f"eve-{n}", {}),
        )
        tried(
            "/occasions/evening@when:day-1",
            "main",
            lambda n: f"files ({n} of 2)" if n < 2 else "It started",
            lambda n: filler.emit(20 + n, "file.arrived", "ftp", "day-1", {}),
        )
        tried("/schedules/nightly", "main", lambda n: "active" if n % 2 == 0 else f"night {n}", paused)
        tried("/gates", "main", lambda n: f"shop.w{n}", held)
        tried("/acts", "tbody", lambda n: f"plan {n}", planned)
        tried("/asks", "main", lambda n: f"approve-{n}", until("approve", "/v1/asks"))
        tried("/backlog", "main", lambda n: f"{n} step", until("needs_a_gpu", "/v1/backlog"))
        tried("/quarantine", "h1", lambda n: f"{n} step", until("is_poison", "/v1/quarantine"))
        tried("/alerts", "main", lambda n: f"gets_stuck-{n}", until("gets_stuck", "/v1/alerts"))
        page = window.open("/agents")
        live(page)
        with running(tmp_path, store, "up", APPLICATION):
            begun = time.monotonic()
            expect(page.locator(".head")).to_contain_text("2 processes")
            took.append(time.monotonic() - begun)
        begun = time.monotonic()
        expect(page.locator(".head")).to_contain_text("1 process ")
        took.append(time.monotonic() - begun)
        print(f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s")
        assert statistics.median(took) < 2 * slack()


def test_a_store_that_goes_away_is_said_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    """PostgreSQL is stopped below an open page. The page keeps what it shows, says since when, lets nothing be changed, and comes
    back by itself. So does a page that somebody opens meanwhile."""
    with own_server() as store:
        store.make()
        store.start()
        with running(tmp_path, store.url, "up", APPLICATION) as up, seen_by(browser, up.url) as window:
            filler = Filler(up.url)
            filler.start("tent", "sleeps", {"hours": 1})
            page, agents = window.open("/runs/tent"), window.another()
            agents.goto(f"{up.url}/agents")
            live(page)
            expect(page.locator(".head .pill")).to_have_text("running")
            begun = time.monotonic()
            store.crash()
            expect(page.locator("#away")).to_contain_text("The store cannot be reached")
            said_s = time.monotonic() - begun
            expect(page.locator("#pulse")).to_contain_text("Away for")
            expect(page.get_by_role("heading", name="tent")).to_be_visible()
            expect(page.locator(".head .pill")).to_have_text("running")
            assert page.locator(".head .acts").evaluate("(one) => one.inert") is True
            in_both_themes(page, "store-away")
            expect(agents.locator("#away")).to_contain_text("The store cannot be reached")
            late = window.another()
            answer = late.goto(f"{up.url}/runs/tent")
            assert answer is not None
            assert answer.status == 503
            expect(late.get_by_role("alert")).to_contain_text("The store cannot be reached.")
            in_both_themes(late, "store-away-late")
            begun = time.monotonic()
            store.start()
            expect(page.locator("#away")).to_be_empty()
            back_s = time.monotonic() - begun
            for one in (page, late):
                live(one)
                expect(one.get_by_role("heading", name="tent")).to_be_visible()
            expect(agents.locator("#away")).to_be_empty()
            assert page.locator(".head .acts").evaluate("(one) => one.inert") is False
            filler.until(lambda: filler.tried("POST", "/v1/runs/tent/hold", {}))
            expect(page.locator(".head .pill")).to_have_text("held")
            print(f"said after {said_s:.1f} s, back after {back_s:.1f} s")


def output_of(folder: Path, store: str, *words: str) -> str:
    """What a command says."""
    made = subprocess.run(
        [HOLDFAST, *words, "--store", store], check=True, capture_output=True, text=True, cwd=folder
    )
    return made.stdout


@contextmanager
def two_people(
    browser: Browser, store: str, folder: Path, role: str = "operator"
) -> Iterator[tuple[Filler, Window, Window]]:
    """A site where Ada and Bob have signed in, each in their own browser."""
    with running(folder, store, "up", APPLICATION) as up:
        filler = Filler(up.url)
        filler.start("tent", "sleeps", {"hours": 1})
        filler.start("trip", "approve", {})
        filler.start("letter", "backs_off", {})
        filler.until(lambda: bool(filler.ask("GET", "/v1/asks")["items"]))
        make = partial(output_of, folder, store, "tokens", "create", "--role")
        admin = Filler(up.url, make("admin", "--name", "root").strip())
        with seen_by(browser, up.url) as ada, seen_by(browser, up.url) as bob:
            for window, name in ((ada, "ada"), (bob, "bob")):
                secret = make(role, "--name", name, "--who", f"person:{name}", "--who", "team:finance")
                sign_in(window, secret.strip())
            yield admin, ada, bob


def sign_in(window: Window, secret: str) -> None:
    page = window.open("/signin")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def do(page: Page, link: str, button: str) -> None:
    page.get_by_role("link", name=link, exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=button).click()


def test_what_one_person_does_the_other_one_sees(browser: Browser, store_url: str, tmp_path: Path) -> None:
    """With the name of who did it. An act on a run that is no longer what the form was about is refused, and says what it is now;
    nothing is done, and nothing that was typed is lost."""
    with two_people(browser, store_url, tmp_path) as (_, ada, bob):
        mine, theirs = ada.open("/runs/tent"), bob.open("/runs/tent")
        live(theirs)
        do(mine, "Hold", "Hold 1 run")
        expect(theirs.locator(".head .pill")).to_have_text("held")
        expect(theirs.locator("#why")).to_contain_text("ada")
        do(theirs, "Release", "Release 1 run")
        expect(mine.locator(".head .pill")).to_have_text("running")

        theirs.get_by_role("link", name="Hold", exact=True).click()
        dialog = theirs.get_by_role("dialog")
        dialog.get_by_label("Why").fill("counting the tents")
        do(mine, "Hold", "Hold 1 run")
        expect(mine.locator(".head .pill")).to_have_text("held")
        dialog.get_by_role("button", name="Hold 1 run").click()
        expect(dialog.get_by_role("alert")).to_contain_text(
            "The run was running when you opened this form, and is held now"
        )
        assert dialog.get_by_label("Why").input_value() == "counting the tents"
        in_both_themes(theirs, "two-people")
        dialog.get_by_role("button", name="Leave it").click()
        expect(theirs.locator(".head .pill")).to_have_text("held")
        expect(theirs.locator("#why")).to_contain_text("ada")
        theirs.keyboard.press("i")
        expect(theirs.locator(".view")).to_contain_text("bob")
        assert "counting the tents" not in theirs.locator(".view").inner_text()


def test_a_retry_of_a_run_that_has_ended_meanwhile_is_no_new_run(
    browser: Browser, store_url: str, tmp_path: Path
) -> None:
    """Bob wants its waiting step to be tried now. Ada has cancelled it by then: a retry would be another run."""
    with two_people(browser, store_url, tmp_path) as (admin, ada, bob):
        admin.until(lambda: "backs off" in admin.ask("GET", "/v1/runs/letter/why")["text"])
        mine, theirs = ada.open("/runs/letter"), bob.open("/runs/letter")
        theirs.locator("main").get_by_role(
            "link", name=re.compile("^(Try now|Retry|Try again)")
        ).first.click()
        button = theirs.get_by_role("dialog").get_by_role("button", name="Retry 1 run")
        expect(button).to_be_visible()
        mine.get_by_role("link", name=re.compile("^Cancel")).click()
        mine.get_by_role("dialog").get_by_role("button", name=re.compile("^Cancel")).click()
        expect(mine.locator(".head .pill")).to_have_text("cancelled")
        button.click()
        expect(theirs.get_by_role("dialog").get_by_role("alert")).to_contain_text(
            "is cancelled now; nothing was done"
        )
        theirs.get_by_role("dialog").get_by_role("button", name="Leave it").click()
        expect(theirs.locator(".head .pill")).to_have_text("cancelled")
        assert [one["id"] for one in admin.ask("GET", "/v1/runs?prefix=letter")["items"]] == ["letter"]


def test_a_question_that_somebody_else_has_answered_says_so(
    browser: Browser, store_url: str, tmp_path: Path
) -> None:
    """Bob has the form open, and decides otherwise: he sees who has answered, and what."""
    with two_people(browser, store_url, tmp_path, "answerer") as (admin, ada, bob):
        ask = admin.ask("GET", "/v1/asks")["items"][0]
        mine, theirs = ada.open(f"/asks/{ask['ref']}"), bob.open(f"/asks/{ask['ref']}")
        expect(theirs.get_by_role("button", name="Decline")).to_be_visible()
        show(theirs, is_shown=False)  # so he does not see it coming
        mine.get_by_role("button", name="Approve").click()
        expect(mine.locator("main")).to_contain_text("Approved")
        theirs.get_by_role("button", name="Decline").click()
        expect(theirs.locator("main")).to_contain_text("ada")
        in_both_themes(theirs, "answered-meanwhile")
        admin.until(partial(admin.is_now, "trip", "succeeded"))
        assert admin.ask("GET", "/v1/runs/trip")["output"] is True


def test_a_run_that_is_pruned_while_one_looks_at_it(browser: Browser, store_url: str, tmp_path: Path) -> None:
    """The page keeps what it shows, and says that it is no longer in the store. The console says nothing, and the list has it no
    more."""
    with (
        running(tmp_path, store_url, "up", APPLICATION) as up,
        seen_by(browser, up.url) as window,
    ):
        filler = Filler(up.url)
        filler.start("word", "talks", {"words": "gone soon"})
        filler.until(partial(filler.is_now, "word", "succeeded"))
        page, listed = window.open("/runs/word"), window.another()
        listed.goto(f"{up.url}/runs")
        live(page)
        live(listed)
        expect(listed.locator("#run-word")).to_be_visible()
        output_of(tmp_path, store_url, "prune", "--older-than", "0s")
        expect(page.locator("#away")).to_contain_text("is no longer in the store")
        expect(page.get_by_role("heading", name="word")).to_be_visible()
        expect(page.locator("#pulse")).not_to_contain_text("Live")
        assert page.locator(".head .acts").evaluate("(one) => one.inert") is True
        in_both_themes(page, "pruned")
        expect(listed.locator("#run-word")).to_have_count(0)
        assert window.said == []
        window.said.clear()
        answer = page.goto(f"{up.url}/runs/word")
        assert answer is not None
        assert answer.status == 404
        expect(page.get_by_role("alert")).to_contain_text("may have been pruned")
        window.said.clear()  # the browser itself logs that there is no such page


def test_who_is_signed_out_in_the_middle_of_a_form_loses_nothing(
    browser: Browser, store_url: str, tmp_path: Path
) -> None:
    """In a dialog and in a page: nothing is done, what was typed stays, and after a sign-in elsewhere it is sent once more."""
    with running(tmp_path, store_url, "up", APPLICATION) as up, seen_by(browser, up.url) as window:
        filler = Filler(up.url)
        filler.start("tent", "sleeps", {"hours": 1})
        filler.until(partial(filler.is_now, "tent", "running"))
        secret = output_of(
            tmp_path, store_url, "tokens", "create", "--role", "operator", "--name", "ada"
        ).strip()
        sign_in(window, secret)
        page, form, other = window.open("/runs/tent"), window.another(), window.another()
        form.goto(f"{up.url}/do/v1/holds")
        form.get_by_role("textbox", name="Name").fill("shop.slow")
        page.get_by_role("link", name="Hold", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Why").fill("counting the tents")
        other.goto(f"{up.url}/runs")
        other.get_by_role("button", name="Sign out").click()
        expect(other.get_by_role("button", name="Sign in")).to_be_visible()

        dialog.get_by_role("button", name="Hold 1 run").click()
        expect(dialog.get_by_role("alert")).to_contain_text("You are signed out")
        expect(dialog.get_by_role("link", name="Sign in")).to_have_attribute("target", "_blank")
        in_both_themes(page, "signed-out-dialog")
        show(form, is_shown=False)
        show(form, is_shown=True)
        expect(form.locator("#away")).to_contain_text("You are signed out. What you typed is kept")
        in_both_themes(form, "signed-out-form")

        other.get_by_label("Token").fill(secret)
        other.get_by_role("button", name="Sign in").click()
        expect(other.get_by_role("button", name="Sign out")).to_be_visible()
        dialog.get_by_role("button", name="Hold 1 run").click()
        expect(dialog.get_by_role("alert")).to_contain_text("not of the session that you are in now")
        dialog.get_by_role("button", name="Hold 1 run").click()
        expect(page.locator(".head .pill")).to_have_text("held")
        expect(page.locator("#why")).to_contain_text("counting the tents")
        expect(form.locator("#away")).to_be_empty()
        assert form.get_by_role("textbox", name="Name").input_value() == "shop.slow"
        form.get_by_role("button", name="Hold", exact=True).click()
        expect(form.get_by_role("heading", level=1)).to_contain_text("1 hold")
        window.said[:] = [
            one for one in window.said if "(Unauthorized)" not in one and "(Forbidden)" not in one
        ]
