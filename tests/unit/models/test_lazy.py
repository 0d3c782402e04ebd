"""The model that is loaded when it is needed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from bubbot.errors import ConfigError, ModelError
from bubbot.models.fallback import FallbackModel
from bubbot.models.lazy import LazyModel
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import Model, ModelReply, ModelRequest, ModelTraits, TokenCount, Transcript

REQUEST = ModelRequest("", ({"role": "user", "content": "hi"},))


async def asked(model: Model) -> str:
    [reply] = [event async for event in model.stream(REQUEST) if isinstance(event, ModelReply)]
    return reply.text


async def test_nothing_is_loaded_until_somebody_asks_and_then_once() -> None:
    loads: list[int] = []  # the threads

    def load() -> Model:
        loads.append(threading.get_ident())
        return ScriptedModel()

    model = LazyModel("x/y", ModelTraits(context_tokens=5), load)
    assert (model.name, model.traits.context_tokens) == ("x/y", 5)
    assert loads == []
    assert list(await asyncio.gather(asked(model), asked(model))) == ["You said: hi"] * 2
    assert len(loads) == 1
    assert loads[0] != threading.get_ident()
    await model.aclose()


async def test_a_load_that_fails_is_tried_again() -> None:
    results: list[Model | ConfigError] = [ConfigError("broken"), ScriptedModel()]

    def load() -> Model:
        found = results.pop(0)
        if isinstance(found, ConfigError):
            raise found
        return found

    model = LazyModel("x/y", ModelTraits(), load)
    with pytest.raises(ConfigError, match="broken"):
        await asked(model)
    assert await asked(model) == "You said: hi"


async def test_who_stops_waiting_does_not_stop_the_load() -> None:
    go = threading.Event()

    def load() -> Model:
        go.wait(5)
        return ScriptedModel()

    model = LazyModel("x/y", ModelTraits(), load)
    first = asyncio.create_task(asked(model))
    await asyncio.sleep(0)
    second = asyncio.create_task(asked(model))
    await asyncio.sleep(0)
    first.cancel()
    go.set()
    assert await second == "You said: hi"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_model_that_was_never_asked_closes_at_once() -> None:
    await LazyModel("x/y", ModelTraits(), ScriptedModel).aclose()


class Counting(ScriptedModel):
    """One that can count."""

    async def count(self, request: ModelRequest) -> TokenCount | None:
        return TokenCount(len(request.messages), "own")


async def test_it_counts_once_it_is_loaded_and_declines_where_the_model_cannot() -> None:
    for made, counted in ((Counting(), TokenCount(1, "own")), (ScriptedModel(), None)):
        loads: list[int] = []

        def load(made: Model = made, loads: list[int] = loads) -> Model:
            loads.append(1)
            return made

        model = LazyModel("x/y", ModelTraits(), load)
        assert await model.count(REQUEST) == counted
        assert await asked(model) == "You said: hi"
        assert loads == [1]  # the count and the call wait for the same load
        await model.aclose()


async def test_closing_waits_for_the_load_and_closes_the_model_that_it_made() -> None:
    closed: list[Model] = []

    class Closing(ScriptedModel):
        """Says that it was closed."""

        async def aclose(self) -> None:
            """See `Model.aclose`."""
            closed.append(self)

    made = Closing()
    model = LazyModel("x/y", ModelTraits(), lambda: made)
    model.warm()
    await model.aclose()
    assert closed == [made]


class Connecting(ScriptedModel):
    """Notes that it was connected."""

    def __init__(self) -> None:
        super().__init__()
        self.connected = asyncio.Event()

    async def connect(self) -> None:
        self.connected.set()


async def test_a_model_that_is_warmed_opens_its_connection() -> None:
    made = Connecting()
    model = LazyModel("x/y", ModelTraits(), lambda: made)
    model.warm()
    async with asyncio.timeout(60):
        await made.connected.wait()
    await model.aclose()


async def test_a_model_that_is_only_asked_opens_none_ahead() -> None:
    made = Connecting()
    model = LazyModel("x/y", ModelTraits(), lambda: made)
    await asked(model)
    await model.aclose()
    assert not made.connected.is_set()


async def test_closing_ends_a_connection_that_does_not_open() -> None:
    opening, cancelled = asyncio.Event(), asyncio.Event()

    class Hanging(ScriptedModel):
        """One whose provider does not answer."""

        async def connect(self) -> None:
            opening.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    model = LazyModel("x/y", ModelTraits(), Hanging)
    model.warm()
    async with asyncio.timeout(60):
        await opening.wait()
        await model.aclose()
    assert cancelled.is_set()


async def test_it_writes_down_recordings_if_its_model_can() -> None:
    class Hearing(ScriptedModel):
        """One that writes down recordings."""

        async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
            return Transcript(f"{data!r} {name} {media_type}")

    model = LazyModel("x/y", ModelTraits(), Hearing)
    assert (await model.transcribe(b"x", "a.ogg", "audio/ogg")).text == "b'x' a.ogg audio/ogg"
    with pytest.raises(ModelError, match=r"^x/y cannot write down what recordings say$"):
        await LazyModel("x/y", ModelTraits(), ScriptedModel).transcribe(b"x", "a.ogg", "audio/ogg")


async def test_a_load_that_fails_while_warming_is_not_an_error_of_its_own() -> None:
    def load() -> Model:
        raise ConfigError("broken")

    model = LazyModel("x/y", ModelTraits(), load)
    model.warm()
    with pytest.raises(ConfigError):
        await asked(model)
    await model.aclose()


async def test_it_says_that_it_is_loading_from_the_first_wish_to_the_end_of_the_load() -> None:
    release = threading.Event()
    results: list[Model | ConfigError] = [ConfigError("broken"), ScriptedModel()]

    def load() -> Model:
        release.wait(10)
        found = results.pop(0)
        if isinstance(found, ConfigError):
            raise found
        return found

    model = LazyModel("x/y", ModelTraits(), load)
    fallback = FallbackModel("a/b", ModelTraits(), (ScriptedModel(), model))
    states = [(model.is_loading, fallback.is_loading)]
    for _ in range(2):
        release.clear()
        asking = asyncio.create_task(asked(model))
        await asyncio.sleep(0)
        states.append((model.is_loading, fallback.is_loading))
        release.set()
        await asyncio.wait([asking])
        states.append((model.is_loading, fallback.is_loading))
    assert states == [(False, False), (True, True), (False, False), (True, True), (False, False)]
    assert asking.result() == "You said: hi"
    await model.aclose()
