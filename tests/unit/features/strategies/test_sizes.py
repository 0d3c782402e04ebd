"""Sizes of contexts: what refusals and counts tell, and what people are told once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from msgspec import structs

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import ModelOverflow
from bubbot.feature import Around, Feature
from bubbot.features.strategies.sizes import ContextSizes, least_tokens, read_size
from bubbot.models.catalogue.sizes import find_traits
from bubbot.models.catalogue.tokens import TokenizerCache
from bubbot.models.lazy import LazyModel
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role
from bubbot.ports.model import Lesson, ModelEvent, ModelReply, ModelRequest, ModelTraits, RequestFit, Usage
from bubbot.runtime.compose import ContextPolicy
from bubbot.runtime.lessons import ModelLessons
from bubbot.stores.inmemory import InMemoryStore
from tests.turns import Bench, Options, no_lessons, running

TEXTS = {
    "English": "We talk about the garden, the harvest of this year, and what to cook for twelve guests on Friday. ",
    "German": "Wir sprechen über den Garten, die Ernte dieses Jahres und das Abendessen für zwölf Gäste am Freitag. ",
    "Russian": "Мы говорим о саде, об урожае этого года и о том, что приготовить в пятницу для двенадцати гостей. ",
    "Chinese": "我们谈论花园、今年的收成，以及星期五要为十二位客人做什么菜。",
    "Japanese": "庭のこと、今年の収穫、そして金曜日に十二人のお客さんへ何を料理するかを話します。",
    "Korean": "우리는 정원과 올해의 수확, 그리고 금요일에 손님 열두 명에게 무엇을 요리할지 이야기합니다. ",
    "Hindi": "हम बगीचे, इस साल की फसल और शुक्रवार को बारह मेहमानों के लिए क्या पकाना है, इस बारे में बात करते हैं। ",
    "Thai": "เราคุยกันเรื่องสวน ผลผลิตปีนี้ และจะทำอาหารอะไรให้แขกสิบสองคนในวันศุกร์ ",
    "code": "def harvest(garden: Garden, year: int) -> list[Apple]:\n    return [apple for apple in garden if apple.ripe]\n",
    "a drawing": "=" * 300 + "\n" + " " * 200 + "|\n",
    "a table": "| name | weight | price |\n|------|--------|-------|\n| apple | 12 | 3.50 |\n",
}


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerCache:
    return TokenizerCache()


@pytest.mark.parametrize("model", ["openai/gpt-4o", "openai/gpt-4"])
@pytest.mark.parametrize("language", TEXTS)
def test_no_text_has_fewer_tokens_than_it_is_thought_to_have_at_least(
    tokenizers: TokenizerCache, language: str, model: str
) -> None:
    text = TEXTS[language] * 60
    count = tokenizers.count_text(model, text)
    if count is None:
        pytest.skip("litellm does not bring this tokenizer")
    assert least_tokens(ModelRequest("", ({"role": "user", "content": text},))) < 0.95 * count


def test_a_request_with_images_is_not_judged() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "x y " * 9_000}, image]
    assert least_tokens(ModelRequest("", ({"role": "user", "content": parts},))) == 0


@pytest.mark.parametrize(
    ("words", "size"),
    [
        ("This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.", 8192),
        ("the request exceeds the available context size (4096 tokens), try increasing it", 4096),
        ("exceed_context_size_error n_prompt_tokens: 5000, n_ctx: 4096", 4096),
        ("the model is loaded with context length of only 4096 tokens, which is not enough", 4096),
        ("Prompt contains 40000 tokens, too large for model with 32768 maximum context length", 32768),
        ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 4096),
        ("maximum context length is 128,000 tokens", 128_000),
        ("please reduce the length of the messages", None),
        ("exceeds the context window of 3", None),
        ("input is too long for the requested model: 12 files", None),
    ],
)
def test_the_size_that_a_refusal_names_is_read(words: str, size: int | None) -> None:
    assert read_size(words) == size


def test_a_size_that_nobody_knows_is_assumed_and_gives_way_to_one_that_is_told() -> None:
    lessons = no_lessons()
    traits = find_traits("openai/own", own_address=True, server="127.0.0.1:8080")
    model = LazyModel("openai/own", traits, ScriptedModel, lessons)
    assert (model.traits.context_tokens, model.traits.assumes_size) == (32_768, True)
    lessons.try_out(Lesson.of_size("openai/own", "elsewhere", "context", 4_096))
    assert model.traits.assumes_size
    lessons.try_out(Lesson.of_size("openai/own", "127.0.0.1:8080", "context", 8_192))
    assert (model.traits.context_tokens, model.traits.assumes_size) == (8_192, False)
    assert not find_traits("openai/own", context_tokens=9_000).assumes_size
    assert not find_traits("openai/gpt-4o").assumes_size


class Server(ScriptedModel):
    """A model behind an own address. `read` are the tokens that it counts of each request, None: a fourth of its bytes; `refused` is
    what it says of requests that are longer than `most` bytes."""

    def __init__(
        self, lessons: ModelLessons, *, size: int = 6_000, most: int = 10**9, refused: str = "", cached: int = 0
    ) -> None:
        super().__init__()
        self.read: list[int | None] = []
        self.fit: RequestFit | None = None
        self.reads_tools = True
        self._lazy = LazyModel(
            "openai/own",
            structs.replace(ModelTraits(context_tokens=size, assumes_size=True), server="127.0.0.1:11434"),
            ScriptedModel,
            lessons,
        )
        self._most, self._refused, self._cached = most, refused, cached

    @property
    def name(self) -> str:
        return "openai/own"

    @property
    def traits(self) -> ModelTraits:
        return self._lazy.traits

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self.requests.append(request)
        size = len(request.as_bytes())
        if size > self._most:
            raise ModelOverflow(self._refused)
        read = self.read.pop(0) if self.read else None
        if not self.reads_tools:
            read = least_tokens(request, with_tools=False) + 1
        yield ModelReply("ok", usage=Usage(size // 4 if read is None else read, 1, self._cached), fit=self.fit)


def learning(lessons: ModelLessons, *, role: Role = Role.OWNER) -> Options:
    sizes = ContextSizes(lessons)
    policy = ContextPolicy(strategies=OWN_STRATEGIES)
    feature = Feature(name="strategies", around=Around(turn=(sizes.around_turn,), model=(sizes.around_model,)))
    return Options(compose=policy, features=[feature], lessons=lessons, role=role)


async def say(bench: Bench, *texts: str) -> list[str]:
    """The notices beside the answers."""
    return [(await bench.say(text)).text.removesuffix("ok").strip() for text in texts]


async def test_a_server_that_cuts_unseen_is_told_once(memory_store: InMemoryStore) -> None:
    lessons = no_lessons()
    model = Server(lessons, size=100_000)
    async with running(memory_store, model, learning(lessons)) as bench:
        model.read = [2_050, 2_048, 2_050, 2_050]
        long = TEXTS["English"] * 200
        first, second, third = await say(bench, long, "hello", "and now?")
        assert (first, third) == ("", "")
        assert "only some 2048 tokens" in second
        assert "OLLAMA_CONTEXT_LENGTH" in second
        assert [lesson.rule for lesson in lessons.find_known("openai/own")] == ["unread:2048@1"]


async def test_each_answer_may_come_from_a_process_of_its_own(memory_store: InMemoryStore) -> None:
    lessons, told = no_lessons(), []
    for number, life in enumerate(("first", "second", "third")):
        model = Server(lessons, size=100_000)
        model.read = [2_050]
        async with running(memory_store, model, learning(lessons), life=life) as bench:
            told += await say(bench, TEXTS["English"] * 200 if not number else "hello")
    assert [bool(notice) for notice in told] == [False, True, False]


@pytest.mark.parametrize(
    ("read", "cached"),
    [
        ([2_050, None, 2_050], 0),
        ([999] * 3, 0),
        ([2_050, 2_050, 2_050], 1),
        ([None] * 3, 0),
        ([1_100, 3_000, 1_100], 0),
    ],
    ids=["not in a row", "the rest was in its cache", "cached", "all", "different counts"],
)
async def test_a_count_that_proves_nothing_is_not_told(
    memory_store: InMemoryStore, read: Sequence[int | None], cached: int
) -> None:
    lessons = no_lessons()
    model = Server(lessons, size=100_000, cached=cached)
    async with running(memory_store, model, learning(lessons)) as bench:
        model.read = [*read]
        assert await say(bench, TEXTS["English"] * 200, "hello", "and now?") == ["", "", ""]
    assert not lessons.find_known("openai/own")


@pytest.mark.parametrize(("fit", "is_told"), [(RequestFit((("no_tools@1", None),), {}, ""), False), (None, True)])
async def test_tools_that_were_not_sent_do_not_count(
    memory_store: InMemoryStore, fit: RequestFit | None, is_told: bool
) -> None:
    lessons = no_lessons()
    model = Server(lessons, size=100_000)
    model.fit, model.reads_tools = fit, False
    async with running(memory_store, model, learning(lessons)) as bench:
        await say(bench, TEXTS["English"] * 60, "hello", "and now?")
    assert bool(lessons.find_known("openai/own")) == is_told


async def test_a_size_that_a_refusal_names_holds_from_then_on(memory_store: InMemoryStore) -> None:
    lessons = no_lessons()
    refused = "maximum context length is 8192 tokens"
    model = Server(lessons, size=100_000, most=30_000, refused=refused)
    async with running(memory_store, model, learning(lessons)) as bench:
        notices = await say(bench, *[TEXTS["English"] * 40] * 12)
        assert sum("8192 tokens at most" in notice for notice in notices) == 1
        assert model.traits.context_tokens == 8_192
        steps = await bench.events("loop.step")
        assert [step["status"] for step in steps].count("auto_handoff") == 1
        assert lessons.find_known("openai/own")[0].rule == "context:8192@1"


@pytest.mark.parametrize(("role", "told"), [(Role.OWNER, 1), (Role.MEMBER, 0)])
async def test_an_assumed_size_is_told_to_the_owner_once_it_cuts(
    memory_store: InMemoryStore, role: Role, told: int
) -> None:
    lessons = no_lessons()
    async with running(memory_store, Server(lessons), learning(lessons, role=role)) as bench:
        notices = await say(bench, *[TEXTS["English"] * 8] * 40)
        assert sum("I assume 6000 tokens" in notice for notice in notices) == told
        assert len(await bench.events("context/cut")) > 1
