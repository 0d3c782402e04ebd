"""Summaries that rest on entries of other chats: they cite them by their marks, as long as these may be shown."""

from __future__ import annotations

import json
import re

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.reading import session_reader
from bubbot.feature import ReadSession
from bubbot.features.access.service import AccessService
from bubbot.ports.model import ModelReply, ModelRequest, ToolCall
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.copies import CopyIndex
from bubbot.tape.service import TapeService
from tests.callers import by, run
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.summarising import SummarisingModel, cite_all, state_of, summaries, summarising, summary_so_far
from tests.turns import Bench

SOURCE = "test:source"
MARK = re.compile(r"test:source#\d+")


def opened(store: InMemoryStore, name: str, session: str = "") -> TapeService:
    return TapeService(store, name, now=SteppingClock(), new_id=CountingIds(name), session=session)


@pytest.fixture
def access(memory_store: InMemoryStore) -> AccessService:
    return AccessService(opened(memory_store, "bubbot/access"), now=SteppingClock(), random=CountingSalt())


@pytest.fixture
def reader(memory_store: InMemoryStore, access: AccessService) -> ReadSession:
    return session_reader(lambda session: opened(memory_store, session, session), access.may_read)


def marks_in(request: ModelRequest) -> list[str]:
    return list(dict.fromkeys(MARK.findall(str(request.messages[0]["content"]))))


def cite_marks(request: ModelRequest) -> str:
    """Cite everything of the other chat that is shown, else as `cite_all`."""
    marks = marks_in(request)
    if not marks:
        return cite_all(request)
    return json.dumps({"summary": f"They go to Rome ({', '.join(marks)}).", "source_ids": marks})


async def bind(bench: Bench, access: AccessService) -> None:
    """Take up a topic of the other chat, so that what was said there stands beside a message here."""
    for line in (",topic Trip", "rome it is"):
        await bench.say(line, chat="source")
    await run(access.grant_reading, by("terminal"), SOURCE, "test:home")
    await bench.say(f",topic trip source={SOURCE}")
    await bench.say("where do we go?")


async def find_told(bench: Bench, words: str) -> int:
    return next(each.id for each in await bench.entries(SOURCE) if words in str(each.payload.get("content")))


@pytest.mark.law("P1", "T17")
async def test_what_is_quoted_beside_a_message_is_cited_with_its_tape_and_found_by_an_erasure(
    memory_store: InMemoryStore, access: AccessService, reader: ReadSession
) -> None:
    model = SummarisingModel(cite_marks, size=8_000)
    async with summarising(memory_store, model, read_session=reader) as bench:
        await bind(bench, access)
        assert "I summarised" in (await bench.say(",summary")).text
        told = await find_told(bench, "rome it is")
        (request,) = model.summary_requests
        shown = str(request.messages[0]["content"])
        assert f'{SOURCE}#{told} 2026-11-21 20:21 UTC, Ann (#1): "rome it is"' in shown
        assert "has a mark in front" in request.system
        (anchor,) = await summaries(bench)
        assert (SOURCE, told) in state_of(anchor)["source_ids"]
        step = next(step for step in await bench.events("loop.step") if step.get("purpose") == "summary")
        assert SOURCE in {each[0] for each in step["shown"]}, "an erasure names the prompt"
        index = CopyIndex(OWN_REFERENCES)
        index.add(bench.tape().name, await bench.entries())
        assert anchor.id in index.find_copies({SOURCE: {told}})[bench.tape().name]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("", "; sources in test:source: entries {told}"),
        ("revoked", "; sources in a chat that may not be read here any more"),
        ("deleted", "; sources in test:source: entries {told} (not there any more: {told})"),
        ("erased", "; sources in test:source: entries {told} (not there any more: {told})"),
    ],
)
async def test_why_and_the_next_summary_say_what_became_of_a_citation(
    memory_store: InMemoryStore, access: AccessService, reader: ReadSession, how: str, says: str
) -> None:
    def write(request: ModelRequest) -> str:
        if len(model.summary_requests) == 1:
            (mark, *_) = marks_in(request)
            return json.dumps({"summary": f"They go to Rome ({mark}).", "source_ids": [mark]})
        return cite_all(request)

    model = SummarisingModel(write, size=8_000)
    async with summarising(memory_store, model, read_session=reader) as bench:
        await bind(bench, access)
        await bench.say(",summary")
        told = await find_told(bench, "rome it is")
        await bench.say("go on")
        if how == "revoked":
            await run(access.revoke_reading, by("terminal"), SOURCE, "test:home")
        elif how == "deleted":
            await bench.tape(SOURCE).hide(told)
        elif how == "erased":
            await bench.tape(SOURCE).reset(archive=False)
        assert says.format(told=told) in (await bench.say(",why")).text
        await bench.say("and again")
        await bench.say(",summary")
        so_far = summary_so_far(model.summary_requests[-1])
        if how:
            assert so_far["summary"].startswith("1 of its sources in other chats may not be shown here any more")
            assert "source_ids" not in so_far
        else:
            assert so_far["source_ids"] == [f"{SOURCE}#{told}"]
        (_, anchor) = await summaries(bench)
        assert ((SOURCE, told) in state_of(anchor)["source_ids"]) is (not how)


async def test_what_chat_read_brought_is_cited_with_its_chat_and_never_as_an_entry_of_this_one(
    memory_store: InMemoryStore, access: AccessService, reader: ReadSession
) -> None:
    def answer(request: ModelRequest) -> ModelReply:
        has_read = any(each["role"] == "tool" for each in request.messages)
        is_asked = "what is the code" in str(request.messages[-1]["content"])
        return (
            ModelReply("", (ToolCall("c1", "chat_read", json.dumps({"session": SOURCE})),))
            if is_asked and not has_read
            else ModelReply("ok")
        )

    model = SummarisingModel(cite_marks, size=8_000, answer=answer)
    async with summarising(memory_store, model, read_session=reader) as bench:
        await bench.say("the code is swordfish", chat="source")
        await run(access.grant_reading, by("terminal"), SOURCE, "test:home")
        await bench.say("what is the code?")
        await bench.say(",summary")
        told = await find_told(bench, "swordfish")
        shown = str(model.summary_requests[-1].messages[0]["content"])
        assert f"{SOURCE}#{told} " in shown
        assert f"\n    #{told} " not in shown
        (anchor,) = await summaries(bench)
        assert (SOURCE, told) in state_of(anchor)["source_ids"]


@pytest.mark.parametrize("invented", ["test:source#999", "test:third#3"])
async def test_a_mark_that_was_not_shown_is_refused(
    memory_store: InMemoryStore, access: AccessService, reader: ReadSession, invented: str
) -> None:
    def write(_request: ModelRequest) -> str:
        return json.dumps({"summary": "x", "source_ids": [invented]})

    model = SummarisingModel(write, size=8_000)
    async with summarising(memory_store, model, read_session=reader) as bench:
        await bind(bench, access)
        await bench.say(",summary")
        first, repair = model.summary_requests
        assert len(repair.messages) == len(first.messages) + 2
        assert f"it cites {invented}, which you were not shown" in str(repair.messages[-1]["content"])
        (anchor,) = await summaries(bench)
        assert state_of(anchor)["form"] == "extractive"


async def test_without_a_grant_nothing_of_the_other_chat_is_summarised(
    memory_store: InMemoryStore, access: AccessService, reader: ReadSession
) -> None:
    model = SummarisingModel(size=8_000)
    async with summarising(memory_store, model, read_session=reader) as bench:
        await bind(bench, access)
        await run(access.revoke_reading, by("terminal"), SOURCE, "test:home")
        await bench.say(",summary")
        (request,) = model.summary_requests
        assert "rome" not in str(request.messages)
        assert "has a mark in front" not in request.system


async def test_a_topic_that_is_taken_up_again_keeps_citing_what_is_still_there(
    memory_store: InMemoryStore, access: AccessService, reader: ReadSession
) -> None:
    model = SummarisingModel(cite_marks, size=8_000)
    async with summarising(memory_store, model, read_session=reader) as bench:
        await bind(bench, access)
        await bench.say(",summary")
        told = await find_told(bench, "rome it is")
        for is_there in (True, False):
            await bench.say(",topic -")
            await bench.say(",topic trip")
            anchor = [each for each in await bench.entries() if each.name == "topic/trip"][-1]
            assert ((SOURCE, told) in state_of(anchor).get("source_ids", ())) is is_there
            await bench.tape(SOURCE).reset(archive=True)
