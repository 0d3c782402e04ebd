"""What refusals teach: asked again once, remembered, told, and rebuilt from the tape."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import ModelRefused, ModelUnavailable
from bubbot.models.fit import ModelFit
from bubbot.models.provider import CallLimits, ProviderModel
from bubbot.models.usage import UsageMeter
from bubbot.ports.channel import Role
from bubbot.ports.model import Lesson, ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta, Transcript, Usage
from bubbot.runtime.compose import rebuild_sent
from bubbot.runtime.lessons import ModelLessons
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import TapeStore
from tests.budgets import budget_tape, metering, opened, plan
from tests.turns import HOME, Bench, Options, Replying, running

MAX_LESSONS = 4


NAME = "openai/strict"
Judge = Callable[[ModelRequest], str]
"""Returns why a request is refused; empty if it is not."""


class StrictClient:
    """A `ProviderClient` whose server refuses what its judge does not like."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.requests: list[ModelRequest] = []
        self.refused = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[TextDelta | ModelReply, None]:
        self.requests.append(request)
        if words := self.judge(request):
            self.refused += 1
            error = ModelRefused(f"{NAME} refused the request: {words}")
            error.status, error.words = 400, words
            raise error
        yield ModelReply("fine", usage=Usage(3, 2), model=NAME)

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        raise ModelUnavailable("no recordings")

    async def connect(self) -> None:
        """Nothing to connect."""

    async def aclose(self) -> None:
        """Nothing to close."""


class Late:
    """The lessons of a bench that is not made yet."""

    lessons: ModelLessons | None = None

    def find(self, model: str, server: str) -> Sequence[Lesson]:
        return self.lessons.find(model, server) if self.lessons else ()


def strict(judge: Judge) -> tuple[ProviderModel, StrictClient, Late]:
    client, late = StrictClient(judge), Late()
    meter, fit = UsageMeter(NAME, own_address=True), ModelFit(NAME, late)
    return ProviderModel(NAME, ModelTraits(), CallLimits(retries=0), client, meter=meter, fit=fit), client, late


def no_tools(request: ModelRequest) -> str:
    return "strict does not support tools" if request.tools else ""


async def steps(bench: Bench) -> list[Any]:
    return await bench.events("loop.step")


async def test_it_is_asked_again_without_what_it_refused_and_asked_so_from_then_on(store: TapeStore) -> None:
    model, client, late = strict(no_tools)
    async with running(store, model) as bench:
        late.lessons = bench.lessons
        first, second = await bench.say("hello"), await bench.say("again")
        (learned,) = await bench.events("model/learned", "bubbot/models")
        step, later = await steps(bench)
        tape: TapeHandle = bench.service(HOME)
        rebuilt = [await rebuild_sent(each, tape, strategies=OWN_STRATEGIES) for each in (step, later)]
    assert (first.text, second.text) == (
        "(openai/strict takes no tools: I asked it again without them, and offer it none from now on.)\n\nfine",
        "fine",
    )
    assert (client.refused, len(client.requests)) == (1, 3)
    assert learned == {"model": NAME, "server": "", "rule": "no_tools@1"}
    refused, answered = step["attempts"]
    assert (refused["status"], refused["taught"], "fit" in refused) == ("failed", "no_tools@1", False)
    assert [dict(rule) for rule in answered["fit"]["rules"]] == [{"rule": "no_tools@1"}]
    assert later["attempts"][0]["fit"]["rules"][0]["learned"] == ("bubbot/models", 1)
    assert all(each.is_equal for each in rebuilt)
    forged = {
        **later,
        "attempts": [{**later["attempts"][0], "fit": {**later["attempts"][0]["fit"], "request": "0" * 64}}],
    }
    assert not (await rebuild_sent(forged, tape, strategies=OWN_STRATEGIES)).is_equal
    assert [each.sent.as_bytes() for each in rebuilt] == [request.as_bytes() for request in client.requests[1:]]
    assert [each.composed.tools != () for each in rebuilt] == [True, True]


async def test_a_new_process_knows_it(store: TapeStore) -> None:
    for expected in (1, 0):
        model, client, late = strict(no_tools)
        async with running(store, model, life=f"life-{expected}") as bench:
            late.lessons = bench.lessons
            await bench.say("hello")
        assert client.refused == expected


async def test_each_try_is_reserved_and_settled(memory_store: TapeStore) -> None:
    model, _, late = strict(no_tools)
    budget = await opened(memory_store, plan(day=1000))
    async with running(memory_store, model, Options(features=[metering(budget)])) as bench:
        late.lessons = bench.lessons
        await bench.say("hello")
        (step,) = await steps(bench)
    facts = [entry.name for entry in await budget_entries(memory_store)]
    assert facts.count("budget/reserved") == facts.count("budget/settled") == 2
    assert step["cost"] == 5


async def budget_entries(store: TapeStore) -> Sequence[Any]:
    (entries,) = await store.fetch([TapeQuery("bubbot/budget")])
    return [entry for entry in entries if entry.name and entry.name.startswith("budget/")]


async def test_what_does_not_help_is_not_remembered_and_new_is_named(memory_store: TapeStore) -> None:
    model, client, late = strict(lambda _: "strict does not support tools")
    async with running(memory_store, model) as bench:
        late.lessons = bench.lessons
        result = await bench.say("hello")
        assert bench.lessons.find_known(NAME) == []
        assert await bench.events("model/learned", "bubbot/models") == []
    assert (result.status, len(client.requests)) == ("failed", 2)
    assert ",new begins a new conversation" in result.text


async def test_several_refusals_of_one_call_are_bounded(memory_store: TapeStore) -> None:
    """A server that dislikes one thing after the other gets what it wants, up to a number of tries."""

    def judge(request: ModelRequest) -> str:
        if request.tools:
            return "does not support tools"
        return "System role not supported" if request.system else ""

    model, client, late = strict(judge)
    async with running(memory_store, model) as bench:
        late.lessons = bench.lessons
        assert (await bench.say("hello")).status == "answered"
        assert [each["rule"] for each in await bench.events("model/learned", "bubbot/models")] == [
            "no_tools@1",
            "no_system@1",
        ]
    assert client.refused == 2 <= MAX_LESSONS


async def test_of_several_guesses_only_what_helped_is_remembered(memory_store: TapeStore) -> None:
    """The words speak for both, and the same words come again after the first."""
    words = "tools are not supported, or system messages are not supported"
    model, client, late = strict(lambda request: words if request.system else "")
    async with running(memory_store, model) as bench:
        late.lessons = bench.lessons
        assert (await bench.say("hello")).status == "answered"
        assert [each["rule"] for each in await bench.events("model/learned", "bubbot/models")] == ["no_system@1"]
        await bench.say("again")
    assert (client.refused, bool(client.requests[-1].tools)) == (2, True)


async def test_an_owner_lets_it_be_asked_in_the_usual_form_again(memory_store: TapeStore) -> None:
    model, client, late = strict(no_tools)
    async with running(memory_store, model) as bench:
        late.lessons = bench.lessons
        await bench.say("hello")
        for name in ("assumed", "unread", "context"):
            bench.lessons.try_out(lesson := Lesson.of_size(NAME, "", name, 2_050))
            await bench.lessons.keep([lesson])
        assert "since: no_tools@1, context:2050@1." in (await bench.say(",model")).text
        client.judge = lambda _: ""
        assert (await bench.say(",model.relearn")).text == f"I ask {NAME} in the usual form again."
        await bench.say("hello")
        assert client.requests[-1].tools
        assert (await bench.say(",model.relearn")).text == f"{NAME} has refused nothing so far."
        assert len(await bench.events("model/forgotten", "bubbot/models")) == 1
        fresh = ModelLessons(bench.service("bubbot/models"))
        await fresh.load()
        assert fresh.find_known(NAME) == []


async def test_nobody_else_takes_back_what_was_learned(memory_store: TapeStore) -> None:
    model, client, late = strict(no_tools)
    async with running(memory_store, model, Options(role=Role.ADMIN)) as bench:
        late.lessons = bench.lessons
        await bench.say("hello")
        assert "owner" in (await bench.say(",model.relearn")).text
        assert await bench.events("model/forgotten", "bubbot/models") == []
        await bench.say("again")
    assert client.refused == 1


async def test_of_equal_lessons_the_first_counts(memory_store: TapeStore) -> None:
    """Two turns at the same moment, in two processes one after the other."""
    lessons = ModelLessons(budget_tape(memory_store))
    for _ in range(2):
        lesson = Lesson(NAME, "", "no_tools@1")
        lessons.try_out(lesson)
        await lessons.keep([lesson])
    await lessons.load()
    assert [lesson.fact for lesson in lessons.find(NAME, "")] == [("bubbot/models", 1)]


@pytest.mark.parametrize("words", ["", "a passing trouble"])
async def test_a_refusal_that_teaches_nothing_is_not_repeated(memory_store: TapeStore, words: str) -> None:
    model, client, late = strict(lambda _: words or "no")
    async with running(memory_store, model) as bench:
        late.lessons = bench.lessons
        assert (await bench.say("hello")).status == "failed"
    assert len(client.requests) == 1


class TestMalformed:
    """A provider says itself that what the model wrote is not an answer."""

    @staticmethod
    def model(*malformed: str) -> Replying:
        left = list(malformed)

        async def stream(_: ModelRequest) -> AsyncIterator[ModelEvent]:
            if left:
                if text := left.pop(0):
                    yield TextDelta(text)
                failure = ModelUnavailable("wrote something that is not an answer")
                failure.is_malformed = True
                raise failure
            yield TextDelta("fine")
            yield ModelReply("fine", usage=Usage(3, 2))

        return Replying(stream)

    async def test_it_is_asked_once_more_and_what_people_saw_is_taken_back(self, memory_store: TapeStore) -> None:
        shown: list[object] = []
        model, budget = self.model("I will look"), await opened(memory_store, plan(day=1_000_000))
        options = Options(features=[metering(budget)], show=lambda _, event: shown.append(event))
        async with running(memory_store, model, options) as bench:
            result = await bench.say("hello")
            (step,) = await steps(bench)
        assert (result.text, len(model.requests)) == ("fine", 2)
        assert [attempt["status"] for attempt in step["attempts"]] == ["failed", "ok"]
        assert all(attempt["cost"] > 0 for attempt in step["attempts"])
        assert step["cost"] == sum(attempt["cost"] for attempt in step["attempts"])
        kinds = [type(event).__name__ for event in shown]
        assert kinds.index("TextDiscarded") in range(kinds.index("TextStreamed"), len(kinds))
        names = [entry.name for entry in await budget_entries(memory_store)]
        assert names.count("budget/reserved") == names.count("budget/settled") == 2

    @pytest.mark.parametrize(("malformed", "asked"), [(("a", "b"), 2), (("",), 1)])
    async def test_not_more_often_than_that(
        self, memory_store: TapeStore, malformed: tuple[str, ...], asked: int
    ) -> None:
        """Nothing at all was tried again by the model itself."""
        model = self.model(*malformed)
        async with running(memory_store, model) as bench:
            assert (await bench.say("hello")).status == "failed"
        assert len(model.requests) == asked
