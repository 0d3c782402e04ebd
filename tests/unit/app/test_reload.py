"""A reload among everything else that goes on: it is whole or not at all, and takes nothing with it that it does not own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot import plugins
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.reload import Reloader
from bubbot.app.tapes import now
from bubbot.cli.chat.service import chat_service
from bubbot.cli.run.command import reload_when
from bubbot.cli.run.server import attach_metrics
from bubbot.concurrency import Backoff
from bubbot.errors import ChannelRefused, ConfigError, StoreFull
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.budget.settings import BudgetSettings, PersonLimitSettings
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.gateway.metrics import Metrics
from bubbot.home import Home
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ops.service.report import ServiceReporter, ServiceTiming
from bubbot.ports.channel import BotIdentity, ChannelOptions, Inbound, Receive, Sender
from bubbot.ports.model import Model
from bubbot.ports.turn import Turn
from bubbot.settings.loader import BotSettings, ModelSettings, Settings
from bubbot.tape.entry import timestamp
from tests.gateways import Stage
from tests.made_settings import make_settings

_load = plugins.load
WAIT = 60.0
GRACE = ShutdownTimeouts(turns=0.2, deliveries=0.2)
Steps = dict[str, Callable[[], Any]]


class Adapter(Stage):
    """A channel whose making, introduction and run do what a test wants, by its name."""

    def __init__(self, name: str, steps: Steps) -> None:
        super().__init__()
        self.name = name
        self._steps = steps
        self.closed = False
        self.calls = 0
        if "make" in steps:
            steps["make"]()

    async def verify_token(self) -> BotIdentity:
        """See `VerifiesCredentials`."""
        if "introduce" in self._steps:
            await self._steps["introduce"]()
        self.calls += 1
        assert not self.closed, "closed while it was asked"
        return BotIdentity("1", self.name)

    async def run(self, _: Receive) -> None:
        """See `Channel.run`."""
        assert not self.calls, "run after it has introduced itself"
        await (self._steps["run"]() if "run" in self._steps else asyncio.Event().wait())

    async def aclose(self) -> None:
        """See `SupportsClose`."""
        self.closed = True


class Platforms:
    """Makes adapters; `steps` by name, `made` all there were."""

    def __init__(self) -> None:
        self.steps: dict[str, Steps] = {}
        self.made: list[Adapter] = []
        self.options: list[ChannelOptions] = []

    def load(self, group: str, name: str) -> Any:
        """See `plugins.load`; models are real."""
        if group != "bubbot.channels":
            return _load(group, name)

        def make(options: ChannelOptions) -> Adapter:
            made = Adapter(options.name, self.steps.get(options.name, {}))
            self.made.append(made)
            self.options.append(options)
            return made

        return make

    def open(self) -> list[str]:
        """The names of those that nobody has closed."""
        return [one.name for one in self.made if not one.closed]


@pytest.fixture
def platforms(monkeypatch: pytest.MonkeyPatch) -> Platforms:
    found = Platforms()
    monkeypatch.setattr("bubbot.plugins.load", found.load)
    return found


def configured(**tables: dict[str, Any]) -> Settings:
    channels = {name: {"kind": "stage", "owners": [1], **table} for name, table in tables.items()}
    return make_settings(model=ModelSettings(name="scripted"), channels=channels)


class Bot:
    """A daemon that reads `written`."""

    def __init__(self, daemon: Daemon, settings: Settings) -> None:
        self.daemon = daemon
        self.written = settings
        self.reloader = Reloader(daemon, settings, lambda: self.written, GRACE)

    async def reload(self, settings: Settings) -> None:
        self.written = settings
        await self.reloader.reload("test")


@asynccontextmanager
async def running(path: Path, settings: Settings) -> AsyncIterator[Bot]:
    async with asyncio.timeout(WAIT), open_daemon(settings, Home(path / "home")) as daemon:
        bot = Bot(daemon, settings)
        daemon.manager.start(daemon.bot.group.create_task)
        yield bot
        await bot.reloader.stop(GRACE.deliveries)
        await daemon.manager.stop(GRACE)


async def until(true: Callable[[], object]) -> None:
    """Waits for what needs some turns of the loop."""
    while not true():  # noqa: ASYNC110 - whatever it is
        await asyncio.sleep(0.001)


async def refused() -> None:
    raise ChannelRefused("its token")


async def test_a_channel_is_told_the_time_zone(tmp_path: Path, platforms: Platforms) -> None:
    settings = configured(good={}).model_copy(update={"bot": BotSettings(timezone="Asia/Shanghai")})
    async with running(tmp_path, settings):
        assert [options.zone for options in platforms.options] == [ZoneInfo("Asia/Shanghai")]


async def test_names_that_agents_have_wrong_are_logged_at_the_start_and_at_a_reload(
    tmp_path: Path, platforms: Platforms, caplog: pytest.LogCaptureFixture
) -> None:
    def agents(**rosi: Any) -> Settings:
        return make_settings(
            AgentsSettings.model_validate({"rosi": rosi}),
            model=ModelSettings(name="scripted"),
            channels=configured(good={}).channels,
        )

    def logged() -> list[str]:
        return [record.getMessage() for record in caplog.records if "[agents." in record.getMessage()]

    async with running(tmp_path, agents(answers=["godo:1", "good:1", "topic/cake"])) as bot:
        await bot.daemon.bot.recover_all()
        assert logged() == [
            "[agents.rosi] answers has 'godo:1', which is on no channel of this bot; did you mean 'good'?"
        ]
        caplog.clear()
        await bot.reload(agents(tools=["memroy.*", "memory.*"]))
        assert logged() == [
            "[agents.rosi] tools has 'memroy.*', which names no tool of this bot; did you mean 'memory.show'?"
        ]


async def test_while_a_channel_is_begun_anew_a_refused_one_does_not_end_the_bot(
    tmp_path: Path, platforms: Platforms
) -> None:
    platforms.steps["bad"] = {"run": refused}
    async with running(tmp_path, configured(good={}, bad={})) as bot:
        ending = asyncio.create_task(bot.daemon.manager.wait_until_refused(excluding="stdin"))
        await until(lambda: bot.daemon.manager.states.get("bad") == "refused")
        platforms.steps["bad"] = {}
        await bot.reload(configured(good={"key": 1}, bad={}))
        await asyncio.sleep(0)
        assert not ending.done()
        assert bot.daemon.manager.states == {"good": "running", "bad": "running", "stdin": "running"}
        ending.cancel()
    assert platforms.open() == []


async def test_what_the_old_channel_says_late_is_not_taken_for_the_new_ones(
    tmp_path: Path, platforms: Platforms
) -> None:
    go = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go.wait()
            raise ChannelRefused("an old story") from None

    platforms.steps["a"] = {"run": stubborn}
    async with running(tmp_path, configured(a={})) as bot:
        await asyncio.sleep(0)
        platforms.steps["a"] = {}
        await bot.reload(configured(a={"key": 1}))
        go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (bot.daemon.manager.states["a"], bot.daemon.manager.refusals) == ("running", {})


async def test_one_platform_that_refuses_is_waited_for_with_the_others_and_all_are_closed(
    tmp_path: Path, platforms: Platforms
) -> None:
    async def slow() -> None:
        await asyncio.sleep(0.05)

    platforms.steps |= {"bad": {"introduce": refused}, "slow": {"introduce": slow}}
    async with running(tmp_path, configured(a={})) as bot:
        with pytest.raises(ConfigError, match=r"\[channels\.bad\]: its token"):
            await bot.reload(configured(a={}, slow={}, bad={}))
        assert platforms.open() == ["a"]
        assert sorted(one.calls for one in platforms.made if one.name == "slow") == [0, 1]
        assert list(bot.daemon.bot.channel_runtimes) == ["a", "stdin"]


@pytest.mark.parametrize("step", ["make", "introduce"])
async def test_a_defect_of_an_adapter_refuses_the_reload_and_not_more(
    tmp_path: Path, platforms: Platforms, step: str
) -> None:
    def defect() -> Any:
        raise AttributeError("a defect")

    platforms.steps["new"] = {step: defect}
    async with running(tmp_path, configured(a={})) as bot:
        with pytest.raises(ConfigError, match=r"\[channels\.new\].*AttributeError"):
            await bot.reload(configured(a={}, new={}))
        assert platforms.open() == ["a"]


async def test_a_database_that_takes_nothing_ends_no_bot_that_is_asked_to_reload(
    tmp_path: Path, platforms: Platforms, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, configured(a={})) as bot:

        async def full(*_: object, **__: object) -> None:
            raise StoreFull("no room")

        bot.written = configured(a={"owners": [2]})
        asked, report = (
            asyncio.Event(),
            ServiceReporter(ServiceNotifier("", lambda: 0), None, Backoff(lambda: 0.5), ServiceTiming()),
        )
        with monkeypatch.context() as patched:
            patched.setattr(type(bot.daemon.bot.base_store), "append", full)
            asked.set()
            task = bot.daemon.bot.group.create_task(reload_when(asked, bot.reloader, report))
            await until(lambda: "config.failed" in {one.__dict__.get("action") for one in caplog.records})
            assert not task.done()
        task.cancel()
        await report.aclose()


async def test_the_end_waits_for_a_reload_under_way_and_lets_none_begin(tmp_path: Path, platforms: Platforms) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        asked.set()
        await answer.wait()

    platforms.steps["new"] = {"introduce": slow}
    async with running(tmp_path, configured(a={})) as bot:
        reloading = asyncio.create_task(bot.reload(configured(a={}, new={})))
        await asked.wait()
        ending = asyncio.create_task(bot.reloader.stop(60.0))  # longer than any machine needs
        for _ in range(20):
            await asyncio.sleep(0)
        assert not ending.done()
        answer.set()
        await ending
        assert bot.daemon.manager.states["new"] == "running"
        await reloading
        with pytest.raises(ConfigError, match="shutting down"):
            await bot.reload(configured(a={}))
    assert platforms.open() == []


async def test_a_reload_that_is_given_up_in_the_middle_is_whole(tmp_path: Path, platforms: Platforms) -> None:
    cancelled = asyncio.Event()

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await asyncio.sleep(0.1)
            raise

    platforms.steps["a"] = {"run": stubborn}
    async with running(tmp_path, configured(a={})) as bot:
        await asyncio.sleep(0)
        reloading = asyncio.create_task(bot.reload(configured(a={"key": 1}, b={})))
        await until(cancelled.is_set)
        reloading.cancel()
        await asyncio.gather(reloading, return_exceptions=True)
        assert bot.daemon.manager.states == {"a": "running", "b": "running", "stdin": "running"}
    assert platforms.open() == []


async def test_a_turn_that_is_cut_off_with_its_channel_is_answered_once_when_that_is_back(
    tmp_path: Path, platforms: Platforms
) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"default": [{"text": "You said: {text}", "delay": 0.4}]}))
    model = ModelSettings(name="scripted", script=script)
    there, gone = (one.model_copy(update={"model": model}) for one in (configured(a={"debounce": 0}), configured()))
    async with running(tmp_path, there) as bot:
        said = Inbound("a", "1", "7", Sender("1", "Ada"), "hi", timestamp(now()), message="m1")
        await bot.daemon.bot.channel_runtimes["a"].receive(said)
        await until(lambda: bot.daemon.bot.runtime.measure_load().running)
        await bot.reload(gone)  # sooner than the turn ends
        assert bot.daemon.bot.runtime.measure_load().sessions == 0
        await bot.reload(there)
        await until(lambda: bot.daemon.bot.runtime.measure_load().running)
        assert not await bot.daemon.bot.channel_runtimes["a"].receive(
            said
        )  # the platform repeats what it is not sure of
        await until(lambda: [one for made in platforms.made for one in made.acts("send")])
        await bot.daemon.bot.runtime.wait_idle()
        assert [one for made in platforms.made for one in made.acts("send")] == ["You said: hi"]


async def find_nothing(_turn: Turn) -> Model:
    """Find no model."""
    raise AssertionError


class TestBudgets:
    async def test_what_stands_around_turns_and_calls_follows_the_settings(
        self, tmp_path: Path, platforms: Platforms
    ) -> None:
        free = configured(a={"debounce": 0})
        limited = free.model_copy(
            update={
                "budget": BudgetSettings(
                    tokens_day=10**9, users={"each": PersonLimitSettings(per_hour=9)}, fallback_models=["scripted"]
                )
            }
        )
        async with running(tmp_path, free) as bot:
            features = bot.daemon.bot.features
            assert features.budget is not None
            budget = features.budget
            count, reserve = budget.meter.count_call, budget.meter.reserve_call

            def in_force() -> tuple[bool, bool, bool, bool]:
                around, gate = features.around_model, bot.daemon.bot.runtime.deps.gate
                return (
                    count in around,
                    reserve in around,
                    gate is not None,
                    budget.choose_model(find_nothing) is not find_nothing,
                )

            assert in_force() == (True, False, False, False)
            await bot.reload(limited)
            assert in_force() == (False, True, True, True)
            await bot.reload(free)
            assert in_force() == (True, False, False, False)
            await bot.reload(free.model_copy(update={"budget": BudgetSettings(fallback_models=["scripted"])}))
            assert in_force() == (True, False, False, False)
            assert platforms.open() == ["a"]

    async def test_a_limit_refuses_the_next_call_of_a_turn_under_way_and_none_once_it_is_removed(
        self, tmp_path: Path, platforms: Platforms
    ) -> None:
        script = tmp_path / "script.json"
        steps = [{"calls": [{"name": "tape_info"}], "delay": 0.4}, {"text": "never"}]
        rules = [{"when": "long", "steps": steps}]
        script.write_text(json.dumps({"rules": rules, "default": [{"text": "You said: {text}"}]}))
        free = configured(a={"debounce": 0}).model_copy(update={"model": ModelSettings(name="scripted", script=script)})
        async with running(tmp_path, free) as bot:
            runtime, channel = bot.daemon.bot.runtime, bot.daemon.bot.channel_runtimes["a"]

            async def say(number: int, text: str) -> None:
                said = Inbound("a", str(number), "7", Sender("1", "Ada"), text, timestamp(now()), message=f"m{number}")
                await channel.receive(said)

            def has_sent(words: str) -> bool:
                return any(words in one for made in platforms.made for one in made.acts("send"))

            await say(1, "long")
            await until(lambda: runtime.measure_load().running)
            await bot.reload(free.model_copy(update={"budget": BudgetSettings(tokens_day=1)}))
            await until(lambda: has_sent("The budget of the whole bot for today is used up"))
            await bot.reload(free)
            await say(2, "hello")
            await until(lambda: has_sent("You said: hello"))
            assert not has_sent("never")


async def test_what_a_new_channel_does_is_counted(tmp_path: Path, platforms: Platforms) -> None:
    async with running(tmp_path, configured(a={})) as bot:
        metrics = Metrics()
        attach_metrics(bot.daemon, metrics)
        await bot.reload(configured(a={}, b={}))
        told = metrics.render(await bot.daemon.bot.health_collector.snapshot(), 0).decode()
        assert 'bubbot_messages_accepted_total{channel="b"} 0.0' in told
        assert platforms.open() == ["a", "b"]


async def test_whoever_looks_meanwhile_sees_the_channels_that_there_are(tmp_path: Path, platforms: Platforms) -> None:
    async with running(tmp_path, configured(a={}, b={})) as bot:
        looking = asyncio.create_task(_looks(bot.daemon))
        await bot.reload(configured(c={}))
        await bot.reload(configured(a={}, b={}))
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
        assert sorted(platforms.open()) == ["a", "b"]


async def _looks(daemon: Daemon) -> None:
    while True:
        await daemon.bot.health_collector.snapshot()


async def test_the_clients_of_terminals_come_through_the_gate_as_it_is_now(
    tmp_path: Path, platforms: Platforms
) -> None:
    async with running(tmp_path, configured(a={})) as bot:
        doors = chat_service(bot.daemon.bot, bot.daemon.remote)
        await bot.reload(configured(a={"owners": [2]}))
        seen: list[object] = []

        async def accept(inbound: object, *_: object) -> None:
            seen.append(inbound)

        bot.daemon.bot.channel_runtimes["stdin"].gate.ask = accept  # type: ignore[method-assign]
        await doors.accept("here")  # type: ignore[arg-type]
        assert seen == ["here"]
        assert platforms.open() == ["a"]
