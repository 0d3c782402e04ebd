"""Who sees what on the trace page: canaries in every chat, in memory and in prompts, looked for over real HTTP.

Everything that a viewer can reach is read: every link of every page, exports, searches for each canary, and addresses of what was
never linked. Each guard is taken away once, and the same walk finds a leak.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest

from bubbot.home import Home
from bubbot.ports.channel import Role
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.query import TapeQuery
from tests.isolation.boundaries import (
    ShowsAllFacts,
    ShowsAllReplays,
    ShowsAllSessions,
    ShowsAllTapes,
    TrustsSubjects,
    weaken,
)
from tests.isolation.oracle import canaries
from tests.trace.home import (
    AUDITED,
    AUDITOR,
    GROUP,
    OTHER,
    OWNER_CHAT,
    PROMPT_WORDS,
    lived,
    tape_of,
    words_about,
    words_of_tapes,
)
from tests.trace.serving import OWNER_NAME, TraceSite, served

pytestmark = pytest.mark.law("P1")
MAX_PAGES, FEWER_PAGES = 600, 220
"""Addresses that are read in the proof, and without it: those that were guessed come first, and hold each kind of page."""
ALIKE = 3
"""Pages that differ in numbers only and are read; addresses that were not linked come besides."""
LINK = re.compile(r'(?:href|src|data-tail|data-base|action)="([^"]*)"')
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
NEWEST_REQUESTS = 3
NUMBERS = re.compile(r"\d+")
MEMBER, STRANGER = "tg:7", "dc:99"


@dataclass
class Walk:
    """What somebody reached: the canaries and words seen, the pages read, and the answers by status."""

    words: set[str] = field(default_factory=set)
    pages: list[str] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    def note(self, path: str, status: int, text: str) -> None:
        """Note an answer."""
        self.pages.append(path)
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.words |= canaries(text) | {word for word in PROMPT_WORDS if word in text}


async def walk(
    site: TraceSite, person: str | None, extra: Sequence[str] = (), *, stop_at: frozenset[str] = frozenset()
) -> Walk:
    """Follow every link from the first page on, and these addresses; pages that differ in a number only, a few times.

    It stops once it has seen one of the words in `stop_at`.
    """
    made, seen, kinds = Walk(), set[str](), dict[str, int]()
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as client:
        start = site.link(person) if person else f"{site.address}/"
        wanted = [start, *(f"{site.address}{path}" for path in extra)]
        while wanted and len(made.pages) < site.most_pages and not made.words & stop_at:
            address = wanted.pop(0)
            async with client.get(address) as answer:
                text = await answer.text(errors="replace")
                made.note(str(answer.url.relative()), answer.status, text)
            for link in map(unescape, LINK.findall(text)):
                path = link.partition("#")[0]
                kind = NUMBERS.sub("0", path)
                if path.startswith("/") and path not in seen and kinds.get(kind, 0) < ALIKE:
                    seen.add(path)
                    kinds[kind] = kinds.get(kind, 0) + 1
                    wanted.append(f"{site.address}{path}")
    return made


async def read_everything(site: TraceSite, person: str | None, stop_at: frozenset[str] = frozenset()) -> Walk:
    """Walk, with searches for the canaries, an export of each tape, and every address that could be guessed."""
    tapes = await words_of_tapes(site.home)
    extra = ["/panel/replays", *(f"/panel/replays?p.replay={each}" for each in await replays(site.home))]
    extra += [f"/panel/search?p.words={part}" for part in ("zq000", "word7q")]  # parts: a page repeats what was typed
    extra += await prompt_addresses(site.home)
    for tape in tapes:
        name = tape.replace("/", "%2F")
        base = f"/session/{name}"
        extra += [
            base, f"{base}/turns", f"{base}/export?first=1&last=400", f"{base}/tail?after=0", f"{base}/entry/1", f"{base}/step/25",
            f"{base}/panel/memory", f"{base}/panel/search?p.words=zq", f"{base}/panel/deliveries", f"{base}/panel/usage?p.period=all",
            f"/panel/shared-memory?p.zone={name}", f"{base}/step/25/system", f"{base}/panel/schedule",
        ]  # fmt: skip
    return await walk(site, person, extra, stop_at=stop_at)


async def replays(home: Path) -> list[str]:
    """The ids of all replays."""
    store = await open_readonly(Home(home).database)
    try:
        facts = (await store.fetch([TapeQuery("bubbot/replay")]))[0]
        return [str(entry.payload["data"]["id"]) for entry in facts]
    finally:
        await store.aclose()


async def prompt_addresses(home: Path) -> list[str]:
    """The addresses of the newest requests of each tape, of their prompts, and of what their entries name by digest."""
    store, found = await open_readonly(Home(home).database), []
    try:
        for tape in await store.tapes():
            query = TapeQuery(
                tape.name, kinds=("event", "system"), names=("loop.step",), newest=True, limit=NEWEST_REQUESTS
            )
            for entry in (await store.fetch([query]))[0]:
                base = f"/session/{tape.name}"
                found += [f"{base}/step/{entry.id}", f"{base}/step/{entry.id}/system"] if entry.kind == "event" else []
                found += [f"{base}/entry/{entry.id}/blob/{digest}" for digest in DIGEST.findall(str(entry.payload))]
    finally:
        await store.aclose()
    return found


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TraceSite]:
    home = tmp_path_factory.mktemp("trace") / "home"
    assert lived(home).leaks == []
    with served(home) as made:
        yield replace(made, most_pages=MAX_PAGES if request.config.getoption("--proof") else FEWER_PAGES)


@pytest.mark.proof
async def test_the_owner_sees_what_happened_everywhere(site: TraceSite) -> None:
    everything = set().union(*(await words_of_tapes(site.home)).values())
    seen = await read_everything(site, OWNER_NAME)
    assert everything - seen.words == set()
    assert set(PROMPT_WORDS) <= seen.words  # the walk reaches what the others are not shown


async def test_an_auditor_sees_the_granted_chat_and_nothing_else(site: TraceSite) -> None:
    granted = await words_about(site.home, AUDITED.session)
    seen = await read_everything(site, AUDITOR)
    assert seen.words - granted == set()
    own = (await words_of_tapes(site.home))[tape_of(site.home, AUDITED.session)]
    assert own - seen.words == set()
    replayed = (await words_of_tapes(site.home))["bubbot/replay"]
    assert replayed & granted - own, "what only a replay of the granted chat holds"
    assert replayed & granted - seen.words == set()
    assert replayed - granted, "what only a replay of another chat holds"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("person", [MEMBER, STRANGER, "bob", None])
async def test_who_was_granted_nothing_sees_nothing(site: TraceSite, person: str | None) -> None:
    seen = await read_everything(site, person)
    assert seen.words == set()
    assert set(seen.statuses) <= {200, 401, 403, 404}
    assert seen.statuses[401] > 50


def _show_prompts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("bubbot.features.trace.request.may_see_system", lambda *_: True)


def _open_blobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("bubbot.features.trace.pages.may_open_blobs", lambda *_: True)


def _grant_everything(patch: pytest.MonkeyPatch) -> None:
    everything = frozenset({AUDITED.session, OTHER.session, OWNER_CHAT.session, GROUP.session})
    patch.setattr("bubbot.features.access.state.AccessState.audited_sessions", lambda *_: everything)


def _admit_anybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Role, "at_least", lambda *_: True)


def _sign_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "bubbot.features.trace.tokens.TraceTokens.read", lambda *_: SimpleNamespace(person=OWNER_NAME, seconds=60)
    )


GUARDS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = (
    ("which tapes a viewer may see", weaken(ShowsAllTapes), AUDITOR),
    ("which facts of a shared tape", weaken(ShowsAllFacts), AUDITOR),
    ("which chat a replay quotes", weaken(ShowsAllReplays), AUDITOR),
    ("who looks", _admit_anybody, STRANGER),
    ("which sessions were granted", _grant_everything, AUDITOR),
    ("whose memory stands in a prompt", _show_prompts, AUDITOR),
    ("which blobs are prompts", _open_blobs, AUDITOR),
    ("the session of a subject", weaken(TrustsSubjects), AUDITOR),
    ("which sessions a viewer may see", weaken(ShowsAllSessions), AUDITOR),
    ("which sessions a member was granted", _grant_everything, MEMBER),
    ("whose token it is", _sign_nothing, STRANGER),
)


@pytest.mark.proof
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "remove", "person"), GUARDS, ids=[name.replace(" ", "-") for name, *_ in GUARDS])
async def test_without_a_guard_somebody_sees_too_much(
    site: TraceSite,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    remove: Callable[[pytest.MonkeyPatch], None],
    person: str,
) -> None:
    words = set(PROMPT_WORDS).union(*(await words_of_tapes(site.home)).values())
    foreign = frozenset(words - await words_about(site.home, AUDITED.session) if person == AUDITOR else words)
    remove(monkeypatch)
    assert (await read_everything(site, person, foreign)).words & foreign, f"nothing guards {name}"
