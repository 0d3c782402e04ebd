"""The finding of the doctor about what models refused."""

from __future__ import annotations

import asyncio

from bubbot.ports.model import Lesson
from bubbot.runtime.lessons import ModelLessons
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.planting import found, look_at_tape, plants


@plants("model.learned")
def test_a_model_that_refused_requests_is_named_until_it_is_asked_again(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/models", now=SteppingClock(), new_id=CountingIds())
    assert asyncio.run(look_at_tape("conversation", tape)) == []
    lessons = ModelLessons(tape)

    async def learn() -> None:
        for rule in ("no_tools@1", "alternate@1"):
            lesson = Lesson("ollama/gemma3:4b", "", rule)
            lessons.try_out(lesson)
            await lessons.keep([lesson])

    asyncio.run(learn())
    finding = found(asyncio.run(look_at_tape("conversation", tape)))["model.learned"]
    assert finding.cause.startswith("ollama/gemma3:4b refused requests")
    assert "no_tools@1, alternate@1" in finding.cause
    assert finding.fix == "bubbot ask ',model.relearn ollama/gemma3:4b'"
    asyncio.run(lessons.forget("ollama/gemma3:4b"))
    assert asyncio.run(look_at_tape("conversation", tape)) == []


@plants("model.unread")
def test_a_server_that_reads_too_little_is_named_and_what_is_assumed_is_not(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/models", now=SteppingClock(), new_id=CountingIds())
    lessons = ModelLessons(tape)

    async def learn() -> None:
        for name, tokens in (("assumed", 32_768), ("unread", 2_050), ("context", 8_192)):
            lesson = Lesson.of_size("ollama/gemma3:4b", "", name, tokens)
            lessons.try_out(lesson)
            await lessons.keep([lesson])

    asyncio.run(learn())
    findings = found(asyncio.run(look_at_tape("conversation", tape)))
    assert {*findings} == {"model.unread", "model.learned"}
    assert "some 2050 tokens" in findings["model.unread"].cause
    assert "since: context:8192@1." in findings["model.learned"].cause
