"""Installed features whose code fails: the bot goes on, loses nothing, doubles nothing, and names the feature.

Each is a package that is really installed, in a bot with a real database.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.guard import GuardTimeouts
from bubbot.app.settings import load
from bubbot.errors import BubbotError, ConfigError, DeliveryFailed
from bubbot.home import Home
from bubbot.middleware import PartDelivery
from bubbot.ports.channel import Inbound, MessagePart, Receipt, Sender
from bubbot.settings.loader import ModelSettings, Settings
from tests.installed import install_feature
from tests.tapes import whole

SETTINGS = Settings(model=ModelSettings(name="scripted"))
HEAD = """
import asyncio, sys
from dataclasses import replace
import threading
from contextlib import asynccontextmanager
from bubbot.errors import *
from bubbot.feature import Around, Feature, FeatureFactory, Lifecycle
from bubbot.ports.channel import Outbound, Receipt, Role
from bubbot.ports.settings import SettingsSection
from bubbot.arguments.fields import NoArguments
from bubbot.tool import tool
from bubbot.ports.turn import SourcedReply
from bubbot.runtime.attachments import AttachmentResult

async def boom(*args):
    raise ValueError("boom")

async def leave(*args):
    sys.exit("leaving")

async def hang(*args):
    await asyncio.Event().wait()

async def cancel(*args):
    raise asyncio.CancelledError

async def odd(*args):
    return 7

@tool("odd.ping", commands=("ping",))
async def ping(turn, args: NoArguments) -> str:
    "Say pong."
    return "pong"
"""
FAILURES = {"boom": "ValueError: boom", "leave": "SystemExit: leaving", "hang": "it took longer than 0.05 seconds"}
QUICK = GuardTimeouts(build=2.0, lifespan=0.05, hook=0.05)


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str, name: str = "odd") -> None:
    """A feature whose record is the expression `code`, or the result of a `build` that it defines."""
    body = code if "def build" in code else f"def build(kernel, settings):\n    return Feature(name={name!r}, {code})\n"
    factory = "" if "FACTORY" in code else f"FACTORY = FeatureFactory({name!r}, build)\n"
    install_feature(monkeypatch, folder / f"site_{name}", name, f"{HEAD}\n{body}\n{factory}")


class Bench:
    """A bot that people talk to."""

    def __init__(self, app: Bot, texts: list[str]) -> None:
        self.app = app
        self.texts = texts
        self.count = 0

    async def say(self, text: str, **fields: object) -> str:
        """What the chat gets in answer, after everything is delivered."""
        self.count += 1
        known = len(self.texts)
        inbound = Inbound(
            "stdin", f"{id(self)}-{self.count}", "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z",
            **fields,  # type: ignore[arg-type]
        )  # fmt: skip
        await self.app.ask(inbound)
        await self.app.deliverer.wait_until_idle()
        return "".join(self.texts[known:])

    def problems(self) -> dict[str, str]:
        return {problem.name: problem.reason for problem in self.app.features.problems}

    async def names(self) -> list[str]:
        """The entries of the session, by name or kind."""
        entries = await whole(self.app.store, self.app.tape("stdin:default").name)
        return [entry.name or str(entry.kind) for entry in entries]


@asynccontextmanager
async def opened(tmp_path: Path, settings: Settings = SETTINGS) -> AsyncIterator[Bench]:
    texts: list[str] = []
    wrappers = PortWrappers(timeouts=QUICK)
    async with open_app(
        settings, Home(tmp_path / "home"), channel_settings={"write": texts.append}, wrappers=wrappers
    ) as app:
        yield Bench(app, texts)


HELLO = re.compile(r"You said: hello\b")


class TestLeftOut:
    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("code", "reason"),
        [
            ("tools=[ping], lifecycle=Lifecycle(lifespan=lambda: 1 / 0)", "lifespan: ZeroDivisionError: division by zero"),
            ("tools=[ping], lifecycle=Lifecycle(lifespan=lambda: None)", "lifespan: AttributeError: 'NoneType' object has no attribute '__aenter__'"),
            ("tools=[ping, 7]", "TypeError: its tools holds int"),
            ("tools='ping'", "TypeError: its tools is one text"),
            ("tools=[ping], lifecycle=Lifecycle(background={'work': 7})", "TypeError: its lifecycle.background holds int"),
            ("tools=[ping], lifecycle=Lifecycle(prepare=7)", "TypeError: its lifecycle.prepare holds int"),
            ("tools=[ping], around=Around(turn='fast')", "TypeError: its around.turn is one text"),
            ("tools=[ping], around=[ping]", "TypeError: its around is list, not Around"),
            ("tools=[ping], lifespan=boom", "TypeError: Feature.__init__() got an unexpected keyword argument 'lifespan'"),
            ("tools=[ping], prompt=[None]", "TypeError: its prompt holds NoneType"),
            ("def build(kernel, settings):\n    sys.exit('no')", "SystemExit: no"),
            ("def build(kernel, settings):\n    return 'a feature'", "TypeError: it is str, not a Feature"),
            ("def build(kernel, settings):\n    return Feature(name='other')", "TypeError: it is called 'other'"),
            ("tools=[tool('tape.search', commands=('find',))(ping.run)]", "another tool is called tape.search"),
            ("tools=[tool('odd.help', commands=('help',))(ping.run)]", "another tool is called help"),
            ("tools=[ping, ping]", "TypeError: two tools answer to odd.ping: odd.ping and odd.ping"),
            ("tools=[ping, replace(ping, name='odd.pong', role='boss')]", "TypeError: its tool odd.pong is for 'boss', which is no role"),
            ("tools=[ping], sources={'schedule': type('S', (), {'build_reply': 1})}", "another source is called schedule"),
            ("tools=[ping], sources={'human': type('S', (), {'build_reply': 1})}", "another source is called human"),
        ],
    )  # fmt: skip
    async def test_a_feature_that_cannot_be_used_is_left_out_with_its_tools(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: str, reason: str
    ) -> None:
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            assert HELLO.search(await bench.say("hello"))
            assert "no command ,ping" in await bench.say(",ping")
            assert "Search" in await bench.say(",help tape.search")
            assert bench.problems() == {"odd": reason}
            assert reason in await bench.say(",status")
            (problem,) = (await bench.app.health_collector.snapshot()).features
            assert problem.is_left_out
        assert f"feature odd left out: {reason}" in caplog.text

    @pytest.mark.parametrize("failure", FAILURES)
    async def test_a_lifespan_that_cannot_be_entered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
    ) -> None:
        block = f"type('Block', (), {{'__aenter__': {failure}, '__aexit__': {failure}}})"
        install(
            monkeypatch,
            tmp_path,
            f"tools=[ping], around=Around(delivery=[boom]), lifecycle=Lifecycle(lifespan={block}, background={{'w': boom}})",
        )
        async with opened(tmp_path) as bench:
            assert HELLO.search(await bench.say("hello"))
            assert "no command ,ping" in await bench.say(",ping")
            assert bench.problems() == {"odd": f"lifespan: {FAILURES[failure]}"}
            background = [name for feature in bench.app.features.lasting for name in feature.lifecycle.background]
            assert background == [
                "schedules",
                "recording for training",
                "exports and newer weights",
                "tasks",
                "export of traces",
                "export of judgements",
            ]

    async def test_a_lifespan_that_cannot_be_left_is_named_and_the_bot_ends_in_order(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        block = "type('Block', (), {'__aenter__': odd, '__aexit__': boom})"
        install(monkeypatch, tmp_path, f"tools=[ping], lifecycle=Lifecycle(lifespan={block})")
        for _ in range(2):
            async with opened(tmp_path) as bench:
                assert "pong" in await bench.say(",ping")
        assert "feature odd failed: lifespan: ValueError: boom" in caplog.text

    async def test_one_that_is_never_built_holds_up_the_start_for_a_limited_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(
            monkeypatch, tmp_path, "def build(kernel, settings):\n    import threading\n    threading.Event().wait()"
        )
        async with opened(tmp_path) as bench:
            assert HELLO.search(await bench.say("hello"))
            assert bench.problems() == {"odd": "TimeoutError: it was not built within 2 seconds"}

    async def test_of_two_packages_with_one_tool_the_first_has_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("second", "first"):
            install(monkeypatch, tmp_path, "tools=[ping]", name)
        async with opened(tmp_path) as bench:
            assert "pong" in await bench.say(",ping")
            assert bench.problems() == {"second": "another tool is called odd.ping"}

    async def test_two_packages_with_one_feature_are_both_left_out(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for package in ("one_package", "other_package"):
            source = (
                f"{HEAD}\nFACTORY = FeatureFactory('odd', lambda kernel, settings: Feature(name='odd', tools=[ping]))"
            )
            install_feature(monkeypatch, tmp_path / package, "odd", source, package=package)
        async with opened(tmp_path) as bench:
            assert "no command ,ping" in await bench.say(",ping")
            assert "is offered by one_package and other_package: uninstall all but one." in bench.problems()["odd"]

    async def test_the_section_of_one_that_was_uninstalled_is_named_and_not_read(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.toml").write_text("[model]\nname = 'scripted'\n[weather]\ndays = 'many'\n")
        settings = load(home=home)
        assert [section.name for section in settings.unowned_sections] == ["weather"]
        async with opened(tmp_path, settings) as bench:
            assert HELLO.search(await bench.say("hello"))
            assert "[weather] is in the settings, but no such feature is installed" in await bench.say(",status")


class TestTurn:
    @pytest.mark.parametrize("failure", ["boom", "leave", "hang", "cancel", "odd"])
    async def test_a_section_of_the_prompt_is_left_out_of_the_request(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
    ) -> None:
        install(monkeypatch, tmp_path, f"tools=[ping], prompt=[{failure}]")
        reasons = {**FAILURES, "cancel": "it cancelled itself", "odd": "it returned a int, not a text"}
        async with opened(tmp_path) as bench:
            assert HELLO.search(await bench.say("hello"))
            assert bench.problems() == {"odd": f"prompt: {reasons[failure]}"}
            assert "pong" in await bench.say(",ping")

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("where", ["turn", "model"])
    @pytest.mark.parametrize("failure", ["boom", "leave", "hang", "cancel", "odd"])
    async def test_middleware_that_fails_fails_the_turn_with_a_sentence_that_names_the_feature(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, failure: str
    ) -> None:
        install(monkeypatch, tmp_path, f"around=Around({where}=[{failure}])")
        reasons = {**FAILURES, "cancel": "it cancelled itself", "odd": "it returned a int"}
        async with opened(tmp_path) as bench:
            for _ in range(2):
                answer = await bench.say("hello")
                assert f"The installed feature odd failed: around.{where}: {reasons[failure]}" in answer
                assert answer.count("trace") == 1
            assert "turn/interrupted" not in await bench.names()
            assert await bench.app.channel_runtime.inbox.open_inbounds() == ()

    @pytest.mark.parametrize("where", ["turn", "model"])
    async def test_what_was_done_before_middleware_failed_is_on_the_tape(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        code = f"""
async def late(value, call_next):
    await call_next(value)
    raise ValueError("late")
def build(kernel, settings):
    return Feature(name="odd", around=Around({where}=[late]))
"""
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            assert f"odd failed: around.{where}: ValueError: late" in await bench.say("hello")
            entries = await whole(bench.app.store, bench.app.tape("stdin:default").name)
            (step,) = [entry.payload["data"] for entry in entries if entry.name == "loop.step"]
            assert [attempt["status"] for attempt in step["attempts"]] == ["ok"]
            (error,) = [entry.payload for entry in entries if entry.kind == "error"]
            assert error["kind"] == "feature_failed"

    @pytest.mark.parametrize("where", ["turn", "model", "tool"])
    async def test_middleware_is_not_blamed_for_what_it_wraps_nor_for_its_time(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        code = f"""
async def around(value, call_next):
    try:
        return await call_next(value)
    finally:
        await asyncio.sleep(0)

@tool("odd.slow", commands=("slow",))
async def slow(turn, args: NoArguments) -> str:
    "Take a while, then fail."
    await asyncio.sleep({3 * QUICK.hook})
    raise KeyError("own")

def build(kernel, settings):
    return Feature(name="odd", around=Around({where}=[around]), tools=[slow])
"""
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            assert "KeyError: 'own'" in await bench.say(",slow")
            assert bench.problems() == {}

    @pytest.mark.parametrize("failure", ["boom", "leave", "hang"])
    async def test_what_fails_before_a_step_fails_no_step(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
    ) -> None:
        install(monkeypatch, tmp_path, f"around=Around(before_step=[{failure}])")
        async with opened(tmp_path) as bench:
            assert HELLO.search(await bench.say("hello"))
            assert bench.problems() == {"odd": f"before_step: {FAILURES[failure]}"}

    async def test_evidence_is_withheld_if_it_cannot_be_asked_whether_it_may_be_shown(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = """
from bubbot.tape.events import EvidenceNode, EvidenceQuoted

def crash(turn, quoted):
    raise ValueError("boom")

async def quote(turn):
    node = EvidenceNode(title="the first line", entries=((1, turn.message_ids[0]),))
    await turn.tape.append([EvidenceQuoted(turn.message_ids[-1], "odd", (node,)).to_entry()])

def build(kernel, settings):
    return Feature(name="odd", around=Around(before_step=[quote], withholds=[crash]))
"""
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            answer = await bench.say("hello")
            assert "From the first line: it may not be read here any more." in answer
            assert bench.problems() == {"odd": "withholds: ValueError: boom"}

    @pytest.mark.parametrize("failure", ["boom", "leave", "hang", "odd"])
    async def test_middleware_around_tools_that_fails_is_the_result_of_the_call(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
    ) -> None:
        install(monkeypatch, tmp_path, f"tools=[ping], around=Around(tool=[{failure}])")
        reasons = {**FAILURES, "odd": "it returned a int"}
        async with opened(tmp_path) as bench:
            assert f"The installed feature odd failed: around.tool: {reasons[failure]}" in await bench.say(",ping")
            assert HELLO.search(await bench.say("hello"))

    @pytest.mark.parametrize(("failure", "told"), [("leave", "SystemExit: leaving"), ("cancel", "it cancelled itself")])
    async def test_a_tool_cannot_end_the_bot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, told: str
    ) -> None:
        code = f"""
@tool("odd.end", commands=("end",))
async def end(turn, args: NoArguments) -> str:
    "End."
    return await {failure}()

def build(kernel, settings):
    return Feature(name="odd", tools=[end])
"""
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            assert f"The installed feature odd failed: odd.end: {told}" in await bench.say(",end")
            assert HELLO.search(await bench.say("hello"))

    @pytest.mark.parametrize("failure", ["boom", "leave", "hang", "cancel"])
    async def test_a_hook_after_the_merge_costs_no_answer_and_doubles_none(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
    ) -> None:
        code = f"tools=[ping], on_merged=[{failure}], lifecycle=Lifecycle(on_recovered={failure})"
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            await bench.app.recover_all()
            assert set(bench.problems()) == {"odd"}
            assert len(HELLO.findall(await bench.say("hello"))) == 1
            assert (await bench.names()).count("turn/end") == 1
        async with opened(tmp_path) as bench:
            assert await bench.app.recover_all() == 0


class TestDelivery:
    @pytest.mark.parametrize("failure", ["boom", "leave", "hang", "cancel", "odd"])
    @pytest.mark.parametrize("moment", ["before", "after"])
    async def test_a_part_is_sent_once_whatever_the_middleware_does(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, moment: str
    ) -> None:
        code = f"""
async def around(delivery, call_next):
    if {moment == "after"}:
        await call_next(delivery)
        await call_next(delivery)
    return await {failure}()
def build(kernel, settings):
    return Feature(name="odd", around=Around(delivery=[around]))
"""
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            assert len(HELLO.findall(await bench.say("hello"))) == 1
            assert await bench.app.channel_runtime.outbox.pending() == ()
            assert bench.problems()["odd"].startswith("around.delivery: ")

    async def test_a_refusal_of_the_platform_stays_what_it_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = """
async def around(delivery, call_next):
    try:
        return await call_next(delivery)
    except DeliveryFailed:
        raise ValueError("lost")
def build(kernel, settings):
    return Feature(name="odd", around=Around(delivery=[around]))
"""
        install(monkeypatch, tmp_path, code)
        async with opened(tmp_path) as bench:
            [around] = bench.app.features.around_delivery

            async def refuse(_delivery: PartDelivery) -> Receipt:
                raise DeliveryFailed("blocked", permanent=True)

            with pytest.raises(DeliveryFailed, match="blocked") as caught:
                await around(PartDelivery("stdin", "stdin:default", MessagePart("default", "x")), refuse)
            assert caught.value.permanent


async def test_a_projection_that_fails_stops_no_other_of_its_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
from bubbot.tape.projection import Projection
def fold(state, entries):
    raise ValueError("fold")
def build(kernel, settings):
    projection = Projection(name="odd", version=1, tapes="bubbot/budget", events=("budget/settled",), initial=dict,
        apply=fold, encode=dict, decode=lambda state, cited: state, interval=1)
    projected = kernel.projections.project(projection, kernel.open_tape("bubbot/budget"))
    return Feature(name="odd", lifecycle=Lifecycle(on_recovered=projected.load))
"""
    install(monkeypatch, tmp_path, code)
    async with opened(tmp_path) as bench:
        for _ in range(2):
            assert HELLO.search(await bench.say("hello"))
            await bench.app.recover_all()
        assert bench.problems() == {"odd": "on_recovered: ValueError: fold"}
        assert bench.app.features.budget is not None
        assert bench.app.features.budget.budget.totals()


SOURCE = """
class Source:
    def prepare(self, turn, inbound):
        turn.role = Role.OWNER
        if inbound.text == "unprepared": raise ValueError("prepare")
    def build_reply(self, turn, inbound, outcome):
        if inbound.text == "unanswered": raise ValueError("reply")
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, ""))
    def failure_entries(self, inbound, reason):
        sys.exit("entries")
def build(kernel, settings):
    return Feature(name="odd", sources={"odd": Source()})
"""


class TestSource:
    async def test_its_turns_end_with_a_sentence_or_their_answer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(monkeypatch, tmp_path, SOURCE)
        async with opened(tmp_path) as bench:
            assert "You said: fine" in await bench.say("fine", origin="odd")
            assert "The installed feature odd failed: sources: ValueError: prepare" in await bench.say(
                "unprepared", origin="odd"
            )
            assert "You said: unanswered" in await bench.say("unanswered", origin="odd")
            assert HELLO.search(await bench.say("hello"))
        async with opened(tmp_path) as bench:
            assert await bench.app.recover_all() == 0
            assert HELLO.search(await bench.say("hello"))


RELOADED = """
class OddSettings(SettingsSection):
    days: int = 1
calls = []
async def prepare(settings):
    calls.append(settings.days)
    return await {prepare}()
async def fine():
    return lambda: None
async def late():
    return lambda: 1 / 0
def build(kernel, settings):
    return Feature(name="odd", tools=[ping], lifecycle=Lifecycle(prepare=prepare))
FACTORY = FeatureFactory("odd", build, OddSettings)
"""
RENEWED = """
def build(kernel, settings):
    return Feature(name="odd", lifecycle=Lifecycle(renew=lambda: Feature(name="odd", around=Around(turn=[boom]))))
"""


class TestReload:
    def settings(self, folder: Path, days: int, recent: int) -> Settings:
        folder.mkdir(exist_ok=True)
        text = f"[model]\nname = 'scripted'\n[odd]\ndays = {days}\n[memory]\nrecent_days = {recent}\n"
        (folder / "config.toml").write_text(text)
        return load(home=folder)

    @pytest.mark.parametrize(
        ("failure", "reason"),
        [*FAILURES.items(), ("cancel", "it cancelled itself"), ("odd", "it returned no function")],
    )
    async def test_a_feature_that_cannot_take_its_settings_refuses_the_reload(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str, reason: str
    ) -> None:
        install(monkeypatch, tmp_path, RELOADED.format(prepare=failure))
        async with opened(tmp_path, self.settings(tmp_path / "home", 1, 7)) as bench:
            with pytest.raises(
                ConfigError, match=re.escape(f"The feature 'odd' cannot take its settings: prepare: {reason}")
            ):
                await bench.app.features.prepare(self.settings(tmp_path / "home", 2, 3))
            assert "pong" in await bench.say(",ping")

    async def test_one_whose_section_did_not_change_is_not_asked(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(monkeypatch, tmp_path, RELOADED.format(prepare="boom"))
        async with opened(tmp_path, self.settings(tmp_path / "home", 1, 7)) as bench:
            (await bench.app.features.prepare(self.settings(tmp_path / "home", 1, 3)))()
            assert bench.app.features.memory is not None
            assert bench.app.features.memory.settings.recent_days == 3

    async def test_one_that_fails_to_apply_its_settings_holds_up_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(monkeypatch, tmp_path, RELOADED.format(prepare="late"))
        async with opened(tmp_path, self.settings(tmp_path / "home", 1, 7)) as bench:
            (await bench.app.features.prepare(self.settings(tmp_path / "home", 2, 3)))()
            assert bench.app.features.memory is not None
            assert bench.app.features.memory.settings.recent_days == 3
            assert bench.problems() == {"odd": "prepare: ZeroDivisionError: division by zero"}

    async def test_what_builds_it_anew_is_guarded_as_its_first_record_was(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        install(monkeypatch, tmp_path, RENEWED)
        async with opened(tmp_path, self.settings(tmp_path / "home", 1, 7)) as bench:
            assert "around.turn: ValueError: boom" in await bench.say("hello")

    @pytest.mark.parametrize(
        ("renewed", "reason"),
        [
            ("1 / 0", "ZeroDivisionError: division by zero"),
            ("sys.exit('no')", "SystemExit: no"),
            ("7", "TypeError: it is int, not a Feature"),
            ("Feature(name='other')", "TypeError: it is called 'other'"),
            ("threading.Event().wait(1)", "TimeoutError: it was not built within 0.05 seconds"),
        ],
    )
    async def test_one_that_cannot_be_built_anew_stays_as_it_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renewed: str, reason: str
    ) -> None:
        install(monkeypatch, tmp_path, f"tools=[ping], lifecycle=Lifecycle(renew=lambda: {renewed})")
        async with opened(tmp_path) as bench:
            assert "pong" in await bench.say(",ping")
            assert bench.problems() == {"odd": f"renew: {reason}"}


@pytest.mark.parametrize("failure", ["boom", "leave"])
async def test_work_in_the_background_that_fails_is_named_and_left_to_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    install(monkeypatch, tmp_path, f"lifecycle=Lifecycle(background={{'work': {failure}}})")
    async with opened(tmp_path) as bench:
        works = {
            name: run for feature in bench.app.features.lasting for name, run in feature.lifecycle.background.items()
        }
        with pytest.raises(BubbotError, match="background work"):
            await works["feature odd: work"]()
        assert bench.problems() == {"odd": f"background work: {FAILURES[failure]}"}
