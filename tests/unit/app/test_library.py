"""bubbot as a library: the stable names, the tapes of a home, and a bot of one's own, over real SQLite."""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import bubbot
from bubbot import (
    ContextInput,
    ContextMessage,
    ContextPrepared,
    ContextStrategy,
    ContextView,
    EntryId,
    Fact,
    Feature,
    FeatureFactory,
    Kernel,
    ModelContext,
    NoArguments,
    PreparationInput,
    SettingsSection,
    StrategyPorts,
    TapeQuery,
    Turn,
    message,
    open_bot,
    open_store,
    select_messages,
)
from bubbot.app.tapes import tape_service
from bubbot.errors import ConfigError, EntryInvalid, HomeLocked, StoreUnavailable, TapeConflict
from bubbot.features.access.facts import Reading
from bubbot.home import Home
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.handle import TapeHandle
from bubbot.tool import tool
from tests.docs.pages import ROOT, Block, blocks

PAGE = ROOT / "docs" / "reference" / "python.md"


class Painted(Fact):
    """A colour, and the message that asked for it."""

    EVENTS = ("test/painted",)
    colour: str
    asked: EntryId


async def texts(tape: TapeHandle) -> list[str]:
    (entries,) = await tape.fetch([TapeQuery(tape.name, kinds=("message",))])
    return [str(entry.payload["content"]) for entry in entries]


def user(text: str) -> bubbot.TapeEntry:
    return message("user", text)


class TestNames:
    def test_each_is_there_and_type_checkers_are_told_the_same(self) -> None:
        stub = ast.parse((ROOT / "bubbot" / "__init__.pyi").read_text(encoding="utf-8"))
        told = {
            alias.name: node.module
            for node in stub.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname == alias.name
        }
        offered = {name: getattr(bubbot, name) for name in bubbot.__all__ if name != "__version__"}
        assert told.keys() == offered.keys()
        for name, module in told.items():
            assert getattr(sys.modules[module or ""], name) is offered[name]

    def test_the_page_lists_each_of_them_and_no_other(self) -> None:
        section = PAGE.read_text(encoding="utf-8").partition("## What is stable")[2].partition("Two decorators")[0]
        listed = re.findall(r"`(\w+)`", section.partition("|---|---|")[2])
        assert sorted(listed) == sorted({*bubbot.__all__} - {"__version__"})

    def test_bubbot_itself_imports_nothing_and_knows_no_other_name(self) -> None:
        code = "import sys, bubbot; print([name for name in sys.modules if name.startswith(('bubbot.', 'msgspec', 'pydantic'))])"
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
        assert ran.stdout.strip() == "[]"
        with pytest.raises(AttributeError, match="has no attribute 'open_stroe'"):
            _ = bubbot.open_stroe  # type: ignore[attr-defined]
        assert "open_store" in dir(bubbot)


class TestTapes:
    async def test_what_is_written_is_there_again_and_sessions_have_tapes(self, tmp_path: Path) -> None:
        async with open_store(tmp_path / "home") as store:
            await store.tape("garden").append([user("green")])
            await store.session("telegram:42").append([user("hello")])
        async with open_store(tmp_path / "home", read_only=True) as store:
            assert await texts(store.tape("garden")) == ["green"]
            assert await texts(store.session("telegram:42")) == ["hello"]
            assert len(await store.names()) == 2

    async def test_one_writes_at_a_time_and_a_missing_home_is_not_read(self, tmp_path: Path) -> None:
        async with open_store(tmp_path / "home"):
            with pytest.raises(HomeLocked):
                async with open_store(tmp_path / "home"):
                    pass
            async with open_store(tmp_path / "home", read_only=True) as store:
                assert await store.names() == []
        with pytest.raises(StoreUnavailable):
            async with open_store(tmp_path / "other", read_only=True):
                pass

    async def test_the_store_is_the_one_of_the_home(self, tmp_path: Path) -> None:
        (tmp_path / "config.toml").write_text('[store]\nkind = "elsewhere"\n')
        with pytest.raises(ConfigError, match=r"\[store\] kind: No plugin 'elsewhere'"):
            async with open_store(tmp_path):
                pass
        assert not (tmp_path / "bubbot.db").exists()

    async def test_search_and_memory_see_what_a_fork_has_and_the_tape_sees_it_after_the_merge(
        self, tmp_path: Path
    ) -> None:
        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            await tape.append([user("The door is green"), user("The fence is blue")])
            assert [entry.id for entry in await tape.search("doro")] == [1], "typing mistakes are found, too"
            async with tape.fork() as fork:
                await fork.append([user("The door is red")])
                await fork.memory.save_long_term("Red doors.")
                assert [entry.id for entry in await fork.search("the door", limit=1)] == [3]
                assert "Red doors." in await fork.memory.get_context()
                assert [entry.id for entry in await tape.search("door")] == [1]
                assert "Red doors." not in await tape.memory.get_context()
            assert "Red doors." in await tape.memory.get_context()
            assert [entry.id for entry in await tape.search("is red")] == [3]
            assert await tape.search("") == ()

    async def test_a_tape_without_them_says_so(self) -> None:
        tape = tape_service(InMemoryStore(), "garden")
        with pytest.raises(ConfigError, match=r"bubbot\.open_store has them"):
            await tape.search("door")
        with pytest.raises(ConfigError, match=r"bubbot\.open_store has them"):
            _ = tape.memory

    async def test_a_fact_of_bubbot_is_not_declared_twice(self, tmp_path: Path) -> None:
        class Clash(Fact):
            EVENTS = ("turn/end",)

        with pytest.raises(EntryInvalid, match="turn/end are declared twice"):
            async with open_store(tmp_path, facts=[Clash]):
                pass


@pytest.mark.law("T13")
class TestForks:
    async def test_blocks_within_blocks_merge_inwards_out(self, tmp_path: Path) -> None:
        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            await tape.ensure_bootstrap_anchor()
            async with tape.fork() as fork:
                await fork.append([user("one")])
                async with fork.fork() as inner:
                    await inner.append([user("two")])
                    async with inner.fork() as innermost:
                        await innermost.append([user("three")])
                        assert await texts(innermost) == ["one", "two", "three"]
                        assert await texts(fork) == ["one"]
                assert await texts(fork) == ["one", "two", "three"]
                assert await texts(tape) == []
            assert await texts(tape) == ["one", "two", "three"]
            assert await tape.open_forks() == []
            context = await tape.read(ContextView())
            assert [each.message["content"] for each in context.context_messages][-3:] == ["one", "two", "three"], (
                "a fork of a program is no sub-task: what it wrote is shown and found"
            )
            assert [entry.id for entry in await tape.search("three")] == [4]

    async def test_an_exception_discards_its_block_and_no_other(self, tmp_path: Path) -> None:
        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            async with tape.fork() as fork:
                await fork.append([user("kept")])
                with pytest.raises(ValueError, match="inner"):  # noqa: PT012 - the block is what is tested
                    async with fork.fork() as inner:
                        await inner.append([user("lost")])
                        raise ValueError("inner")
            assert await texts(tape) == ["kept"]
            with pytest.raises(ValueError, match="outer"):  # noqa: PT012
                async with tape.fork() as fork, fork.fork() as inner:
                    await inner.append([user("lost, too")])
                    raise ValueError("outer")
            assert await texts(tape) == ["kept"]
            assert await tape.open_forks() == []

    async def test_a_cancelled_block_is_discarded(self, tmp_path: Path) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with tape.fork() as fork:
                await fork.append([user("lost")])
                await fork.save()
                inside.set()
                await asyncio.Event().wait()

        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await texts(tape) == []
            assert await tape.open_forks() == []

    async def test_it_is_discarded_on_request_and_a_merge_within_the_block_is_enough(self, tmp_path: Path) -> None:
        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            async with tape.fork() as fork:
                await fork.append([user("lost")])
                await fork.discard()
                assert fork.is_closed
            async with tape.fork() as fork:
                await fork.append([user("kept")])
                await fork.merge()
            assert await texts(tape) == ["kept"]

    async def test_one_that_cannot_be_merged_says_so_and_is_gone(self, tmp_path: Path) -> None:
        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            with pytest.raises(TapeConflict):  # noqa: PT012
                async with tape.fork() as fork:
                    await fork.append([bubbot.event("test/one", {"a": 1}, key="k")])
                    await tape.append([bubbot.event("test/one", {"a": 2}, key="k")])
            assert await tape.open_forks() == []
            assert await tape.head() == 1

    async def test_declared_references_follow_through_forks_of_forks(self, tmp_path: Path) -> None:
        async with open_store(tmp_path, facts=[Painted]) as store:
            tape = store.tape("garden")
            async with tape.fork() as fork:
                async with fork.fork() as inner:
                    (asked,) = await inner.append([user("paint it green")])
                    await inner.append([Painted("green", asked.id).to_entry()])
                    await fork.append([user("meanwhile in the fork")])
                await tape.append([user("meanwhile on the tape")])
            ((painted,),) = await tape.fetch([TapeQuery(tape.name, kinds=("event",), names=Painted.EVENTS)])
            found = await tape.entry(Painted.of(painted).asked)
            assert found.payload["content"] == "paint it green"
            assert found.id == 3

    async def test_it_can_be_awaited_instead_and_then_stays_open(self, tmp_path: Path) -> None:
        async with open_store(tmp_path) as store:
            tape = store.tape("garden")
            fork = await tape.fork()
            inner = await fork.fork()
            await inner.append([user("one")])
            await inner.merge()
            assert await texts(tape) == []
            await fork.merge()
            assert await texts(tape) == ["one"]


def show_newest(source: ContextInput) -> ModelContext:
    return ModelContext(select_messages(source.entries, source.style)[-1:])


SETTINGS = {"model": {"name": "scripted"}, "context": {"selector": "newest"}}
PLAIN_SETTINGS = {"model": {"name": "scripted"}}


class TestBot:
    async def test_a_strategy_of_ones_own_needs_no_package(self, tmp_path: Path) -> None:
        asked = list[str]()

        async def ask(ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
            asked.append(await ports.ask_model([{"role": "user", "content": "what now?"}]))
            assert "lasting notes" in await ports.read_memory()
            return [
                ContextPrepared(data={"text": asked[-1]}, entries=((source.answered[0].id, source.answered[0].id),))
            ]

        newest = ContextStrategy("newest", show_newest, prepare=ask)
        async with open_bot(tmp_path, SETTINGS, strategies=[newest]) as bot:
            assert (await bot.say("Hello")).text == "You said: Hello"
            assert "newest" in (await bot.say(",strategy")).text
            assert "newest/prepare: step 0" in (await bot.say(",why")).text
        assert asked == ["You said: what now?"]
        async with open_store(tmp_path, read_only=True) as store:
            tape = store.session("stdin:default")
            ((prepared,),) = await tape.fetch([TapeQuery(tape.name, kinds=("event",), names=ContextPrepared.EVENTS)])
            assert ContextPrepared.of(prepared).data == {"text": "You said: what now?"}

    async def test_what_it_took_from_a_granted_chat_goes_and_comes_with_the_grant(self, tmp_path: Path) -> None:
        def show(source: ContextInput) -> ModelContext:
            messages = select_messages(source.entries, source.style)
            words = [str(each.message["content"]) for each in messages]
            ids = tuple([number for each in messages for number in each.ids])
            brief = "".join([str(each.data["text"]) for each in source.find_prepared("newest")])
            return ModelContext((ContextMessage({"role": "user", "content": f"{words} Prepared: {brief}."}, ids),))

        async def read(ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
            if "trip" not in str(source.answered[-1].payload):
                return ()
            found = await ports.read_granted("stdin:family", limit=1)
            return [ContextPrepared(data={"text": str(found.entries[0].payload["content"])})]

        answers = list[str]()
        lines = (("The trip?", "Really?"), ("And now?",), ("And again?",))
        for event, said in zip(("granted", "revoked", "granted"), lines, strict=True):
            async with open_bot(tmp_path, PLAIN_SETTINGS) as bot:
                await bot.say("We fly to Rome", chat="family")
                reading = Reading("stdin:family", "stdin:default", "terminal").to_entry(f"access/reading_{event}")
                await tape_service(bot.store, "bubbot/access").append([reading])
            strategies = [ContextStrategy("newest", show, prepare=read)]
            async with open_bot(tmp_path, SETTINGS, strategies=strategies) as bot:
                answers += [(await bot.say(line)).text for line in said]
        endings = ["Rome" in text.rpartition("Prepared: ")[2] for text in answers]
        assert endings == [True, True, False, True]
        assert ["Left out: it rests on entries of another chat" in text for text in answers[:3]] == [False, False, True]

    async def test_one_that_fails_gives_the_window(self, tmp_path: Path) -> None:
        def fail(_source: ContextInput) -> ModelContext:
            raise RuntimeError("boom")

        async with open_bot(tmp_path, SETTINGS, strategies=[ContextStrategy("newest", fail)]) as bot:
            assert (await bot.say("Hello")).text == "You said: Hello"
            assert "the context strategy newest failed, so window built the request" in (await bot.say(",why")).text

    async def test_a_feature_of_ones_own_has_its_section_commands_and_events(self, tmp_path: Path) -> None:
        class Shop(SettingsSection):
            greeting: str = "welcome"

        def build(_kernel: Kernel, settings: Shop) -> Feature:
            @tool("shop.greet", commands=("greet",))
            async def greet(turn: Turn, args: NoArguments) -> str:
                """Greet."""
                await turn.tape.append([Painted("green", 1).to_entry()])
                return settings.greeting

            return Feature(name="shop", tools=[greet])

        shop = FeatureFactory("shop", build, settings=Shop, events={"test/painted": Painted})
        tables = {"model": {"name": "scripted"}, "shop": {"greeting": "hello there"}}
        async with open_bot(tmp_path, tables, features=[shop]) as bot:
            assert (await bot.say(",greet")).text == "hello there"
        for name, events, problem in (
            ("memory", {}, "'memory' has a name that bubbot uses itself"),
            ("shop", {"turn/end": Painted}, "turn/end are declared twice"),
        ):
            with pytest.raises(ConfigError, match=problem):
                async with open_bot(tmp_path, {}, features=[FeatureFactory(name, build, events=events)]):
                    pass

    async def test_what_it_cannot_use_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="did you mean 'newest'"):
            async with open_bot(
                tmp_path,
                {**SETTINGS, "context": {"selector": "newst"}},
                strategies=[ContextStrategy("newest", show_newest)],
            ):
                pass
        with pytest.raises(ConfigError, match="'window' has a name that is taken"):
            async with open_bot(tmp_path, SETTINGS, strategies=[ContextStrategy("window", show_newest)]):
                pass
        with pytest.raises(ConfigError, match=r"\[context\] summary_at"):
            async with open_bot(tmp_path, {"context": {"summary_at": 7}}):
                pass
        with pytest.raises(ConfigError, match="modle"):
            async with open_bot(tmp_path, {"modle": {}}):
                pass

    async def test_retrieval_recalls_through_the_same_interface_once_a_chat_has_chosen_it(self, tmp_path: Path) -> None:
        async with open_bot(tmp_path, {"model": {"name": "scripted"}}) as bot:
            await bot.say("My locker has the number 4711")
            await bot.say(",new")
            await bot.say("What is a locker?")
            await bot.say(",strategy retrieval")
            await bot.say("And which number has my locker now?")
            assert "equal to the recorded one" in (await bot.say(",why yes")).text
            tape = bot.tape("stdin:default")
            (entries,) = await tape.fetch([TapeQuery(tape.name)])
        said = next(entry.id for entry in entries if entry.payload.get("content") == "My locker has the number 4711")
        recalled = [entry.data["entries"] for entry in entries if entry.name == "context/recalled"]
        assert len(recalled) == 1, "only after the chat has chosen it"
        assert any(low <= said <= high for low, high in recalled[0])

    async def test_without_tables_it_reads_the_file_of_the_home(self, tmp_path: Path) -> None:
        Home(tmp_path).ensure()
        (tmp_path / "config.toml").write_text('[model]\nname = "scripted"\n[bot]\nlanguage = "de"\n')
        async with open_bot(tmp_path) as bot:
            assert (await bot.say("Hello")).text == "You said: Hello"
            assert (await bot.say(",strategy")).text.startswith("Dieser Chat")


@pytest.mark.parametrize("block", [block for block in blocks(PAGE) if block.runnable], ids=str)
def test_a_program_of_the_page_runs_and_prints_what_the_page_shows(block: Block, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=60,
        env={"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
    )
    assert (ran.stdout, ran.stderr) == (block.output, "")
    assert len(block.text.splitlines()) <= 35
