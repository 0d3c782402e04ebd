"""Runs of tasks on the trace page: the list, and of one run its graph, its verdicts and what they rest on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.panels import load_panels, open_boundary
from bubbot.features.tasks import panels
from bubbot.features.tasks.panels import RunDetails, Runs
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.panel import PanelQuery
from bubbot.ports.model import ModelRequest
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.boundary import OWNER as ALL
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.texts import Texts
from tests.family import MEMBER, OWNER, family
from tests.task_runs import ANSWERS, begin_digest, run_digests, write_digest
from tests.tasks import TaskBench, tasks, write_task
from tests.trace.home import apart, tape_of

BEN = Viewer("anna", frozenset({f"tg:{MEMBER}"}))
PANELS = {(each.panel.scope, each.panel.name): each for each in load_panels(Settings())}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A home with a run that has ended and one that waits, and these runs by person."""
    path = tmp_path_factory.mktemp("tasks")
    return path, apart(run_digests(path))


def label_of(home: Path) -> str:
    """The label of its workspace in the names of tapes."""
    return str(home.resolve())


@asynccontextmanager
async def looking(home: Path, viewer: Viewer = ALL) -> AsyncIterator[TapeBoundary]:
    """Look at a home without a bot, as `bubbot trace` does."""
    store = await open_readonly(Home(home).database)
    try:
        yield open_boundary(store, viewer, label_of(home), tuple(PANELS.values()))
    finally:
        await store.aclose()


async def read(
    tapes: TapeBoundary, home: Path, chat: str = "", cursor: str = "", limit: int = 50, **params: str
) -> Runs:
    scope, session = ("session", f"tg:{chat}") if chat else ("deployment", "")
    query = PanelQuery(session, tape_of(home, session) if chat else "", cursor, limit, params)
    page: Any = await PANELS[scope, "tasks"].read(tapes, query, zone=UTC, now=datetime.now(UTC), texts=Texts())  # type: ignore[index]
    assert isinstance(page, Runs)
    return page


async def choose(tapes: TapeBoundary, home: Path, run: str, **options: Any) -> RunDetails:
    chosen = (await read(tapes, home, run=run, **options)).chosen
    assert chosen is not None
    return chosen


async def test_runs_are_listed_newest_first_of_all_chats_and_of_one(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path) as tapes:
        found = (await read(tapes, path)).runs
        assert [(each.run, each.status, each.done, each.nodes) for each in found] == [
            (runs[MEMBER], "? waiting", 4, 6),
            (runs[OWNER], "✓ done", 6, 6),
        ]
        assert [each.run for each in (await read(tapes, path, OWNER)).runs] == [runs[OWNER]]
        first = await read(tapes, path, limit=1)
        assert [each.run for each in (await read(tapes, path, cursor=first.more, limit=1)).runs] == [runs[OWNER]]


async def test_a_run_of_another_chat_is_not_chosen_on_the_page_of_a_chat(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path) as tapes:
        assert (await read(tapes, path, OWNER, run=runs[MEMBER])).chosen is None


async def test_an_auditor_sees_the_runs_of_granted_chats_alone(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path, BEN) as tapes:
        assert [each.run for each in (await read(tapes, path)).runs] == [runs[MEMBER]]
        assert (await read(tapes, path, run=runs[OWNER])).chosen is None
        details = await choose(tapes, path, runs[MEMBER])
        assert details.description == "the harvest"
        assert {fact.subject for fact in details.facts} <= {"digest", *(node.title for node in details.nodes)}
        assert len(details.facts) == 11


async def test_a_node_opens_its_turn_and_its_artifact(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path) as tapes:
        details = await choose(tapes, path, runs[OWNER])
        assert {node.state for node in details.nodes} == {"✓ done"}
        chat = tapes.open_session(f"tg:{OWNER}")
        for node in details.nodes:
            began, made = await chat.entry(node.turn), await chat.entry(node.artifact)
            assert began.payload["state"]["node"] == made.data["node"] == node.node
            assert began.meta["turn"]
            assert ("fork" in began.meta) is (node.node != "ok")  # a question has none


async def test_the_graph_has_all_nodes_and_dependencies(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path) as tapes:
        details = await choose(tapes, path, runs[MEMBER])
        assert {node.node for node in details.drawn} == {node.node for node in details.nodes}
        assert len(details.edges) == 8
        assert [each.status for each in details.legend] == ["queued", "waiting", "succeeded"]
        states = {node.node: (node.status, node.after) for node in details.nodes}
        assert states["ok"] == ("waiting", "Sum up, Check the facts")
        assert next(node for node in details.nodes if node.node == "ok").note.startswith("waits for the answer to ")


async def test_verdicts_and_refusals_cite_entries(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path) as tapes:
        details = await choose(tapes, path, runs[OWNER])
        chat = tapes.open_session(f"tg:{OWNER}")
        asked = next(rule for rule in details.rules if "confirmed" in rule.text)
        assert (asked.state, asked.place) == ("✓ kept", "scripts/rules.feature:9")
        cited = [await chat.entry(number) for number, _ in asked.cites]
        assert [(entry.data["kind"], entry.data["node"]) for entry in cited] == [("started", "post")]
        (refused,) = details.refused
        assert (refused.state, refused.place, refused.text) == ("memory.save", "search", "it is refused")
        assert (await chat.entry(refused.entry)).name == "task/refused"


async def test_what_happened_has_pages(home: tuple[Path, dict[str, str]]) -> None:
    path, runs = home
    async with looking(path) as tapes:
        seen, cursor = list[int](), ""
        while True:
            details = await choose(tapes, path, runs[OWNER], cursor=cursor, limit=4)
            seen += [fact.id for fact in details.facts]
            if not (cursor := details.more):
                break
        assert seen == sorted(set(seen), reverse=True)
        assert len(seen) == 16


async def test_a_large_graph_is_a_list(home: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    path, runs = home
    monkeypatch.setattr(panels, "MAX_DRAWN_NODES", 5)
    async with looking(path) as tapes:
        details = await choose(tapes, path, runs[OWNER])
        assert (details.drawn, details.edges, len(details.nodes)) == ((), (), 6)
        assert details.nodes[2].after == "Search the news, Read the notes"


async def test_a_run_whose_chat_was_reset_is_told_from_its_states(tmp_path: Path) -> None:
    write_digest(tmp_path)
    async with family(tmp_path, ScriptedModel(ANSWERS), agents={}) as bot:
        bench = TaskBench(bot)
        run = await begin_digest(bench, "the school board")
        await bench.say(",reset archive")
    async with looking(tmp_path) as tapes:
        details = await choose(tapes, tmp_path, run)
        assert (details.opened, details.description, details.drawn) == (0, "", ())
        assert [node.title for node in details.nodes][:2] == ["search", "notes"]


class HeldModel(ScriptedModel):
    """Answers once it may."""

    def __init__(self) -> None:
        super().__init__(ANSWERS)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        """See `Model.stream`."""
        self.asked.set()
        await self.may_answer.wait()
        async for event in super().stream(request):
            yield event


async def test_a_turn_under_way_shows_what_runs(tmp_path: Path) -> None:
    write_task(tmp_path, "digest", '[nodes.a]\nprompt = "NOTES please"\n')
    model = HeldModel()
    async with tasks(tmp_path, model) as bench:
        saying = asyncio.create_task(bench.say(",task.run digest"))
        await asyncio.wait_for(model.asked.wait(), 20)
        async with looking(tmp_path) as tapes:
            (line,) = (await read(tapes, tmp_path)).runs
            assert line.status == "▶ running"
            assert (await choose(tapes, tmp_path, line.run)).nodes[0].status == "running"
        model.may_answer.set()
        await saying
