"""The features of a bot: it answers with any of them and with none, and takes those of installed packages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from bubbot import plugins
from bubbot.app.bot import Bot, open_app
from bubbot.app.offline import offline_snapshot
from bubbot.app.own_features import FEATURES
from bubbot.app.tapes import now
from bubbot.arguments.fields import NoArguments
from bubbot.errors import ConfigError
from bubbot.feature import Around, Feature, FeatureFactory, Kernel, Lifecycle
from bubbot.features.budget.settings import BudgetSettings
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.gateway.health.snapshot import as_json
from bubbot.home import Home
from bubbot.middleware import CallNext, PartDelivery
from bubbot.ports.channel import Inbound, Receipt, Role, Sender
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow
from bubbot.ports.turn import Turn
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tool import tool
from tests.made_settings import make_settings

SETTINGS = Settings(model=ModelSettings(name="scripted"))
GROUP = "bubbot.features"
SUBSETS = [subset for size in range(3) for subset in combinations(FEATURES, size)]


@asynccontextmanager
async def opened(
    home: Path, features: Collection[str] = FEATURES, settings: Settings = SETTINGS
) -> AsyncIterator[tuple[Bot, list[str]]]:
    """A bot, and the texts that people read."""
    texts: list[str] = []
    given = {"write": texts.append}
    async with open_app(settings, Home(home), channel_settings=given, features=features) as app:
        yield app, texts


def said(text: str, number: int = 1) -> Inbound:
    return Inbound("stdin", str(number), "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")


def offer(monkeypatch: pytest.MonkeyPatch, **offered: Any) -> None:
    """Have packages offer these features."""
    load, list_names = plugins.load_object, plugins.list_names
    monkeypatch.setattr(
        "bubbot.plugins.list_names", lambda group: sorted(offered) if group == GROUP else list_names(group)
    )
    monkeypatch.setattr(
        "bubbot.plugins.load_object", lambda group, name: offered[name] if group == GROUP else load(group, name)
    )


@tool("test.ping", commands=("ping",))
async def ping(turn: Turn, args: NoArguments) -> str:
    """Say pong."""
    return "pong"


class TestSubsets:
    @pytest.mark.sampled(8)
    @pytest.mark.parametrize("features", SUBSETS, ids=lambda subset: "+".join(subset) or "none")
    async def test_a_bot_answers_with_these_features_alone(self, tmp_path: Path, features: tuple[str, ...]) -> None:
        async with opened(tmp_path / "home", features) as (app, _):
            assert (await app.ask(said("hello"))).text == "You said: hello"
            assert (await app.ask(said("more", 2))).text == "You said: more"
            await app.health_collector.snapshot()

    async def test_the_kernel_alone_has_no_tool_and_no_command(self, tmp_path: Path) -> None:
        async with opened(tmp_path / "home", ()) as (app, _):
            assert app.commands == []
            assert app.schedule_store is None
            assert "no command ,help" in (await app.ask(said(",help"))).text

    async def test_the_tools_come_in_the_order_of_the_features(self, tmp_path: Path) -> None:
        async with opened(tmp_path / "home") as (app, _):
            names = [command.name for command in app.commands]
        for earlier, later in (("help", "search"), ("search", "why"), ("why", "memory"), ("memory", "usage")):
            assert names.index(earlier) < names.index(later)

    async def test_a_feature_with_parts_that_nothing_would_call_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def never_called() -> None: ...

        monkeypatch.setattr(
            "bubbot.app.features.usage_feature",
            lambda _: Feature(name="usage", lifecycle=Lifecycle(on_recovered=never_called)),
        )
        with pytest.raises(TypeError, match="usage is built anew at each reload, so nothing calls its on_recovered"):
            async with opened(tmp_path / "home"):
                pass


class TestReload:
    async def test_new_settings_are_in_force_once_they_are_applied(self, tmp_path: Path) -> None:
        new = make_settings(
            MemorySettings(recent_days=3),
            ScheduleSettings(max_failures=2),
            BudgetSettings(day=5.0),
            model=SETTINGS.model,
        )
        async with opened(tmp_path / "home") as (app, _):
            features = app.features

            def in_force() -> tuple[object, ...]:
                assert features.memory is not None
                assert features.schedule is not None
                assert features.budget is not None
                limit = features.budget.budget.limits.find_limit("bot", "")
                limits = features.schedule.store.limits
                return features.memory.settings.recent_days, limits.max_failures, limit.day if limit else None

            assert in_force() == (7, 5, None)
            apply = await features.prepare(new)
            assert in_force() == (7, 5, None)
            apply()
            assert in_force() == (3, 2, 5.0)

    async def test_settings_of_which_one_is_bad_change_nothing(self, tmp_path: Path) -> None:
        new = make_settings(MemorySettings(recent_days=3), BudgetSettings(currency="EUR"), model=SETTINGS.model)
        async with opened(tmp_path / "home") as (app, _):
            with pytest.raises(ConfigError, match="usd_rate"):
                await app.features.prepare(new)
            assert app.features.memory is not None
            assert app.features.memory.settings.recent_days == 7


class TestPackages:
    async def test_a_package_adds_a_tool(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kernels: list[Kernel] = []

        def build(kernel: Kernel, settings: object) -> Feature:
            kernels.append(kernel)
            assert settings is None
            return Feature(name="pinger", tools=[ping])

        offer(monkeypatch, pinger=FeatureFactory("pinger", build))
        async with opened(tmp_path / "home", ()) as (app, _):
            assert (await app.ask(said(",ping"))).text == "pong"
        assert [kernel.home for kernel in kernels] == [tmp_path / "home"]

    async def test_a_package_wraps_deliveries(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def around(delivery: PartDelivery, call_next: CallNext[PartDelivery, Receipt]) -> Receipt:
            sessions.append(delivery.session)
            return await call_next(delivery)

        sessions: list[str] = []
        feature = Feature(name="courier", around=Around(delivery=[around]))
        offer(monkeypatch, courier=FeatureFactory("courier", lambda _kernel, _settings: feature))
        async with opened(tmp_path / "home") as (app, texts):
            await app.ask(said("hello"))
            await app.deliverer.wait_until_idle()
        assert sessions == ["stdin:default"]
        assert "You said: hello" in "".join(texts)

    async def test_a_package_has_lines_for_whom_it_wants_and_cannot_take_keys_of_others(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = (
            HealthRow("pots", ("3",), role=Role.MEMBER, in_groups=True),
            HealthRow("soil", ("dry",), role=Role.MEMBER),
            HealthRow("price", ("7",), role=Role.OWNER, in_groups=True),
        )
        taken = {"version": "x", "pid": 1, "budget": [], "pots": 3}
        health = FeatureHealth(name="plants", rows=rows, basis=taken, data=taken)
        feature = Feature(name="plants", health=lambda _: health)
        offer(monkeypatch, plants=FeatureFactory("plants", lambda _kernel, _settings: feature))
        async with opened(tmp_path / "home") as (app, _):
            report, snapshot = app.health_collector.report, await app.health_collector.snapshot()
            assert await report(Role.STRANGER, direct=True) == []
            assert await report(Role.MEMBER, direct=False) == ["pots: 3"]
            assert await report(Role.MEMBER, direct=True) == ["pots: 3", "soil: dry"]
            assert {"pots: 3", "price: 7"} <= {*await report(Role.OWNER, direct=False)}
        values = as_json(snapshot)
        assert values["version"] == snapshot.version
        assert values["pid"] == snapshot.pid
        assert values["pots"] == 3
        assert values["running"]

    @pytest.mark.parametrize(
        "made",
        [KeyError("nothing"), "fine", FeatureHealth(name="plants", data={"pot": object()})],
    )
    async def test_one_that_cannot_report_its_health_is_a_trouble_and_the_others_report(
        self, made: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def report(_context: HealthContext) -> Any:
            if isinstance(made, Exception):
                raise made
            return made

        async def read_health(_home: HomeReader, context: HealthContext) -> Any:
            return report(context)

        feature = Feature(name="plants", health=report)
        factory = FeatureFactory("plants", lambda _kernel, _settings: feature, health=read_health)
        offer(monkeypatch, plants=factory)
        home = Home(tmp_path / "home")
        async with opened(home.path) as (app, _):
            running = await app.health_collector.snapshot()
        alone = await offline_snapshot(None, home, SETTINGS, now=now)
        for snapshot in (running, alone):
            *own, last = snapshot.reports
            assert [report.name for report in own] == [
                "learn.live",
                "learn.weights",
                "schedule",
                "tasks",
                "budget",
                "mcp",
                "otel",
            ]
            assert last.trouble.startswith("The feature plants cannot report its health (")
            assert not snapshot.is_healthy
            assert "firings" in as_json(snapshot)

    async def test_one_that_hangs_without_a_bot_is_a_trouble(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def read_health(_home: HomeReader, _context: HealthContext) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr("bubbot.app.diagnostics.PACKAGE_TIMEOUT_SECONDS", 0.01)
        feature = Feature(name="plants")
        offer(monkeypatch, plants=FeatureFactory("plants", lambda _kernel, _settings: feature, health=read_health))
        *_, last = (await offline_snapshot(None, Home(tmp_path), SETTINGS, now=now)).reports
        assert last.trouble == "The feature plants cannot report its health (TimeoutError)."

    @pytest.mark.parametrize(
        ("made", "reason"), [(KeyError("nothing"), "KeyError: 'nothing'"), ("a feature", "it is str, not a Feature")]
    )
    async def test_one_that_cannot_be_built_is_named_and_left_out(
        self,
        made: object,
        reason: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def build(_kernel: Kernel, _settings: object) -> Any:
            if isinstance(made, Exception):
                raise made
            return made

        offer(monkeypatch, broken=FeatureFactory("broken", build))
        async with opened(tmp_path / "home") as (app, texts):
            await app.ask(said("hello"))
            await app.deliverer.wait_until_idle()
        assert "You said: hello" in "".join(texts)
        assert "feature broken left out" in caplog.text
        assert reason in caplog.text
