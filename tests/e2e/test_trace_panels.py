"""The panels of the trace page over a home in which much has happened, read as its owner and as an auditor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bubbot.app.panels import load_panels, open_boundary
from bubbot.features.search import panels as search_panels
from bubbot.home import Home
from bubbot.ports.panel import Block, Chart, Difference, Graph, PanelLink, PanelQuery, Paragraph, Table, TapeLink
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.boundary import OWNER, TapeBoundary, Viewer
from bubbot.texts import Texts
from tests.privacy.oracle import canaries
from tests.privacy.world import SETTINGS
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

    async def read(self, name: str, session: str = "", cursor: str = "", **params: str) -> Sequence[Block]:
        """Read a panel of a session, or of the deployment."""
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


def of_type(blocks: Sequence[Block], kind: type) -> list[Block]:
    return [block for block in blocks if isinstance(block, kind)]


async def test_memory_shows_what_a_version_changed(home: Path) -> None:
    async with looking(home) as owner:
        blocks = await owner.read("memory", AUDITED.session)
        (newest,) = of_type(blocks, Difference)
        (table,) = of_type(blocks, Table)
        assert isinstance(newest, Difference)
        assert isinstance(table, Table)
        assert "Likes" in newest.before
        assert "Loves" in newest.after
        assert len(table.rows) == 3  # the first one is empty
        link = table.rows[1][0]
        assert isinstance(link, PanelLink)
        (first,) = of_type(await owner.read("memory", AUDITED.session, **link.params), Difference)
        assert isinstance(first, Difference)
        assert (first.before, "Likes" in first.after) == ("", True)


async def test_memory_of_people_and_of_the_workspace_is_the_owners(home: Path) -> None:
    async with looking(home) as owner:
        (table,) = await owner.read("shared-memory")
        assert isinstance(table, Table)
        assert len(table.rows) == 4  # three people and the workspace
        for row in table.rows:
            link = row[0]
            assert isinstance(link, PanelLink)
            blocks = await owner.read("shared-memory", **link.params)
            (change,) = of_type(blocks, Difference)
            assert isinstance(change, Difference)
            assert change.after != change.before
            assert "Long-term memory" in change.after
    async with looking(home, AUDITOR) as auditor:
        zone = (table.rows[0][0].params if isinstance(table.rows[0][0], PanelLink) else {})["zone"]
        assert canaries(await auditor.read("shared-memory", zone=zone)) == set()


async def test_schedules_show_jobs_firings_turns_and_deliveries(home: Path) -> None:
    async with looking(home) as owner:
        (table,) = await owner.read("schedule")
        assert isinstance(table, Table)
        assert len(table.rows) == 3
        assert all(isinstance(row[0], PanelLink) and row[0].text.startswith("says 'zq") for row in table.rows)
        (one,) = of_type(await owner.read("schedule", AUDITED.session), Table)
        assert isinstance(one, Table)
        link = one.rows[0][0]
        assert isinstance(link, PanelLink)
        history = of_type(await owner.read("schedule", AUDITED.session, **link.params), Table)[0]
        assert isinstance(history, Table)
        facts = {row[0].text: row for row in history.rows if isinstance(row[0], TapeLink)}
        assert {"ran", "fired", "asked"} <= facts.keys()
        turn = facts["ran"][4]
        assert isinstance(turn, TapeLink)
        assert turn.session == AUDITED.session
        assert turn.turn
        assert facts["ran"][5] == "delivered"


async def test_deliveries_have_receipts_and_pages(home: Path) -> None:
    async with looking(home) as owner:
        seen, cursor = [], ""
        while True:
            (table,) = await owner.read("deliveries", AUDITED.session, cursor)
            assert isinstance(table, Table)
            seen += [row[0].text for row in table.rows if isinstance(row[0], TapeLink)]
            assert all(row[4] == "delivered" and isinstance(row[5], TapeLink) for row in table.rows)
            if not (cursor := table.next_cursor):
                break
        assert len(seen) == len(set(seen)) > 3


async def test_effects_and_approvals_show_what_was_asked(home: Path) -> None:
    async with looking(home) as owner:
        (table,) = await owner.read("effects", AUDITED.session)
        assert isinstance(table, Table)
        assert "approval.asked" in {row[0].text for row in table.rows if isinstance(row[0], TapeLink)}
        cards, _grants, answers = await owner.read("approvals")
        assert isinstance(cards, Table)
        assert isinstance(answers, Table)
        assert len(cards.rows) == 3
        assert len(answers.rows) == 3


async def test_a_tape_without_a_session_shows_nothing_of_the_others(home: Path) -> None:
    """Such is what an erasure leaves, and a tape of the system."""
    async with looking(home) as owner:
        for name in ("usage", "schedule"):
            query = PanelQuery("", "some tape")
            blocks = await PANELS["session", name].read(
                owner.boundary, query, zone=UTC, now=datetime.now(UTC), texts=Texts()
            )
            assert [
                block for block in blocks if not isinstance(block, Paragraph) and getattr(block, "rows", True)
            ] == []


async def test_usage_is_drawn_and_counted(home: Path) -> None:
    async with looking(home) as owner:
        blocks = await owner.read("usage", period="all")
        charts, tables = of_type(blocks, Chart), of_type(blocks, Table)
        assert charts
        assert tables
        chats = next(table for table in tables if isinstance(table, Table) and isinstance(table.rows[0][0], TapeLink))
        assert isinstance(chats, Table)
        assert {AUDITED.session, OTHER.session} <= {row[0].text for row in chats.rows if isinstance(row[0], TapeLink)}
        labels = [[point.label for point in chart.points] for chart in charts if isinstance(chart, Chart)]
        assert {"Person 5 on tg", "Person 7 on tg"} <= {*labels[1]}
        assert {"Person 5", "Person 7"} <= {*labels[2]}


async def test_anchors_are_a_graph_whose_nodes_lead_to_entries(home: Path) -> None:
    async with looking(home) as owner:
        (graph, *_) = await owner.read("anchors", AUDITED.session)
        assert isinstance(graph, Graph)
        assert any(node.label.startswith("topic/rome") for node in graph.nodes)
        names = {node.id for node in graph.nodes}
        assert all(edge.source in names and edge.target in names for edge in graph.edges)
        assert all(isinstance(node.link, TapeLink) and node.link.entry for node in graph.nodes)


async def test_search_finds_in_all_tapes_some_at_a_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_panels, "TAPES_PER_PAGE", 3)
    async with looking(home) as owner:
        chats, cursor = set(), ""
        while True:
            table = of_type(await owner.read("search", cursor=cursor, words="About kw1"), Table)[0]
            assert isinstance(table, Table)
            chats |= {row[0].session for row in table.rows if isinstance(row[0], TapeLink)}
            if not (cursor := table.next_cursor):
                break
        assert {OWNER_CHAT.session, AUDITED.session, OTHER.session} <= chats
    async with looking(home, AUDITOR) as auditor:
        table = of_type(await auditor.read("search", words="About kw1"), Table)[0]
        assert isinstance(table, Table)
        assert {row[0].text for row in table.rows if isinstance(row[0], TapeLink)} == {AUDITED.session}


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
