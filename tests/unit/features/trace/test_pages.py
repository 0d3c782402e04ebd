"""The pages over turns that a bot really ran: what each shows, and what it keeps from whom."""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from urllib.parse import parse_qsl, unquote
from zoneinfo import ZoneInfo

import pytest
from jinja2 import TemplateAssertionError

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import AccessError, BubbotError, ConfigError, EntryNotFound, TapeCorrupt
from bubbot.features.search.panels import PANELS as SEARCH_PANELS
from bubbot.features.trace.pages import TracePages
from bubbot.features.trace.render import PageRenderer
from bubbot.panel import FeaturePanel, Panel, PanelQuery, PanelReader
from bubbot.ports.pages import LoginForm, PageRequest
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.anchor import anchor
from bubbot.tape.boundary import OWNER, SharedTape, TapeBoundary, Viewer
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from bubbot.texts import Texts
from tests.doubles import START
from tests.raw import tamper
from tests.turns import HOME, Options, Played, calls, running, says

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\x1b[2J"
SHARED = (SharedTape("bubbot/inbox/"),)
"""What panels show auditors in part, and the pages of tapes not at all."""
ZONE = ZoneInfo("Asia/Shanghai")


def pages_of(store: TapeStore, *panels: Panel, language: str = "en") -> TracePages:
    """The pages over a store."""

    def open_reader(viewer: Viewer) -> TapeBoundary:
        return TapeBoundary(store, viewer, workspace="home", references=OWN_REFERENCES, shared=SHARED)

    return _pages(open_reader, panels, language)


def pages_through(boundary: TapeBoundary) -> TracePages:
    """The pages through one boundary."""
    return _pages(lambda _: boundary, (), "en")


def _pages(open_reader: Callable[[Viewer], TapeBoundary], panels: Sequence[Panel], language: str) -> TracePages:
    feature_panels = [FeaturePanel("test", panel, None) for panel in panels]
    return TracePages(
        open_reader, OWN_STRATEGIES, texts=Texts(language), zone=ZONE, now=lambda: START, panels=feature_panels
    )


async def look(pages: TracePages, address: str, viewer: Viewer = OWNER) -> str:
    """What a page says."""
    path, _, query = address.partition("?")
    parts = tuple(unquote(part) for part in path.split("/") if part)
    answer = await pages.answer(PageRequest(parts, dict(parse_qsl(query.partition("#")[0])), viewer))
    return answer.body.decode()


def links(page: str) -> list[str]:
    """The addresses that a page leads to, without what is for everybody."""
    found = [html.unescape(link).partition("#")[0] for link in re.findall(r'(?:href|action)="(/[^"]*)"', page)]
    return [link for link in found if not link.startswith(("/static/", "/logout"))]


async def crawl(pages: TracePages, viewer: Viewer = OWNER, limit: int = 300) -> dict[str, str]:
    """Every page that links lead to, from the first one."""
    seen: dict[str, str] = {}
    todo = ["/"]
    while todo and len(seen) < limit:
        address = todo.pop()
        if address not in seen:
            seen[address] = await look(pages, address, viewer)
            todo += links(seen[address])
    return seen


@pytest.fixture
async def store(memory_store: InMemoryStore) -> InMemoryStore:
    """Turns with a tool, with hostile words and with a failure, and a tape of the system."""
    model = Played(
        calls("memory_save", content="likes tea", call_id="c1"),
        says(f"Saved. {EVIL}"),
        {"error": "refused"},
        says("Fine."),
    )
    async with running(memory_store, model, Options()) as bench:
        for text in (f"remember tea {EVIL}", "please", "and now?"):
            await bench.say(text)
            await bench.quiet()
    return memory_store


async def test_every_link_leads_to_a_page_and_no_words_act(store: InMemoryStore) -> None:
    seen = await crawl(pages_of(store))
    assert len(seen) > 60
    for address, page in seen.items():
        assert re.findall(r"<script[^>]*>", page) in ([], ['<script type="module" src="/static/trace.js">']), address
        assert "<img" not in page, address
        assert not re.search("[\u202e\x1b]", page), address
    assert any("⟨U+202E⟩" in page for page in seen.values())


async def test_the_list_has_sessions_and_apart_from_them_the_tapes_of_the_system(store: InMemoryStore) -> None:
    pages = pages_of(store)
    first, system = await look(pages, "/"), await look(pages, "/?kind=system")
    assert ">test:home<" in first
    assert "bubbot/" not in first
    assert ">bubbot/inbox/test<" in system
    assert "There is no archive" in await look(pages, "/?kind=archives")
    assert await look(pages, "/?kind=nonsense&page=-1") == first


async def test_a_long_list_has_pages(memory_store: InMemoryStore) -> None:
    for number in range(51):
        await memory_store.append([Batch(f"bubbot/{number}", (message("user", "x"),))])
    pages = pages_of(memory_store)
    first, last = await look(pages, "/?kind=system"), await look(pages, "/?kind=system&page=2")
    assert [page.count('scope="row"') for page in (first, last)] == [50, 1]
    assert [('rel="prev"' in page, 'rel="next"' in page) for page in (first, last)] == [(False, True), (True, False)]
    assert await look(pages, "/?kind=system&page=9") == last
    assert await look(pages, "/?kind=system&page=0") == first


async def test_a_step_shows_what_the_model_was_shown_and_what_changed(store: InMemoryStore) -> None:
    pages = pages_of(store)
    timeline = await look(pages, f"/session/{HOME}/timeline")
    steps = re.findall(rf'"(/session/{HOME.replace(":", "%3A")}/step/\d+)"', timeline)
    first, second, *_ = [await look(pages, step) for step in dict.fromkeys(steps)]
    assert "byte for byte what was recorded" in first
    assert "This is the first request" in first
    assert "byte for byte what was recorded" in second
    assert "2 messages new:" in second
    assert "<ins>likes tea</ins>" in second
    assert "Step 2 of 2" in second
    part = await look(pages, f"{list(dict.fromkeys(steps))[1]}?part=step")
    assert part.strip() in second
    assert "<html" not in part


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "data",
    [
        {"purpose": "replay", "step": 0, "view": {}, "head": 0},
        {"system": "0" * 64, "tools": "0" * 64, "view": {}},
        {"system": 1, "tools": [], "view": 3, "as_of": "x", "shown": 7, "attempts": 8, "usage": 9, "step": "one"},
        {"system": "0" * 64, "tools": "0" * 64, "view": {}, "shown": [["a", 1], [2], 3], "attempts": [1, {}]},
        {"strategy_failure": "odd"},
        {"strategy_failure": {"selector": 7}},
    ],
)
async def test_a_step_whose_request_was_not_kept_or_is_not_ours_has_a_page_that_says_so(
    store: InMemoryStore, data: Mapping[str, object]
) -> None:
    """A file may hold any step."""
    turn = "ef" * 16
    tape = TapeBoundary(store, OWNER, workspace="home", references=OWN_REFERENCES).open_tape(HOME)
    head = await tape.head()
    start = event("turn/start", {"session": "stdin:default", "attempt": 1, "inbounds": []}, turn=turn)
    step = TapeEntry(
        id=0, kind="event", payload={"name": "loop.step", "data": data}, meta={"turn": turn}, date=start.date
    )
    await store.append([Batch(HOME, (start, step, event("turn/end", {"status": "answered"}, turn=turn)))])
    pages = pages_of(store)
    assert "<section" in await look(pages, f"/session/{HOME}/turn/{head + 1}")
    for address in (f"entry/{head + 2}", "", "turns"):
        await look(pages, f"/session/{HOME}/{address}")
    assert 'class="alert"' in await look(pages, f"/session/{HOME}/step/{head + 2}")


async def test_a_turn_names_the_context_strategy_that_failed(store: InMemoryStore) -> None:
    turn = "ab" * 16
    head = await TapeBoundary(store, OWNER, workspace="home", references=OWN_REFERENCES).open_tape(HOME).head()
    failure = {"selector": "brief", "problem": "prepare: <b>boom</b>"}
    start = event("turn/start", {"session": "stdin:default", "attempt": 1, "inbounds": []}, turn=turn)
    step = event("loop.step", {"step": 1, "status": "ok", "strategy_failure": failure}, turn=turn)
    await store.append([Batch(HOME, (start, step, event("turn/end", {"status": "answered"}, turn=turn)))])
    page = await look(pages_of(store), f"/session/{HOME}/turn/{head + 1}")
    assert "brief" in page
    assert "prepare: &lt;b&gt;boom&lt;/b&gt;" in page


async def test_a_turn_names_the_weights_that_answered(store: InMemoryStore) -> None:
    turn, weights = "ab" * 16, f"sha256:{'cd' * 32}"
    head = await TapeBoundary(store, OWNER, workspace="home", references=OWN_REFERENCES).open_tape(HOME).head()
    start = event("turn/start", {"session": "stdin:default", "attempt": 1, "inbounds": []}, turn=turn)
    step = event("loop.step", {"step": 1, "status": "ok", "weights": weights}, turn=turn)
    await store.append([Batch(HOME, (start, step, event("turn/end", {"status": "answered"}, turn=turn)))])
    page = await look(pages_of(store), f"/session/{HOME}/turn/{head + 1}")
    assert re.search(rf"<dt>Weights</dt><dd>[^/]*{weights}", page)


async def test_only_what_is_a_blob_is_linked_as_one(store: InMemoryStore) -> None:
    tape = TapeBoundary(store, OWNER, workspace="home", references=OWN_REFERENCES).open_tape(HOME)
    digest, head = await store.put_blob(HOME, b"a picture"), await tape.head()
    call = event("approval.checked", {"call": "c", "tool": "shell.run", "digest": "1" * 64})
    image = event("web/image", {"address": "http://x/", "media_type": "image/png", "size": 9, "digest": digest})
    await store.append([Batch(HOME, (call, image))])
    pages = pages_of(store)
    shown = [await look(pages, f"/session/{HOME}/entry/{head + place}") for place in (1, 2)]
    assert ["/blob/" in page for page in shown] == [False, True]
    assert "a picture" in await look(pages, f"/session/{HOME}/entry/{head + 2}/blob/{digest}")


async def test_a_turn_shows_calls_results_failures_and_its_neighbours(store: InMemoryStore) -> None:
    pages = pages_of(store)
    seen = await crawl(pages)
    turns = [page for address, page in seen.items() if "/turn/" in address]
    (with_tool,) = {page for page in turns if ">memory_save<" in page and "Turn after" in page}
    assert "Saved to long-term memory" in with_tool
    assert any("scripted refused" in page for page in turns)
    assert all(("Turn before" in page) or ("Turn after" in page) for page in turns)


async def test_pages_go_by_ids_and_stay_on_the_tape(memory_store: InMemoryStore) -> None:
    await memory_store.append([Batch("long", tuple(message("user", f"no {n}") for n in range(1, 251)))])
    pages = pages_of(memory_store)
    newest = await look(pages, "/session/long")
    assert "Entries 151 to 250 of 250" in newest
    assert "Entries 51 to 150 of 250" in await look(pages, "/session/long/timeline?before=151")
    assert "Entries 1 to 50 of 250" in await look(pages, "/session/long/timeline?before=51")
    for start in ("0", "1", "-1", "x", "٣", "9" * 30):
        page = await look(pages, f"/session/long/timeline?from={start}")
        assert ("Entries 1 to 100" in page) == (start in ("0", "1")), start
    assert "Entries 250 to 250" in await look(pages, "/session/long/timeline?from=999999")
    assert newest.count('class="entry"') == 100


async def test_a_long_text_is_cut_and_comes_whole_in_pages(memory_store: InMemoryStore) -> None:
    await memory_store.append([Batch("long", (message("user", "é" * 1_000_000 + "END"),))])
    pages = pages_of(memory_store)
    assert len(await look(pages, "/session/long")) < 10_000
    first = await look(pages, "/session/long/entry/1")
    (count,) = re.findall(r"Page 1 of (\d+)", first)
    assert len(first) < 100_000
    last = await look(pages, f"/session/long/entry/1?page={count}")
    assert "END" in last
    assert [await look(pages, f"/session/long/entry/1?page={number}") for number in (-5, 9_999)] == [first, last]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext, 日本語, \U0001f469\u200d\U0001f467, a\u200fb", None),
        ("\x00\x07\x1b[2J\r", "␀␇␛[2J␍"),
        ("\x7f\x9b", "␡⟨U+009B⟩"),
        ("a\u202eb\u2066c\u061cd", "a⟨U+202E⟩b⟨U+2066⟩c⟨U+061C⟩d"),
        ("hid\U000e0041den", "hid⟨U+E0041⟩den"),
        ("a\u2028b", "a⟨U+2028⟩b"),
    ],
)
async def test_what_is_hidden_is_written_out(memory_store: InMemoryStore, text: str, shown: str | None) -> None:
    await memory_store.append([Batch("talk", (message("user", text),))])
    assert f">{shown or text}<" in await look(pages_of(memory_store), "/session/talk/entry/1")


@pytest.mark.parametrize("damaged", [1, 2])
async def test_a_damaged_entry_hides_no_other_tape_and_no_other_entry(sqlite_store: SqliteStore, damaged: int) -> None:
    for name in ("bad", "good"):
        start = anchor("session/start", {"owner": "human"})
        await sqlite_store.append([Batch(name, (start, message("user", f"words on {name}")))])
    tamper(
        sqlite_store.path,
        """UPDATE entries SET payload = '{"broken"' WHERE id = ? AND tape = (SELECT rowid FROM tapes WHERE name = 'bad')""",
        (damaged,),
    )
    reader = await open_readonly(sqlite_store.path)
    try:
        pages = pages_of(reader, *SEARCH_PANELS)
        first = await look(pages, "/")
        assert (">bad<" in first, ">good<" in first) == (True, True)
        found = await look(pages, "/panel/search?p.words=words")
        assert ("words on good" in found, f"entry {damaged} of the tape bad" in found) == (True, True)
        await look(pages, f"/session/bad/entry/{3 - damaged}")
        with pytest.raises(TapeCorrupt):
            await look(pages, f"/session/bad/entry/{damaged}")
    finally:
        await reader.aclose()


async def test_what_an_erased_entry_said_is_not_there(memory_store: InMemoryStore) -> None:
    bench_tape = "gone"
    await memory_store.append([Batch(bench_tape, (message("user", "a secret"),))])
    await memory_store.reset(
        bench_tape,
        ResetBatch("gone@1", erase=True),
        [event("tape/erased", {"archive": "gone@1", "entries": 1, "covers": {"gone@1": [[1, 1]]}})],
    )
    seen = await crawl(pages_of(memory_store))
    assert any("The content was erased." in page for page in seen.values())
    assert not any("a secret" in page for page in seen.values())


async def test_the_tail_is_what_came_since_and_what_a_running_turn_has_written(store: InMemoryStore) -> None:
    head = await store.head(HOME)
    running_words = Batch(HOME, (message("assistant", "half an answer"),))
    await store.open_fork(ForkRecord("f1", HOME, head, (running_words,), session=HOME))
    pages = pages_of(store)
    tail = await look(pages, f"/session/{HOME}/tail?after={head - 2}")
    assert f'data-head="{head}"' in tail
    assert tail.count('<li class="entry" id=') == 2
    assert "half an answer" in tail
    assert "<html" not in tail
    assert "half an answer" in await look(pages, f"/session/{HOME}")
    assert ">running<" in await look(pages, "/")


async def test_an_export_is_one_file_without_scripts_and_links(store: InMemoryStore) -> None:
    pages = pages_of(store)
    head = await store.head(HOME)
    answer = await pages.answer(PageRequest(("session", HOME, "export"), {"first": "1", "last": str(head)}, OWNER))
    text = answer.body.decode()
    assert answer.filename == f"trace-1-{head}.html"
    assert "script-src" not in answer.policy
    assert "unsafe" not in answer.policy
    assert answer.policy in html.unescape(text)
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    assert b64encode(sha256(style.encode()).digest()).decode() in answer.policy
    assert "<script" not in text
    assert not re.search(r'(?:href|src|action)="(?!#)', text)
    assert text.count('<li class="entry"') == head


@pytest.mark.parametrize(("first", "last"), [("5", "3"), ("0", "3"), ("99999", "99999")])
async def test_an_export_of_nothing_says_what_there_is(store: InMemoryStore, first: str, last: str) -> None:
    with pytest.raises(ConfigError, match="the newest is"):
        await look(pages_of(store), f"/session/{HOME}/export?first={first}&last={last}")


async def test_too_large_an_export_names_one_that_fits(memory_store: InMemoryStore) -> None:
    await memory_store.append([Batch("long", tuple(message("user", "x") for _ in range(2005)))])
    with pytest.raises(ConfigError, match="such as 6 to 2005"):
        await look(pages_of(memory_store), "/session/long/export?first=1&last=2005")


@pytest.mark.parametrize(
    "address",
    [
        "/nothing",
        "/session/none",
        f"/session/{HOME}/nothing",
        f"/session/{HOME}/entry/999",
        f"/session/{HOME}/entry/x",
        f"/session/{HOME}/entry/-1",
        f"/session/{HOME}/entry/1/blob/{'0' * 64}",
        f"/session/{HOME}/turn/zz",
        f"/session/{HOME}/turn/",
        f"/session/{HOME}/turn/99999",
        f"/session/{HOME}/step/1",
        f"/session/{HOME}/step/{'9' * 40}",
        f"/session/{HOME}/panel/none",
        "/panel/none",
        "/session/%2e%2e/entry/1",
    ],
)
async def test_what_is_not_there_is_said_so(store: InMemoryStore, address: str) -> None:
    with pytest.raises(EntryNotFound):
        await look(pages_of(store), address)


class TestAuditors:
    """People who see granted tapes only. Pages decide nothing: the boundary does, and finds nothing else."""

    granted = session_tape("home", "telegram:1")
    other = session_tape("home", "telegram:2")
    viewer = Viewer("ann", frozenset({"telegram:1"}))

    @pytest.fixture
    async def two(self, store: InMemoryStore) -> InMemoryStore:
        """The turns, once on a granted tape and once on another one."""
        entries = (await store.fetch([TapeQuery(HOME)]))[0]
        for tape, word in ((self.granted, "granted"), (self.other, "private")):
            await store.append(
                [Batch(tape, tuple(entry.with_id(0) for entry in entries)), Batch(tape, (message("user", word),))]
            )
            for digest in {entry.payload["digest"] for entry in entries if entry.kind == "system"}:
                await store.put_blob(tape, await store.get_blob(HOME, digest))
            for entry in entries:
                if entry.name == "loop.step":
                    for part in ("system", "tools"):
                        await store.put_blob(tape, await store.get_blob(HOME, entry.payload["data"][part]))
        return store

    async def test_they_find_the_granted_tape_and_nothing_of_another(self, two: InMemoryStore) -> None:
        seen = await crawl(pages_of(two), self.viewer)
        assert any("granted" in page for page in seen.values())
        assert all("private" not in page and self.other not in page for page in seen.values())
        assert not any("kind=system" in page for page in seen.values())

    @pytest.mark.parametrize("rest", ["", "/entry/1", "/turns", "/tail", "/export?first=1&last=2", "/step/8"])
    async def test_another_tape_and_one_that_is_missing_are_refused_alike(self, two: InMemoryStore, rest: str) -> None:
        for tape in (self.other, "missing", "bubbot/inbox/test", "bubbot/access"):
            with pytest.raises(AccessError, match="may not see"):
                await look(pages_of(two), f"/session/{tape.replace('/', '%2F')}{rest}", self.viewer)

    async def test_a_system_prompt_with_memory_of_another_tape_is_not_shown(self, two: InMemoryStore) -> None:
        entries = (await two.fetch([TapeQuery(self.granted)]))[0]
        step = next(entry for entry in entries if entry.name == "loop.step")
        data = {**step.payload["data"], "shown": [*step.payload["data"]["shown"], ["bubbot/memory/person", [[1, 1]]]]}
        head = await two.head(self.granted)
        start = event("turn/start", {"attempt": 1, "session": "telegram:1", "inbounds": []}, turn="t")
        await two.append([Batch(self.granted, (start, event("loop.step", data, turn="t")))])
        pages, address = pages_of(two), f"/session/{self.granted}/step/{head + 2}"
        assert "You are bubbot" in await look(pages, address)
        page = await look(pages, address, self.viewer)
        assert "You are bubbot" not in page
        assert "memory from a tape that you may not see" in page
        with pytest.raises(EntryNotFound):
            await look(pages, f"{address}/system", self.viewer)
        entry = f"/session/{self.granted}/entry/{head + 2}"
        with pytest.raises(EntryNotFound):
            await look(pages, f"{entry}/blob/{data['system']}", self.viewer)
        assert "You are bubbot" in await look(pages, f"{entry}/blob/{data['system']}")


async def test_no_word_in_a_template_of_a_panel_acts(store: InMemoryStore) -> None:
    async def read(_reader: PanelReader, _query: PanelQuery) -> Mapping[str, object]:
        return {"evil": EVIL, "tape": HOME, "rows": [EVIL, 3, '"><b>']}

    for scope, address in (("session", f"/session/{HOME}/panel/all"), ("deployment", "/panel/all")):
        pages = pages_of(store, Panel("all", EVIL, scope, read, "tests.trace:everything.html"))  # type: ignore[arg-type]
        page = await look(pages, f"{address}?p.words=%22%3E%3Cb%3E&cursor=3")
        assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="/static/trace.js">']
        assert not re.search("<(?:b|img)[ >]", page)
        assert page.count("&lt;/script&gt;") > 15
        assert 'href="/session/test%3Ahome/entry/3"' in page
        assert "2026-11-22 04:21:00" in page  # in the zone of the deployment
        (following,) = [link for link in links(page) if "cursor=" in link]
        assert dict(parse_qsl(following.partition("?")[2])) == {"cursor": f"7{EVIL}", "p.words": '"><b>'}
        assert "<ins>&lt;/script&gt;" in page


def test_no_template_can_turn_the_escaping_of_a_value_off() -> None:
    renderer = PageRenderer(Texts(), ZONE)
    with pytest.raises(TemplateAssertionError, match="'safe'"):
        renderer.render("tests.trace:unsafe.html", panel=EVIL)


async def test_a_search_of_the_page_is_bounded_by_a_person_and_days(store: InMemoryStore) -> None:
    people = [{"id": "1", "name": "Ann"}, {"id": "2", "name": "Bob"}]
    await store.append(
        [Batch("talk", tuple(message("user", f"tea of {each['name']}", sender=each) for each in people))]
    )
    pages = pages_of(store, *SEARCH_PANELS)
    for address in ("/panel/search", "/session/talk/panel/search"):
        page = await look(pages, f"{address}?p.words=tea&p.person=ann&p.since=")
        assert ("tea of Ann" in page, "tea of Bob" in page, "Ann (1)" in page) == (True, False, True)
        page = await look(pages, f"{address}?p.words=tea&p.since=%22%3E%3Cb%3E")
        assert ("is not a date" in page, "tea of Ann" in page, "<b>" in page) == (True, False, False)


async def test_a_form_keeps_what_was_typed_and_no_word_of_it_acts(store: InMemoryStore) -> None:
    page = await look(pages_of(store, *SEARCH_PANELS), "/panel/search?p.words=%22%3E%3Cb%3E&p.other=%22%3E%3Cb%3E")
    assert "<b>" not in page
    assert page.count('value="&#34;&gt;&lt;b&gt;"') == 2


async def test_a_panel_links_to_nothing_that_its_viewer_may_not_open(store: InMemoryStore) -> None:
    async def read(_reader: PanelReader, _query: PanelQuery) -> Sequence[str]:
        return ("bubbot/inbox/test", HOME)

    pages = pages_of(store, Panel("all", "All", "deployment", read, "tests.trace:links.html"))
    inbox = "/session/bubbot%2Finbox%2Ftest/entry/1"
    for viewer in (OWNER, Viewer("anna", frozenset({"other"}))):
        found = links(await look(pages, "/panel/all", viewer))
        assert (inbox in found) == viewer.sees_all


async def test_the_page_speaks_chinese(store: InMemoryStore) -> None:
    pages = pages_of(store, language="zh")
    page = await look(pages, f"/session/{HOME}")
    assert '<html lang="zh">' in page
    assert "时间线" in page
    assert "访问令牌" in pages.ask_for_token(LoginForm(is_wrong=True)).body.decode()
    assert "<h1>" in pages.show_error(BubbotError(EVIL), 500).body.decode()


class CountingReads(TapeBoundary):
    """A boundary that counts the entries that pages read."""

    read = 0

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        answers = await super().fetch(queries)
        self.read += sum(map(len, answers))
        return answers


async def test_a_page_reads_no_more_of_a_long_tape_than_of_a_short_one(store: InMemoryStore) -> None:
    entries = (await store.fetch([TapeQuery(HOME)]))[0]
    turns = [entry.with_id(0) for entry in entries if entry.name != "loop.step"]
    reads: dict[int, list[int]] = {}
    for copies in (40, 80):
        tape = f"tape{copies}"
        await store.append([Batch(tape, tuple(turns)) for _ in range(copies)])
        middle = await store.head(tape) // 2
        for address in (
            "",
            "/timeline",
            f"/timeline?before={middle}",
            "/turns",
            f"/turns?before={middle}",
            f"/turn/{middle}",
            "/tail",
        ):
            boundary = CountingReads(store, OWNER, workspace="home", references=OWN_REFERENCES)
            await look(pages_through(boundary), f"/session/{tape}{address}")
            reads.setdefault(copies, []).append(boundary.read)
    assert reads[40] == reads[80]
    assert max(reads[80]) < 400


async def test_an_export_of_very_long_texts_names_a_part_that_fits(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.features.trace.export.MAX_EXPORT_CHARS", 25)
    await memory_store.append([Batch("long", tuple(message("user", "0123456789") for _ in range(5)))])
    with pytest.raises(ConfigError, match="such as 2 to 3"):
        await look(pages_of(memory_store), "/session/long/export?first=2&last=5")
    assert "0123456789" in await look(pages_of(memory_store), "/session/long/export?first=2&last=3")
