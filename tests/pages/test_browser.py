"""The pages in a real browser. `make test` runs the first of these tests; `make pages` runs them all."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from holdfast.http.pages import words
from holdfast.http.pages.assets import ASSETS
from tests.forkserver import HOLDFAST
from tests.http.processes import Process
from tests.pages.conftest import AXE, PICTURES, Site, Window, pictured, slack
from tests.pages.filled import APPLICATION, Filler
from tests.pages.hostile import HOSTILE


def test_smoke_a_person_finds_a_run_and_holds_it(window: Window, site: Site) -> None:
    """Runs, a run, a dialog that says what would happen, and the change on the page without a reload. Nothing that others
    wrote is executed, and the console stays silent under the strict policy."""
    page = window.open("/runs")
    expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    expect(page.locator("#pulse")).to_contain_text("Live")
    page.get_by_role("link", name="tent-5", exact=True).click()
    expect(page.get_by_role("heading", name="tent-5")).to_be_visible()
    expect(page.locator("#why")).to_contain_text("another")
    page.get_by_role("link", name="Hold", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("holdfast hold tent-5")
    dialog.get_by_label("Why").fill(f"counting {HOSTILE}")
    dialog.get_by_role("button", name="Hold 1 run").click()
    expect(page.locator(".head .pill")).to_have_text("held")
    expect(page.locator("#why")).to_contain_text(HOSTILE)
    site.filler.ask("POST", "/v1/runs/tent-5/release", {})
    expect(page.locator(".head .pill")).to_have_text("running")
    page.goto(site.url + site.run(HOSTILE))
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    assert page.evaluate("document.images.length") == 0


PLACES = [
    "/", "/runs", "/runs?is=retrying", "/asks", "/asks?ended=true", "/alerts", "/workflows", "/workflows/tests.pages.application.buy", "/schedules", "/schedules/nightly", "/backlog", "/agents", "/gates", "/quarantine",
    "/acts", "/audit", "/audit?all=true", "/tokens", "/callbacks", "/start?workflow=tests.pages.application.deliver", "/limits", "/limits/bank", "/limits/mail", "/events", "/events?type=fx.published", "/events/bank/e2",
    "/triggers", "/occasions/evening@when:2026-11-18", "/occasions/evening@when:2026-11-16", "/do/v1/limits/bank",
    "/do/v1/occasions/evening@when:2026-11-18/start", "/more", "/start", "/signin", "/runs/trip-8841", "/runs/order-1002?step=1",
    "/runs/order-1002?view=steps", "/runs/order-1003?view=data", "/runs/held-1?view=journal", "/runs/family-2?view=children",
    "/runs/order-1001?view=logs", "/runs/trip-8841?view=signals", "/runs/mall-prod", "/runs/mall-prod?view=graph", "/runs/interest-2026-11-15", "/do/v1/runs/trip-8841/cancel", "/runs?state=pending",
]  # fmt: skip


EMPTY = [place for place in PLACES if place.count("/") == 1 and place not in {"/more", "/signin"}]
"""Pages that a store without anything in it has, too."""


def places(site: Site) -> list[str]:
    """Return all that is looked at, with questions, whose names nobody knows before."""
    return [*PLACES, *(f"/asks/{one['ref']}" for one in site.filler.ask("GET", "/v1/asks")["items"])]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(window: Window, site: Site, theme: str) -> None:
    """Contrast, names, roles, landmarks, order: no violation, in both themes."""
    page = window.page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    found = {}
    for place in places(site):
        window.open(place)
        violations = audited(page)
        if violations:
            found[place] = violations
    assert found == {}


def audited(page: Page) -> list[str]:
    # The driver evaluates outside of the page's policy.
    page.evaluate(AXE)
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {node['html'][:160]}" for one in result["violations"] for node in one["nodes"][:3]]


def test_a_change_is_on_the_screen_within_a_second(window: Window, site: Site) -> None:
    """Median of 20, from the answer of the API to the page."""
    page = window.open("/runs/tent-5")
    expect(page.locator("#pulse")).to_contain_text("Live")
    took = []
    for n in range(20):
        verb, state = ("hold", "held") if n % 2 == 0 else ("release", "running")
        site.filler.ask("POST", f"/v1/runs/tent-5/{verb}", {})
        begun = time.monotonic()
        expect(page.locator(".head .pill")).to_have_text(state)
        took.append(time.monotonic() - begun)
    print(f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s")
    assert statistics.median(took) < 1.0 * slack()


def test_a_page_is_live_however_late_its_script_comes(window: Window) -> None:
    """On a slow line, the stream must not be open before somebody listens."""

    def slowly(route: Route) -> None:
        window.page.wait_for_timeout(1500)
        route.continue_()

    window.page.route("**/live.*.js", slowly)
    page = window.open("/runs/tent-5")
    expect(page.locator("#pulse")).to_contain_text("Live", timeout=20_000)


def test_what_was_typed_and_chosen_survives_a_change(window: Window, site: Site) -> None:
    """The focus, the text in the bar and the place in the list stay while rows change."""
    page = window.open("/runs")
    expect(page.locator("#pulse")).to_contain_text("Live")
    bar = page.get_by_label("Find runs")
    bar.click()
    page.keyboard.type("workflow:bu")
    site.filler.start("fresh-1", "talks", {"words": "new"})
    expect(page.locator("[data-new], #run-fresh-1").locator("visible=true").first).to_be_visible()
    assert bar.input_value() == "workflow:bu"
    assert page.evaluate("document.activeElement.name") == "q"


def press(page: Page, key: str) -> None:
    """Press a key on a page whose scripts are there. A person takes longer than that to find the key."""
    page.wait_for_load_state("domcontentloaded")
    page.keyboard.press(key)


def test_keys_lead_everywhere(window: Window) -> None:
    """To pages, through rows, to the palette, to a run and back, without a pointer."""
    page = window.open("/")
    press(page, "g")
    press(page, "r")
    expect(page).to_have_url(re.compile(r"/runs$"))
    press(page, "j")
    press(page, "Enter")
    expect(page).to_have_url(re.compile(r"/runs/.+"))
    for key, view in (("s", "steps"), ("d", "data"), ("i", "journal"), ("t", "timeline")):
        press(page, key)
        expect(page).to_have_url(re.compile(f"view={view}"))
    press(page, "?")
    expect(page.get_by_role("dialog")).to_contain_text("find or do")
    press(page, "Escape")
    press(page, "Control+k")
    page.keyboard.type("order-1001")
    found = page.locator("#found a", has_text="order-1001")
    expect(found).to_be_visible()
    press(page, "Enter")
    expect(page).to_have_url(re.compile(r"/runs/order-1001$"))


def test_the_window_of_a_timeline_is_dragged_and_stands_in_the_address(window: Window) -> None:
    """Dragging along the axis chooses a part, dragging a row moves it and opens nothing, and whoever gets the address sees the same.
    The tab key leads to the rows."""
    page = window.open("/runs/mall-prod")
    inner = page.locator("#timeline .tl-axis svg.z")
    box = page.locator("#timeline .tl-axis .tl-track").bounding_box()
    assert box is not None

    def drag(y: float, *shares: float) -> None:
        first, *rest = (box["x"] + box["width"] * share for share in shares)
        page.mouse.move(first, y)
        page.mouse.down()
        for x in rest:
            page.mouse.move(x, y, steps=5)
        page.mouse.up()

    drag(box["y"] + 8, 0.25, 0.75)
    expect(inner).to_have_attribute("width", re.compile(r"^(199|200)"))
    row = page.locator("#timeline .tl-row[data-href]").first.bounding_box()
    assert row is not None
    drag(row["y"] + 10, 0.5, 0.4)
    expect(page).to_have_url(re.compile(r"mall-prod#window=0\.(29|30)\d*-0\.(79|80)\d*$"))
    page.reload()
    expect(inner).to_have_attribute("width", re.compile(r"^(199|200|201)"))
    press(page, "0")
    expect(page).to_have_url(re.compile("mall-prod$"))
    page.locator("#timeline .tl-row[tabindex='0']").focus()
    press(page, "ArrowDown")
    press(page, "Enter")
    expect(page).to_have_url(re.compile("step="))


def test_a_dialog_that_follows_another_keeps_what_it_shows(window: Window) -> None:
    """A browser says a moment later that the first one was closed. Then the second one is open."""
    page = window.open("/runs")
    press(page, "?")
    expect(page.get_by_role("dialog")).to_contain_text("find or do")
    page.evaluate("document.getElementById('dialog').close(); document.querySelector('[data-find]').click()")
    page.evaluate("new Promise((done) => setTimeout(done, 100))")
    expect(page.get_by_role("dialog").get_by_label("Find or do")).to_be_visible(timeout=5_000)


def test_a_run_starts_from_a_form_and_is_forked(window: Window, site: Site) -> None:
    """The form comes from the workflow's type. The fork's form has the input of the run."""
    page = window.open("/start")
    page.get_by_label("Workflow").select_option(
        label=next(one for one in _names(site) if one.endswith(".talks"))
    )
    page.get_by_role("button", name="Choose").click()
    page.get_by_label("words").fill("from a form")
    page.get_by_label("Id").fill("by-form")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".head .pill")).to_have_text("succeeded")
    page.get_by_role("link", name="Fork…").click()
    area = page.get_by_role("dialog").locator("textarea[name=input]")
    assert "from a form" in area.input_value()
    area.fill('{"words": "changed"}')
    page.get_by_role("button", name="Start the fork").click()
    expect(page.get_by_text("Forked from", exact=True)).to_be_visible()
    expect(page.locator(".head .pill")).to_have_text("succeeded")
    page.keyboard.press("d")
    expect(page.locator(".view")).to_contain_text("changed")


def test_a_form_follows_nested_types_and_says_what_is_wrong_where_it_is(window: Window, site: Site) -> None:
    """Objects are groups, and of a union only what was chosen is asked for. What is no JSON is said while it is typed, and what
    the type refuses stands at its field. Nothing that was typed is lost."""
    page = window.open("/start?workflow=tests.pages.application.deliver")
    to, pay = page.get_by_role("group", name=re.compile("^to")), page.get_by_role("group", name="pay")
    to.get_by_label("street").fill("Quay 1")
    to.get_by_label("code").fill("12")
    lines = page.get_by_label("lines")
    assert lines.get_attribute("placeholder") == '[{"sku": ""}]'
    lines.fill('[{"sku": "lamp", "count": 2}')
    expect(lines).to_have_attribute("aria-invalid", "true")
    lines.fill('[{"sku": "lamp", "count": 2}]')
    expect(lines).not_to_have_attribute("aria-invalid", "true")
    expect(pay.get_by_label("iban")).to_be_hidden()
    pay.get_by_label("type").select_option("Transfer")
    expect(pay.get_by_label("number")).to_be_hidden()
    pay.get_by_label("iban").fill("NO93")
    page.get_by_label("on", exact=True).fill("2026-12-24")
    page.get_by_label("remarks").fill("ring twice\nmind the dog")
    page.get_by_label("Id").fill("parcel-1")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was started")
    expect(to.locator(".err")).to_contain_text("regex")
    expect(to.get_by_label("code")).to_be_focused()
    assert audited(page) == []
    window.said.clear()  # the browser itself logs that a request was refused
    to.get_by_label("code").fill("1234")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.locator(".head .pill")).to_have_text("succeeded")
    assert site.filler.ask("GET", "/v1/runs/parcel-1")["input"]["parcel"] == {
        "to": {"street": "Quay 1", "code": "1234"},
        "lines": [{"sku": "lamp", "count": 2}],
        "pay": {"type": "Transfer", "iban": "NO93", "days": 3},
        "on": "2026-12-24",
        "speed": "slow",
        "bill_to": None,
        "remarks": ["ring twice", "mind the dog"],
    }


def _names(site: Site) -> list[str]:
    return [str(one["name"]) for one in site.filler.ask("GET", "/v1/workflows")["items"]]


def test_a_list_gets_a_name(window: Window, browser: Browser) -> None:
    """The server keeps the view, so another browser has it, too. It leads back to the list, and can be removed. Its name is
    shown as text."""
    page = window.open("/runs?state=failed")
    page.get_by_text("Save this view").click()
    page.get_by_label("Name of the view").fill(HOSTILE[:40])
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page).to_have_url(re.compile(r"/runs\?state=failed$"))
    elsewhere = browser.new_context()
    other = elsewhere.new_page()
    other.goto(f"{window.url}/runs")
    own = other.get_by_role("navigation", name="Views").get_by_role("link", name=HOSTILE[:40])
    own.click()
    expect(other).to_have_url(re.compile(r"/runs\?state=failed$"))
    expect(own).to_have_attribute("aria-current", "true")
    other.get_by_role("button", name="Remove the view").click()
    expect(own).to_have_count(0)
    elsewhere.close()


def test_a_hook_is_made_rotated_and_removed_by_forms(window: Window, site: Site) -> None:
    """Its secret is shown once, stays until one has it, and stands in no page afterwards."""
    page = window.open("/events")
    dialog, rows = page.get_by_role("dialog"), page.get_by_role("row", name=re.compile("^shop-hook"))
    page.get_by_role("link", name="Make a hook…").click()
    expect(dialog).to_contain_text("holdfast hooks create NAME")
    dialog.get_by_label("Name").fill("Shop Hook")
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("it needs 1 to 50 small letters")
    window.said.clear()  # the browser itself logs that a request was refused
    dialog.get_by_label("Name").fill("shop-hook")
    dialog.get_by_label("Signed as").select_option("github")
    dialog.get_by_role("button", name="Make it").click()
    expect(dialog).to_contain_text("/v1/in/shop-hook")
    first = dialog.locator("[data-copy]").inner_text()
    assert len(first) > 20
    assert page.locator("nav.rail").count() == 1
    assert audited(page) == []
    press(page, "Escape")
    site.filler.emit(950, "heard.by-nobody", "shop", "meanwhile", {})
    page.evaluate("dispatchEvent(new Event('close'))")
    expect(dialog).to_contain_text(first)
    page.get_by_role("link", name="I have it").click()
    expect(rows).to_have_count(1)
    assert first not in page.content()
    rows.get_by_role("link", name="Rotate…").click()
    dialog.get_by_role("button", name="Rotate", exact=True).click()
    expect(dialog.locator("[data-copy]")).to_be_visible()
    assert dialog.locator("[data-copy]").inner_text() != first
    page.get_by_role("link", name="I have it").click()
    expect(rows).to_contain_text("two secrets are good")
    rows.get_by_role("link", name="Remove…").click()
    dialog.get_by_label("Type shop-hook").fill("shop-hook")
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_role("heading", name="Hooks")).to_be_visible()
    expect(rows).to_have_count(0)


def test_a_backfill_is_shown_before_it_begins(window: Window, site: Site) -> None:
    """How many runs would start, and the first of them. What is typed afterwards is shown anew before anything begins."""
    site.filler.schedule("filled", "0 3 * * *", "UTC")
    page = window.open("/schedules/filled")
    page.get_by_role("link", name="Backfill…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From").fill("2026-01-01")
    dialog.get_by_label("To", exact=True).fill("2026-01-05")
    dialog.get_by_label("Why").fill("they were lost")
    dialog.get_by_role("button", name="Show what it would do").click()
    expect(dialog.locator(".change")).to_contain_text("filled@2026-01-01T03:00Z")
    dialog.get_by_label("To", exact=True).fill("2026-01-03")
    dialog.get_by_role("button", name="Start 4 runs").click()
    assert audited(page) == []
    dialog.get_by_role("button", name="Start 2 runs").click()
    expect(page.get_by_role("heading", name="Backfills")).to_be_visible()
    (begun,) = site.filler.ask("GET", "/v1/schedules/filled/backfills")["items"]
    assert (begun["note"], begun["to_at"]) == ("they were lost", "2026-01-03T00:00:00Z")


def test_an_operator_sets_a_limit_and_a_weight(window: Window, site: Site) -> None:
    """The form says who has a slot and who waits. An empty number is that of the code."""
    page = window.open("/limits/bank")
    expect(page.locator(".why")).to_contain_text("2 of 2 places are in use. 3 wait")
    page.get_by_role("link", name="Set the number…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("holdfast limits set bank N")
    expect(dialog.locator(".change")).to_contain_text("wait, and begin when there is room")
    dialog.get_by_label("Number").fill("1")
    dialog.get_by_label("Why").fill(f"slowly {HOSTILE}")
    dialog.get_by_role("button", name="Set it").click()
    expect(page.locator(".note")).to_contain_text(f"set it: “slowly {HOSTILE}”")
    page.get_by_role("link", name="Set the number…").click()
    dialog.get_by_label("Number").fill("")
    dialog.get_by_role("button", name="Set it").click()
    expect(page.locator(".why")).to_contain_text("2 of 2 places")
    assert site.filler.ask("GET", "/v1/limits/bank")["limit"]["is_set"] is False
    window.open("/limits")
    page.get_by_role("row", name="globex").get_by_role("link", name="Set…").last.click()
    dialog.get_by_label("Weight").fill("5")
    dialog.get_by_role("button", name="Set it").click()
    expect(page.get_by_role("img", name="weight 5")).to_be_visible()


def test_an_operator_starts_and_drops_an_occasion(window: Window, site: Site) -> None:
    """The page says what came and what is missing, the form what the run will get and lack, and then what became of it."""
    for n, day in ((901, "by-hand"), (902, "not-wanted")):
        site.filler.emit(n, "fx.published", "bank", day, {"eur": 1})
    page = window.open("/triggers")
    row = page.get_by_role("listitem").filter(has_text="evening@when:by-hand")
    expect(row).to_contain_text(re.compile(r"fx came [\d:]+, files \(0 of 2\) is missing, until [\d:]+\."))
    row.get_by_role("link", name="Start now…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("holdfast triggers start evening@when:by-hand")
    expect(dialog.locator(".change")).to_contain_text("missing, and the run begins without: files (0 of 2)")
    dialog.get_by_label("Why").fill("there are none today")
    dialog.get_by_role("button", name="Start it now").click()
    expect(page.locator(".head .pill")).to_have_text("started")
    expect(page.locator(".why")).to_contain_text("without files (0 of 2), by")
    page.locator(".why").get_by_role("link", name="evening@when:by-hand").click()
    expect(page.locator(".head .pill")).to_have_text("succeeded")
    window.open("/occasions/evening@when:not-wanted")
    page.get_by_role("link", name="Drop…").click()
    page.get_by_role("dialog").get_by_role("button", name="Drop it").click()
    expect(page.locator(".why")).to_contain_text("It started nothing: dropped by")
    window.open("/occasions/report@when:2026-11-18")
    page.get_by_role("link", name="Start now…").click()
    page.get_by_role("dialog").get_by_role("button", name="Start it now").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("cannot begin without it")
    window.said.clear()  # the browser itself logs that a request was refused


def until_asleep(site: Site, prefix: str, number: int) -> None:
    """Until nothing of these runs changes any more: an act leaves alone what has changed since its plan."""
    asked = f"/v1/runs?prefix={prefix}&is=waiting-for-timer"
    site.filler.until(lambda: len(site.filler.ask("GET", asked)["items"]) == number)


def test_many_runs_are_acted_on_by_a_plan(window: Window, site: Site) -> None:
    """The list's filter becomes a plan that says what would happen; carried out, the page says what became of each."""
    for n in range(3):
        site.filler.start(f"bulk-{n}", "sleeps", {"hours": 5})
    until_asleep(site, "bulk-", 3)
    page = window.open("/runs?prefix=bulk-")
    page.get_by_role("link", name="Act on all of these…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("What").select_option("hold")
    assert dialog.get_by_label("Ids that begin with").input_value() == "bulk-"
    dialog.get_by_role("button", name="Show what would happen").click()
    expect(page.get_by_role("heading", name="Hold 3 runs", exact=True)).to_be_visible(timeout=60_000)
    page.get_by_role("link", name="Hold 3 runs…").click()
    expect(page.get_by_role("dialog")).to_contain_text("survives a closed tab")
    page.get_by_role("dialog").get_by_role("button", name="Carry it out").click()
    expect(page.locator(".head .pill")).to_have_text("done")
    expect(page.locator("tbody tr", has_text="done")).to_have_count(3)


def test_selected_runs_are_acted_on_by_a_plan_of_exactly_these(window: Window, site: Site) -> None:
    """By keys and by pointer. What is selected stays while rows change, and the plan says what would happen to these runs and to
    no other one. A name in every script is no obstacle."""
    names = ["picked-1", "picked-2", "picked/3 ü ☃", "picked-4"]
    refs = {name: site.filler.start(name, "sleeps", {"hours": 5}) for name in names}
    until_asleep(site, "picked", 4)
    page = window.open("/runs?prefix=picked")
    expect(page.locator("#pulse")).to_contain_text("Live")
    bar = page.locator(".bulk")
    expect(bar).to_be_hidden()
    press(page, "j")
    press(page, "x")
    press(page, "j")
    press(page, "j")
    press(page, "Shift+X")
    expect(bar).to_contain_text("3 selected")
    site.filler.ask("POST", f"/v1/runs/{refs['picked-4']}/hold", {})
    expect(page.locator(f"#run-{refs['picked-4']} .st")).to_have_text("held")
    expect(bar).to_contain_text("3 selected")
    press(page, "Escape")
    expect(bar).to_be_hidden()
    press(page, "Control+a")
    expect(bar).to_contain_text("4 selected")
    page.get_by_label("Select picked-1", exact=True).click()
    expect(bar).to_contain_text("3 selected")
    expect(page.get_by_label("Select all runs of this page")).to_have_js_property("indeterminate", True)
    expect(page).to_have_url(re.compile("prefix=picked"))
    assert audited(page) == []
    bar.get_by_label("Why").fill(f"counting {HOSTILE}")
    bar.get_by_role("button", name="Hold…").click()
    expect(page.get_by_role("heading", name="Hold 2 runs", exact=True)).to_be_visible()
    expect(page.locator(".change")).to_contain_text("left alone: held already")
    expect(page.locator(".facts")).to_contain_text(f"counting {HOSTILE}")
    page.get_by_role("link", name="Hold 2 runs…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".change")).to_contain_text("no other begins")
    dialog.get_by_role("button", name="Carry it out").click()
    expect(page.locator(".head .pill")).to_have_text("done")
    states = {name: site.filler.ask("GET", f"/v1/runs/{ref}")["state"] for name, ref in refs.items()}
    assert states == dict.fromkeys(names, "held") | {"picked-1": "running"}


def test_keys_go_on_where_they_were_when_the_list_has_changed(window: Window, site: Site) -> None:
    """A row that was fetched anew keeps the focus, so the next key goes to the next row and not to the first."""
    for n in range(3):
        site.filler.start(f"kept-{n}", "sleeps", {"hours": 5})
    page = window.open("/runs?prefix=kept-")
    expect(page.locator("#pulse")).to_contain_text("Live")
    for key in ("j", "j"):
        press(page, key)
    site.filler.ask("POST", "/v1/runs/kept-1/hold", {})
    expect(page.locator("#run-kept-1 .st")).to_have_text("held")
    expect(page.locator("#run-kept-1")).to_be_focused()
    press(page, "j")
    expect(page.locator("#run-kept-0")).to_be_focused()


def test_single_keys_can_be_switched_off(window: Window) -> None:
    """Who dictates, or hits keys by accident, is not led elsewhere. The list of keys still opens, and has the switch."""
    page = window.open("/runs")
    press(page, "?")
    page.get_by_role("dialog").get_by_label("Single keys do nothing").check()
    press(page, "Escape")
    for key in ("g", "o", "j", "x"):
        press(page, key)
    expect(page).to_have_url(re.compile(r"/runs$"))
    assert page.evaluate("document.activeElement.matches('tr')") is False
    expect(page.locator(".bulk")).to_be_hidden()
    press(page, "?")
    page.get_by_role("dialog").get_by_label("Single keys do nothing").uncheck()
    press(page, "Escape")
    press(page, "g")
    press(page, "o")
    expect(page).to_have_url(re.compile(r"/$"))


def test_a_refusal_is_said_in_the_dialog_and_nothing_typed_is_lost(window: Window) -> None:
    """A deed that does not fit keeps its form open."""
    page = window.open("/runs/trip-8841")
    page.get_by_role("link", name="Fork…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("From").fill("no-such-step")
    dialog.get_by_role("button", name="Start the fork").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has no step 'no-such-step'")
    assert dialog.get_by_label("From").input_value() == "no-such-step"
    window.said.clear()  # the browser itself logs that a request was refused


@pytest.mark.parametrize("width", [390, 320])
def test_no_page_scrolls_sideways_on_a_phone(window: Window, site: Site, width: int) -> None:
    """Lists instead of tables, and long words break."""
    page = window.page
    page.set_viewport_size({"width": width, "height": 844})
    wide = {}
    for place in places(site):
        window.open(place)
        found = page.evaluate("document.documentElement.scrollWidth")
        if found > width:
            wide[place] = found
    assert wide == {}


def test_a_list_of_runs_has_what_matters_at_every_width(window: Window, site: Site) -> None:
    """Which run, its state, what it waits for, and since when or what it is: nothing of these is left out for want of room."""
    needed = {
        1440: {
            "State",
            "Run",
            "Workflow",
            "What it waits for, or what became of it",
            "Progress",
            "Started",
            "Took, and usual",
        },
        1024: {"State", "Run", "What it waits for, or what became of it", "Started", "Took, and usual"},
    }
    page = window.page
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 844})
        window.open("/runs?prefix=trip-8841")
        row = page.locator("#run-trip-8841")
        for part in (
            row.get_by_role("link", name="trip-8841"),
            row.locator(".st"),
            row.get_by_text("approved"),
        ):
            expect(part).to_be_visible()
        if width in needed:
            heads = [
                one.inner_text().strip(" ↓") for one in page.locator(".runs th").all() if one.is_visible()
            ]
            assert {one for one in heads if one} == needed[width]
        assert row.get_by_role("checkbox").is_visible() is (width > 500)


def test_a_server_that_goes_away_is_said_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    """The page keeps what it shows, says since when, lets nothing be changed, and comes back by itself. What somebody was typing
    is still there, and can be sent to the new server."""
    store = f"sqlite:///{tmp_path}/away.db"
    first = Process(tmp_path, store, "up", APPLICATION)
    port = first.url.rpartition(":")[2]
    Filler(first.url).start("tent", "sleeps", {"hours": 1})
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(first.url + "/runs/tent")
    expect(page.locator("#pulse")).to_contain_text("Live", timeout=60_000)
    typing, listed = context.new_page(), context.new_page()
    typing.goto(first.url + "/runs/tent")
    typing.get_by_role("link", name="Hold", exact=True).click()
    dialog = typing.get_by_role("dialog")
    dialog.get_by_label("Why").fill("counting the tents")
    listed.goto(first.url + "/runs?state=held")
    listed.get_by_text("Save this view").click()
    listed.get_by_label("Name of the view").fill("Held ones")
    first.close()
    expect(page.locator("#away")).to_contain_text("The server cannot be reached", timeout=60_000)
    expect(page.get_by_role("heading", name="tent")).to_be_visible()
    again = subprocess.Popen(
        [HOLDFAST, "up", APPLICATION, "--port", port, "--json"],
        cwd=tmp_path,
        env={**os.environ, "HOLDFAST_STORE": store},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        expect(page.locator("#away")).to_be_empty(timeout=60_000)
        expect(page.locator("#pulse")).to_contain_text("Live", timeout=60_000)
        expect(listed.locator("#away")).to_be_empty()
        listed.get_by_role("button", name="Save", exact=True).click()
        expect(listed.get_by_role("link", name="Held ones")).to_be_visible()
        dialog.get_by_role("button", name="Hold 1 run").click()
        expect(dialog.get_by_role("alert")).to_contain_text("nothing was done")
        dialog.get_by_role("button", name="Hold 1 run").click()
        expect(page.locator(".head .pill")).to_have_text("held")
        expect(page.locator("#why")).to_contain_text("counting the tents")
    finally:
        os.killpg(again.pid, signal.SIGKILL)
        again.wait()
        context.close()


SPANS = (
    0.0,
    0.0004,
    0.34,
    0.9994,
    0.9996,
    1.0,
    1.24,
    9.94,
    9.96,
    10.4,
    65.0,
    119.4,
    120.0,
    3_600.0,
    7_200.0,
    2e5,
)


def test_scripts_and_server_write_durations_alike(window: Window) -> None:
    """What ticks in the browser is written as the server wrote it, so nothing jumps when a page comes in."""
    page = window.open("/runs")
    found = page.evaluate(
        "async ([url, all]) => { const { ago, span } = await import(url); return all.map((one) => [span(one), ago(one)]); }",
        [ASSETS["words.js"].url, SPANS],
    )
    assert found == [[words.span(one), words.ago(one)] for one in SPANS]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_of_every_page_are_there_to_be_looked_at(window: Window, site: Site, theme: str) -> None:
    """In work/pages, which no commit has: every page at three widths."""
    page = window.page
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900 if width > 500 else 844})
        for place in places(site):
            window.open(place)
            pictured(page, place, f"{width}-{theme}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_without_anything_are_sound_and_have_pictures(
    browser: Browser, tmp_path: Path, theme: str
) -> None:
    """What a person sees first: a store in which nothing has happened yet. axe finds nothing, and the console is silent."""
    process = Process(tmp_path, f"sqlite:///{tmp_path}/empty.db", "server")
    context = browser.new_context(color_scheme=theme)  # type: ignore[arg-type]
    window, found = Window(context, process.url), {}
    try:
        for width in (1440, 390):
            window.page.set_viewport_size({"width": width, "height": 900})
            for place in EMPTY:
                window.open(place)
                pictured(window.page, place, f"empty-{width}-{theme}")
                if violations := audited(window.page):
                    found[place] = violations
    finally:
        context.close()
        process.close()
    assert found == {}
    assert window.said == []


def test_the_picture_that_the_docs_show(window: Window) -> None:
    """A run that failed and undid itself. `make picture` puts it into docs."""
    page = window.page
    page.set_viewport_size({"width": 1280, "height": 1080})
    window.open("/runs/mall-prod")
    expect(page.locator("#timeline")).to_be_visible()
    folder = PICTURES.parents[1] / "docs" if os.environ.get("HOLDFAST_PICTURES") else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / "dashboard.png")
