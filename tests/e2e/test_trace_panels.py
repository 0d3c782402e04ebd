"""The panels of the trace page over a home in which much has happened, read as its owner and as an auditor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.panels import load_panels, open_boundary
from bubbot.home import Home
from bubbot.panel import PanelQuery
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.boundary import OWNER, TapeBoundary, Viewer
from bubbot.texts import Texts
from tests.isolation.oracle import canaries
from tests.isolation.world import SETTINGS
from tests.trace.home import AUDITED, OTHER, OWNER_CHAT, lived, tape_of, words_about, words_of_tapes

AUDITOR = Viewer("anna", frozenset({AUDITED.session}))
PANELS = {(each.panel.scope, each.panel.name): each for each in load_panels(SETTINGS)}
JUNK = ("x", "-1", "0", "9" * 40, "9" * 18, "١", "1; DROP TABLE tapes")


@dataclass
class Looking:
    """Somebody who looks at the panels of a home."""

    home: Path
    store: SqliteStore
    viewer: Viewer

    @property
    def boundary(self) -> TapeBoundary:
        """What they may see."""
        return open_boundary(self.store, self.viewer, str(self.home.resolve()), tuple(PANELS.values()))

    async def read(self, name: str, session: str = "", cursor: str = "", **params: str) -> Any:
        """Read what a panel of a session, or of the deployment, shows."""
        scope = "session" if session else "deployment"
        tape = tape_of(self.home, session) if session else ""
        query = PanelQuery(session, tape, cursor, 3, params)
        now = datetime.now(UTC) + timedelta(hours=1)
        return await PANELS[scope, name].read(self.boundary, query, zone=UTC, now=now, texts=Texts())  # type: ignore[index]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "home"
    assert lived(path).leaks == []
    return path


@asynccontextmanager
async def looking(home: Path, viewer: Viewer = OWNER) -> AsyncIterator[Looking]:
    store = await open_readonly(Home(home).database)
    try:
        yield Looking(home, store, viewer)
    finally:
        await store.aclose()


async def test_memory_shows_what_a_version_changed(home: Path) -> None:
    async with looking(home) as owner:
        page = await owner.read("memory", AUDITED.session)
        assert "Likes" in page.change.before
        assert "Loves" in page.change.after
        assert len(page.versions) == 3  # the first one is empty
        first = (await owner.read("memory", AUDITED.session, version=str(page.versions[1][0].id))).change
        assert (first.before, "Likes" in first.after) == ("", True)


async def test_memory_of_people_and_of_the_workspace_is_the_owners(home: Path) -> None:
    async with looking(home) as owner:
        zones = (await owner.read("shared-memory")).zones
        assert len(zones) == 4  # three people and the workspace
        for zone in zones:
            change = (await owner.read("shared-memory", zone=zone.tape)).chosen.change
            assert change.after != change.before
            assert "Long-term memory" in change.after
    async with looking(home, AUDITOR) as auditor:
        assert canaries(await auditor.read("shared-memory", zone=zones[0].tape)) == set()


async def test_schedules_show_jobs_firings_turns_and_deliveries(home: Path) -> None:
    async with looking(home) as owner:
        jobs = (await owner.read("schedule")).jobs
        assert len(jobs) == 3
        assert all(job.does.startswith("says 'zq") for job in jobs)
        (job,) = (await owner.read("schedule", AUDITED.session)).jobs
        history = (await owner.read("schedule", AUDITED.session, job=job.id)).chosen
        facts = {fact.name: fact for fact in history.facts}
        assert {"ran", "fired", "asked"} <= facts.keys()
        assert history.session == AUDITED.session
        assert facts["ran"].turn
        assert facts["ran"].delivery == "delivered"


async def test_deliveries_have_receipts_and_pages(home: Path) -> None:
    async with looking(home) as owner:
        seen, cursor = [], ""
        while True:
            page = await owner.read("deliveries", AUDITED.session, cursor)
            seen += [(part.message, part.place) for part in page.parts]
            assert all(part.state == "delivered" and part.answer_entry for part in page.parts)
            if not (cursor := page.more):
                break
        assert len(seen) == len(set(seen)) > 3


async def test_effects_and_approvals_show_what_was_asked(home: Path) -> None:
    async with looking(home) as owner:
        assert "approval.asked" in {fact.name for fact in (await owner.read("effects", AUDITED.session)).facts}
        page = await owner.read("approvals")
        assert (len(page.cards), len(page.answers)) == (3, 3)


async def test_a_tape_without_a_session_shows_nothing_of_the_others(home: Path) -> None:
    """Such is what an erasure leaves, and a tape of the system."""
    async with looking(home) as owner:
        for name in ("usage", "schedule"):
            page: Any = await PANELS["session", name].read(
                owner.boundary, PanelQuery("", "some tape"), zone=UTC, now=datetime.now(UTC), texts=Texts()
            )
            assert (page.tables if name == "usage" else page.jobs) == ()
            assert canaries(page) == set()


async def test_usage_is_drawn_and_counted(home: Path) -> None:
    async with looking(home) as owner:
        page = await owner.read("usage", period="all")
        tables = {table.by: table for table in page.tables}
        assert {AUDITED.session, OTHER.session} <= {name for name, *_ in tables["chat"].rows}
        labels = [[row.label[0] for row in panel.rows] for panel in page.drawing.panels]
        assert {"Person 5 on tg", "Person 7 on tg"} <= {*labels[1]}
        assert {"Person 5", "Person 7"} <= {*labels[2]}


async def test_anchors_are_a_graph_whose_nodes_lead_to_entries(home: Path) -> None:
    async with looking(home) as owner:
        drawing = await owner.read("anchors", AUDITED.session)
        assert any(node.label.startswith("topic/rome") for node in drawing.nodes)
        assert all(edge.source in drawing.nodes and edge.target in drawing.nodes for edge in drawing.edges)
        assert all(node.tape and node.entry for node in drawing.nodes)


async def test_search_finds_in_all_tapes_some_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.features.search.panels.TAPES_PER_PAGE", 3)
    async with looking(home) as owner:
        chats, cursor = set(), ""
        while True:
            page = await owner.read("search", cursor=cursor, words="About kw1")
            chats |= {found.session for found in page.found}
            if not (cursor := page.more):
                break
        assert {OWNER_CHAT.session, AUDITED.session, OTHER.session} <= chats
    async with looking(home, AUDITOR) as auditor:
        page = await auditor.read("search", words="About kw1")
        assert {found.session for found in page.found} == {AUDITED.session}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("cursor", JUNK)
async def test_a_cursor_that_is_none_is_no_error(home: Path, cursor: str) -> None:
    async with looking(home) as owner:
        for scope, name in PANELS:
            session = AUDITED.session if scope == "session" else ""
            assert await owner.read(name, session, cursor, words="tea", job=cursor, version=cursor, zone=cursor)


async def test_an_auditor_reads_in_no_panel_what_was_not_granted(home: Path) -> None:
    words = await words_of_tapes(home)
    granted = await words_about(home, AUDITED.session)
    foreign = set().union(*words.values()) - granted
    assert len(foreign) > 5
    async with looking(home, AUDITOR) as auditor:
        seen = set()
        for scope, name in PANELS:
            for params in ({}, {"words": "zq"}, {"period": "all"}):
                seen |= canaries(await auditor.read(name, AUDITED.session if scope == "session" else "", **params))
    assert seen & granted
    assert not seen & foreign
