"""Tasks on the trace page in a real browser: the coloured graph, where it leads, and that it keeps nobody out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.test_trace_browser import MEASURE, MODES
from tests.family import MEMBER, OWNER
from tests.task_runs import run_digests
from tests.trace.browser import DESKTOP, browser, find_faults, tab
from tests.trace.home import apart, tape_of
from tests.trace.serving import TraceSite, served

__all__ = ["browser"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TraceSite, dict[str, str]]]:
    """A home with a run that has ended and one that waits; the runs by person."""
    home: Path = tmp_path_factory.mktemp("tasks") / "home"
    home.mkdir()
    made = apart(run_digests(home))
    with served(home) as site:
        yield site, made


def test_a_person_finds_a_run_and_from_its_graph_the_turn_of_a_step(
    browser: Browser, runs: tuple[TraceSite, dict[str, str]]
) -> None:
    site, made = runs
    with tab(browser, site.address, viewport=DESKTOP) as (page, watch):
        page.goto(site.link())
        page.get_by_role("link", name="Tasks").click()
        page.get_by_role("link", name=made[MEMBER], exact=True).click()
        graph = page.get_by_role("group", name="What waits for what")
        assert graph.locator("g.succeeded").count() == 4
        assert graph.locator("g.waiting text").all_text_contents() == ["Publish?", "? waiting"]
        assert graph.locator("g.queued text").all_text_contents() == ["Post it", "· queued"]
        fills = {
            kind: graph.locator(f"g.{kind} rect").first.evaluate("each => getComputedStyle(each).fill")
            for kind in ("succeeded", "queued")
        }
        assert fills["succeeded"] != fills["queued"]
        graph.get_by_role("link", name=re.compile("^Sum up")).click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Turn ")
        expect(page.get_by_role("link", name=re.compile("task:sum"))).to_be_visible()
        assert watch.problems == []


def test_a_verdict_opens_the_entry_that_it_cites(browser: Browser, runs: tuple[TraceSite, dict[str, str]]) -> None:
    site, made = runs
    with tab(browser, site.address, viewport=DESKTOP) as (page, _):
        page.goto(site.link())
        page.goto(f"{site.address}/session/{tape_of(site.home, f'tg:{OWNER}')}/panel/tasks?p.run={made[OWNER]}")
        row = page.get_by_role("row").filter(has_text="gate ok was confirmed before")
        row.get_by_role("link").first.click()
        expect(page.locator("main")).to_contain_text("task/event")
        expect(page.locator("main")).to_contain_text('"kind": "started"')


@pytest.mark.proof
@pytest.mark.parametrize("mode", MODES)
def test_no_page_of_tasks_keeps_people_out(browser: Browser, runs: tuple[TraceSite, dict[str, str]], mode: str) -> None:
    site, made = runs
    faults = []
    with tab(browser, site.address, **MODES[mode]) as (page, watch):
        page.goto(site.link())
        tape = f"/session/{tape_of(site.home, f'tg:{OWNER}')}"
        for path in (
            "/panel/tasks",
            f"/panel/tasks?p.run={made[MEMBER]}",
            f"{tape}/panel/tasks",
            f"{tape}/panel/tasks?p.run={made[OWNER]}",
        ):
            page.goto(f"{site.address}{path}")
            faults += [f"{path}: {fault}" for fault in find_faults(page)]
            if mode == "phone":
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                faults += [f"{path}: {wide} pixels wider than the screen"] if wide > 0 else []
                faults += [f"{path}: a table is cut: {cut}"] if (cut := page.evaluate(MEASURE)[1]) else []
        assert watch.problems == []
    assert faults == []
