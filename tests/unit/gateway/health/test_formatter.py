"""How the bot is: the value, its words for the shell and for chats, and what of it goes to whom."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs

from bubbot.app.offline import newest_backup
from bubbot.features.budget.health import budget_health
from bubbot.features.otel.state import ExportState
from bubbot.features.schedule.health import NextFiring, schedule_health
from bubbot.gateway.activity import TurnActivity
from bubbot.gateway.health.formatter import HealthFormatter, describe_activity
from bubbot.gateway.health.snapshot import (
    BackupStatus,
    ChannelState,
    DatabaseStatus,
    HealthSnapshot,
    PendingDeliveries,
    as_json,
    pending_deliveries,
)
from bubbot.home import Home
from bubbot.log import LoggedWarning
from bubbot.ports.channel import MessagePart, Role
from bubbot.ports.health import HealthContext, RuntimeLoad
from bubbot.ports.outbox import OutboxMessage
from bubbot.ports.usage import BudgetUsage, Currency
from bubbot.server.protocol import decode, encode
from bubbot.stores.sqlite.backups import ExtraFiles, write_backup
from bubbot.texts import Texts

NOW = "2026-11-22T12:00:00+00:00"
CONTEXT = HealthContext(Texts(), NOW, "Europe/Berlin")
SCHEDULE = schedule_health(CONTEXT, (NextFiring("3fa9c1aa55", "", "telegram:42", "2026-11-22T13:30:00Z"),))
USAGES = (
    BudgetUsage("bot", "", "2026-11-22", "cost", 0.0123, 5.0),
    BudgetUsage("bot", "", "2026-11-22", "tokens", 1234.0),
    BudgetUsage("bot", "", "2026-11", "cost", 12.5),
    BudgetUsage("bot", "", "2026-11", "tokens", 99999.0, 100000.0),
    BudgetUsage("user", "telegram:42", "2026-11", "cost", 9.0, 10.0),
)
BUDGET = budget_health(CONTEXT, USAGES, (), Currency("EUR"))
FULL = HealthSnapshot(
    version="1.2.3",
    home="/home/me/bubbot",
    zone="Europe/Berlin",
    at=NOW,
    pid=4242,
    began="2026-11-22T10:00:00+00:00",
    channels=(
        ChannelState("telegram", "running", ready=True, heard="2026-11-22T11:59:57.123+00:00"),
        ChannelState("work", "running", ready=False, note="no answer for 60 s"),
        ChannelState("old", "refused", ready=False, note="its token is not taken"),
        ChannelState("gone", "ended", ready=False),
        ChannelState("new", "", ready=False),
    ),
    load=RuntimeLoad(waiting=3, running=2, sessions=7),
    owed=(PendingDeliveries("telegram", 1, "2026-11-22T11:55:00+00:00"), PendingDeliveries("work", 0)),
    database=DatabaseStatus(entries=12345, size=1_234_567, wal=999, free=78_000_000_000),
    backup=BackupStatus("20261122T020000", "2026-11-22T02:00:00+00:00"),
    warnings=4,
    errors=1,
    newest=(
        LoggedWarning("2026-11-22T11:00:00.000Z", "warning", "deliver.failed", "message not delivered"),
        LoggedWarning("2026-11-22T11:59:00.000Z", "error", "channel.refused", "channel old refused"),
    ),
    reports=(SCHEDULE, BUDGET, ExportState().report(CONTEXT, "")),
)


def rows(snapshot: HealthSnapshot) -> dict[str, tuple[str, ...]]:
    return {row.label: row.lines for row in HealthFormatter(Texts(), snapshot).rows()}


class TestValue:
    def test_it_goes_over_the_control_socket_and_back(self) -> None:
        for snapshot in (FULL, HealthSnapshot("1", "h", "UTC", NOW)):
            assert decode(json.loads(json.dumps(encode(snapshot))), HealthSnapshot) == snapshot

    def test_it_is_healthy_where_a_bot_runs_and_every_channel_is_heard(self) -> None:
        fine = structs.replace(FULL, channels=FULL.channels[:1])
        assert fine.is_healthy
        assert structs.replace(FULL, channels=()).is_healthy
        assert not structs.replace(fine, pid=None).is_healthy
        for channel in FULL.channels[1:]:
            assert not structs.replace(FULL, channels=(*fine.channels, channel)).is_healthy, channel
        refused_but_once_ready = ChannelState("a", "refused", ready=True)
        assert not structs.replace(FULL, channels=(refused_but_once_ready,)).is_healthy

    def test_programs_are_told_what_is_known(self) -> None:
        told = as_json(FULL)
        assert (told["running"], told["healthy"], told["pid"]) == (True, False, 4242)
        assert "quarantine" not in told
        nobody = as_json(HealthSnapshot("1", "h", "UTC", NOW))
        assert (nobody["running"], nobody["healthy"]) == (False, False)
        assert not {"pid", "began", "database", "backup", "quarantine"} & nobody.keys()
        json.dumps(told)

    def test_what_is_owed_has_the_age_of_the_oldest(self) -> None:
        def intent(date: str, *parts: MessagePart) -> OutboxMessage:
            return OutboxMessage(1, "a:1", "t", parts, date=date)

        part = MessagePart("1", "hi")
        open_ones = [intent("2026-11-22T11:00:00", part), intent("2026-11-22T10:00:00", part), intent("2020-01-01")]
        assert pending_deliveries("a", open_ones) == PendingDeliveries("a", 2, "2026-11-22T10:00:00")
        assert pending_deliveries("a", []) == PendingDeliveries("a", 0, "")

    def test_the_newest_backup_is_the_newest_complete_one(self, tmp_path: Path, new_database: Path) -> None:
        home = Home(tmp_path)
        assert newest_backup(home) is None
        folder = tmp_path / "backups"
        (folder / "unfinished").mkdir(parents=True)
        (folder / "unfinished" / "manifest.json").write_text("{")
        (folder / "a.db").write_text("x")
        assert newest_backup(home) is None
        for hour, name in ((11, "b"), (10, "c")):  # not by name, nor by the date of the file
            write_backup(new_database, folder / name, ExtraFiles(), datetime(2026, 11, 22, hour, tzinfo=UTC))
        assert newest_backup(home) == BackupStatus("b", "2026-11-22T11:00:00.000000+00:00")


class TestWords:
    def test_everything_is_told_in_the_shell_by_the_clock_of_the_deployment(self) -> None:
        found = rows(FULL)
        assert found["bot"] == ("bubbot 1.2.3, process 4242, since 2026-11-22 11:00:00 (2 hours ago)",)
        assert found["channels"] == (
            "telegram: receiving; last sign of life 2026-11-22 12:59:57 (2 seconds ago).",
            "work: not receiving (no answer for 60 s); last sign of life never.",
            "old: refused, and not tried again (its token is not taken).",
            "gone: ended.",
            "new: about to begin.",
        )
        assert found["work"] == ("turns under way: 2; messages waiting: 3; conversations in memory: 7",)
        assert found["undelivered"] == ("telegram: 1 message, from 2026-11-22 12:55:00 (5 minutes ago)",)
        assert found["next firings"] == ("3fa9c1aa in telegram:42: 2026-11-22 14:30:00 (in 1 hour 30 minutes)",)
        assert found["budget"] == (
            "the whole bot, today: 0.0123 EUR of 5.00 EUR; 1,234 tokens, no limit",
            "the whole bot, this month: 12.50 EUR, no limit; 99,999 tokens of 100,000 tokens",
            "the person telegram:42, this month: 9.00 EUR of 10.00 EUR",
        )
        assert found["database"] == (
            "12,345 entries; 1.2 MB, and 999 bytes of new entries beside it; 78.0 GB free on the disk",
        )
        assert found["newest backup"] == ("20261122T020000, 2026-11-22 03:00:00 (10 hours ago)",)
        assert found["log"][0] == "errors: 1; warnings: 4"
        assert "channel.refused: channel old refused" in found["log"][1]
        assert "deliver.failed" in found["log"][2]

    def test_without_a_bot_it_says_what_nobody_has_answered_and_nothing_of_channels(self) -> None:
        found = rows(
            structs.replace(
                FULL, pid=None, owed=(), backup=None, database=None, reports=(schedule_health(CONTEXT, ()),)
            )
        )
        assert found["work"] == ("messages that nobody has answered yet: 3",)
        assert not {"bot", "channels", "log", "budget"} & found.keys()
        assert found["undelivered"] == found["next firings"] == found["newest backup"] == ("none",)
        assert found["database"] == ("there is none yet",)

    def test_a_channel_that_receives_with_something_amiss_says_what(self) -> None:
        one = ChannelState("discord", "running", ready=True, note="what was missed cannot be fetched")
        told = "discord: receiving, but what was missed cannot be fetched; last sign of life never."
        assert rows(structs.replace(FULL, channels=(one,)))["channels"] == (told,)

    def test_a_quarantine_is_told(self) -> None:
        held = structs.replace(FULL, channels=(), quarantine=BackupStatus("the-backup", "2026-11-22T11:00:00+00:00"))
        (told,) = rows(held)["quarantine"]
        assert "restored from the-backup, made 2026-11-22 12:00:00 (1 hour ago)" in told
        assert "bubbot restore --release" in told
        assert any("the-backup" in line for line in HealthFormatter(Texts(), held).in_chat(Role.OWNER, direct=True))
        assert (held.is_healthy, as_json(held)["quarantine"]["name"]) == (False, "the-backup")
        assert decode(json.loads(json.dumps(encode(held))), HealthSnapshot) == held

    def test_what_a_turn_is_doing(self) -> None:
        assert describe_activity(Texts(), None) == "asking the model"
        assert (
            describe_activity(Texts(), (TurnActivity("tool", "web_fetch"), 61.5))
            == "running web_fetch, 1 minute 1 second so far"
        )
        assert describe_activity(Texts(), (TurnActivity("writing"), 0.2)) == "the model is writing, 0 seconds so far"


class TestChats:
    @pytest.mark.parametrize("role", [Role.STRANGER, Role.MEMBER])
    def test_members_are_told_nothing_of_the_whole_bot(self, role: Role) -> None:
        assert HealthFormatter(Texts(), FULL).in_chat(role, direct=True) == []

    @pytest.mark.parametrize("role", [Role.ADMIN, Role.OWNER])
    def test_admins_are_told_it_in_short(self, role: Role) -> None:
        told = HealthFormatter(Texts(), FULL).in_chat(role, direct=True)
        assert len(told) <= 20
        assert told[0].startswith("bot: bubbot 1.2.3")
        assert "channels: gone: ended." in told
        assert any("telegram:42" in line for line in told)
        assert any(line.startswith("log: ") and "channel.refused" in line for line in told)
        assert not any("deliver.failed" in line or "/home" in line for line in told)

    def test_in_a_group_nothing_of_other_chats_of_money_of_the_machine_or_of_the_log(self) -> None:
        told = "\n".join(HealthFormatter(Texts(), FULL).in_chat(Role.OWNER, direct=False))
        assert "log: errors: 1; warnings: 4" in told
        assert not any(
            word in told for word in ("telegram:42", "EUR", "tokens", "channel.refused", "3fa9c1", "4242", " free")
        )

    def test_numbers_in_german(self) -> None:
        told = HealthFormatter(Texts("de"), FULL).in_chat(Role.OWNER, direct=True)
        assert any(
            "12.345 Einträge; 1,2 MB, dazu 999 bytes neue Einträge daneben; 78,0 GB frei" in line for line in told
        )

    def test_the_state_is_told_in_chinese(self) -> None:
        told = HealthFormatter(Texts("zh"), FULL).in_chat(Role.OWNER, direct=True)
        assert told[0] == "机器人：bubbot 1.2.3，进程 4242，启动于 2026-11-22 11:00:00（2 小时前）"
