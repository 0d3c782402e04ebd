"""The trace page in a real browser: a journey through it, words that try to be more, and what keeps people out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.trace.browser import DESKTOP, PHONE, browser, find_faults, tab
from tests.trace.home import AUDITED, HOSTILE, OTHER, add_hostile, add_turn, apart, find_hostile, lived, tape_of
from tests.trace.serving import TraceSite, served

__all__ = ["browser"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceSite]:
    """A home with much in it, the chat of person 5 full of hostile words."""
    home = tmp_path_factory.mktemp("trace") / "home"
    assert lived(home).leaks == []
    apart(add_hostile(home, AUDITED.session))
    with served(home) as made:
        yield made


def test_a_person_finds_a_turn_scrubs_compares_and_takes_it_along(
    browser: Browser, site: TraceSite, tmp_path: Path
) -> None:
    with tab(browser, site.address, viewport=DESKTOP) as (page, watch):
        page.goto(site.link())
        assert "token" not in page.url
        expect(page.get_by_role("heading", level=1)).to_be_visible()

        page.get_by_role("link", name="Search").click()
        page.get_by_role("searchbox").fill("chat_read")
        page.keyboard.press("Enter")
        page.get_by_role("row").filter(has_text="tool_call").get_by_role("link").nth(1).click()
        expect(page.get_by_text("chat_read").first).to_be_visible()

        page.get_by_role("link", name="Turns", exact=True).click()
        page.get_by_role("listitem").filter(has_text="Loves").get_by_role("link").first.click()
        page.get_by_role("heading", name="Step 1").get_by_role("link").click()
        first = page.url
        page.get_by_role("slider").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("heading", name=re.compile("Step 2"))).to_be_visible()
        expect(page.get_by_role("slider")).to_be_focused()
        assert page.url != first
        expect(page.locator("#step ins, #step .added").first).to_be_visible()  # the memory in the prompt has changed

        page.get_by_role("link", name="Timeline", exact=True).click()
        expect(page.get_by_text(HOSTILE[0], exact=True).first).to_be_visible()
        page.get_by_role("link", name="Anchors", exact=True).click()
        expect(page.get_by_text(f"topic/{HOSTILE[0]}").first).to_be_visible()

        page.get_by_role("link", name="Export").click()
        page.get_by_label("First entry").fill("1")
        page.get_by_label("Last entry").fill("120")
        with page.expect_download() as download:
            page.get_by_role("button", name="Store the file").click()
        file = tmp_path / "slice.html"
        download.value.save_as(file)
        assert watch.problems == []

    with tab(browser, file.as_uri(), offline=True) as (page, watch):
        page.goto(file.as_uri())
        expect(page.locator("body")).to_contain_text("Please do this.")
        assert page.locator("script, iframe, link[rel=stylesheet], object").count() == 0
        assert find_faults(page) == []
        assert watch.problems == []


@pytest.mark.proof
def test_a_person_logs_in_with_a_typed_token_and_out_again(browser: Browser, site: TraceSite) -> None:
    with tab(browser, site.address, viewport=PHONE) as (page, _):
        page.goto(f"{site.address}/panel/usage?p.period=week")
        for token in ("no token", site.token()):
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Enter").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Usage")
        assert page.url == f"{site.address}/panel/usage?p.period=week"
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_label("Token")).to_be_visible()


MODES: Mapping[str, Mapping[str, Any]] = {
    "light": {"viewport": DESKTOP, "color_scheme": "light"},
    "dark": {"viewport": DESKTOP, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light", "has_touch": True, "is_mobile": True},
}
PANELS = ("anchors", "search?p.words=kw1", "memory", "schedule", "deliveries", "effects", "usage?p.period=all")
SITE_PANELS = ("search?p.words=kw1", "shared-memory", "schedule", "approvals", "usage?p.period=all")


def list_pages(site: TraceSite) -> list[str]:
    """Every kind of page, and every page of the hostile tape that shows other words."""
    tape = f"/session/{tape_of(site.home, AUDITED.session)}"
    hostile = apart(find_hostile(site.home, AUDITED.session))
    return [
        "/", "/?kind=system", "/?kind=archives", "/missing", *(f"/panel/{name}" for name in SITE_PANELS),
        tape, f"{tape}?from=1", f"{tape}/turns", f"{tape}/turn/32", f"{tape}/step/25", f"{tape}/step/32", f"{tape}/step/32/system",
        f"{tape}/entry/24", f"{tape}/export", *(f"{tape}/panel/{name}" for name in PANELS),
        f"{tape}/panel/search?p.words=%3Cscript%3Ealert(1)%3C/script%3E", *(f"{tape}/entry/{number}" for number in hostile),
    ]  # fmt: skip


MEASURE = """() => {
  const last = document.querySelector(".tabs") ?? document.querySelector("header");
  const cut = [...document.querySelectorAll("table.rows, table.rows td")].find((each) => each.getBoundingClientRect().right > innerWidth);
  return [last.getBoundingClientRect().bottom / innerHeight, cut?.textContent ?? ""];
}"""
"""The part of the first screen that the links above a page take, and a table that goes beyond the screen."""


@pytest.mark.proof
@pytest.mark.parametrize("mode", MODES)
def test_no_page_keeps_people_out_and_no_word_acts(browser: Browser, site: TraceSite, mode: str) -> None:
    faults = []
    with tab(browser, site.address, **MODES[mode]) as (page, watch):
        page.goto(f"{site.address}/")
        faults += [f"login: {fault}" for fault in find_faults(page)]
        watch.problems.clear()  # the answer 401 is an error for the console
        page.goto(site.link())
        for path in list_pages(site):
            page.goto(f"{site.address}{path}")
            assert page.get_by_role("heading", level=1).count() == 1, path
            faults += [f"{path}: {fault}" for fault in find_faults(page)]
            if mode == "phone":
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                faults += [f"{path}: {wide} pixels wider than the screen"] if wide > 0 else []
                head, cut = page.evaluate(MEASURE)
                faults += [f"{path}: head and tabs take {head:.0%} of the screen"] if head > 0.25 else []
                faults += [f"{path}: a table is cut: {cut}"] if cut else []
        problems = [each for each in watch.problems if "404" not in each]
    assert faults == []
    assert problems == []


@pytest.mark.proof
def test_the_whole_page_is_reached_by_keyboard_and_without_scripts(browser: Browser, site: TraceSite) -> None:
    tape = f"{site.address}/session/{tape_of(site.home, AUDITED.session)}"
    with tab(browser, site.address, java_script_enabled=False) as (page, watch):
        page.goto(site.link())
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_class("skip")
        page.goto(f"{tape}/step/25")
        page.get_by_role("link", name=re.compile("Step after")).first.click()
        expect(page.get_by_role("heading", name=re.compile("Step 2"))).to_be_visible()
        assert watch.problems == []


@pytest.mark.proof
def test_a_turn_that_ends_comes_to_the_open_list_and_the_reader_stays_where_they_are(
    browser: Browser, site: TraceSite
) -> None:
    with tab(browser, site.address, viewport=DESKTOP) as (page, watch):
        page.goto(site.link())
        page.goto(f"{site.address}/session/{tape_of(site.home, OTHER.session)}")
        lines = page.locator("#turns > li")
        place = lines.nth(2).get_attribute("id")
        lines.nth(2).get_by_role("link").focus()
        apart(add_turn(site.home, OTHER.session, "Is it new?", "It is **new**."))
        expect(lines.first).to_contain_text("Is it new?")
        expect(lines.first.locator("strong")).to_have_text("new")
        expect(page.locator(f"#{place} a")).to_be_focused()
        assert watch.problems == []
