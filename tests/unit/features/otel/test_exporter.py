"""The export over time: where it begins, what it does if the receiver does not, and how it goes on after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bubbot.app.bot import Bot, open_app
from bubbot.features.otel import exporter
from bubbot.features.otel.facts import OTEL_TAPE, TurnsExported
from bubbot.features.otel.feature import OtelConfig
from bubbot.features.otel.sender import parse_retry_after
from bubbot.home import Home
from bubbot.ports.health import HealthContext
from bubbot.settings.loader import Settings
from bubbot.tape.entry import event, message, tool_call
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts
from tests.fakes.otlp_server import Receiver, receiver
from tests.raw import tamper
from tests.traced import facts, reload, say, settings_for, traced, until, written


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds between tries; nobody waits for them."""
    seen: list[float] = []
    plain = exporter.TraceExporter.__init__

    async def sleep(seconds: float) -> None:
        if seconds:  # those between requests that were taken are none here
            seen.append(seconds)
        await asyncio.sleep(0)

    def without_waits(self: exporter.TraceExporter, *args: Any, **options: Any) -> None:
        plain(self, *args, **options, sleep=sleep)

    monkeypatch.setattr(exporter.TraceExporter, "__init__", without_waits)
    return seen


def inputs(taken: Receiver) -> list[str]:
    """What was said in the turns that came."""
    return [span["input.value"] for span in taken.roots]


def health(bot: Bot) -> tuple[dict[str, float], list[str]]:
    """The metrics of the export, and its lines in the status."""
    (feature,) = [feature for feature in bot.features.lasting if feature.name == "otel"]
    assert feature.health is not None
    report = feature.health(HealthContext(Texts(), "2026-11-24T10:00:00+00:00", "UTC"))
    metrics = {sample.name.removeprefix("bubbot_otel_"): sample.value for sample in report.samples}
    return metrics, [line for row in report.rows for line in row.lines]


async def metric(bot: Bot, name: str, check: Callable[[float], bool]) -> None:
    """Wait until a metric is so."""

    async def is_so() -> bool:
        return check(health(bot)[0][name])

    await until(is_so)


async def test_it_begins_with_the_present_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with receiver() as taken:
        async with traced(settings_for(tmp_path), tmp_path, begun=False) as bot:
            await say(bot, "before")
            assert await facts(bot) == [], "switched off it writes nothing"
        on = settings_for(tmp_path, endpoint=taken.url, content="full")
        async with traced(on, tmp_path) as bot:
            await say(bot, "one")
            await written(bot, "otel/exported")
        async with traced(on, tmp_path) as bot:
            await say(bot, "two")
            await written(bot, "otel/exported", 2)
            assert [name for name, _ in await facts(bot)] == ["otel/began", "otel/exported", "otel/exported"]
    assert inputs(taken) == ["one", "two"]
    assert all(count == 1 for count in taken.ids.values())


async def test_after_a_move_from_another_store_it_begins_with_the_present(tmp_path: Path) -> None:
    """The positions of a server are far above those of a file."""
    async with receiver() as taken:
        on = settings_for(tmp_path, endpoint=taken.url, content="full")
        async with traced(on, tmp_path) as bot:
            await say(bot, "one")
            await written(bot, "otel/exported")
            there = TurnsExported(position=3 << 50, turns=1, spans=1)
            await bot.channel_factory.open_tape(OTEL_TAPE).append([there.to_entry()])
        async with traced(on, tmp_path) as bot:
            await say(bot, "two")
            await written(bot, "otel/exported", 3)
            assert [name for name, _ in await facts(bot)][-2:] == ["otel/began", "otel/exported"]
    assert inputs(taken) == ["one", "two"]


async def test_the_turns_of_an_imported_tape_are_those_of_another_bot(tmp_path: Path) -> None:
    async with receiver() as taken, traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
        start = event("turn/start", {"session": "s", "attempt": 1, "inbounds": []}, turn="ab" * 16)
        end = event("turn/end", {"status": "answered"}, turn="ab" * 16)
        fact = event("tape/imported", {"tape": "imported", "session": "s", "entries": 2})
        imported = bot.channel_factory.open_tape("imported")
        await imported.append([start, end], other_tapes={"bubbot/imports": [fact]})
        await say(bot, "one")
        await written(bot, "otel/exported")
        await imported.append([start, end])  # what is said there from now on is this bot's own
        await say(bot, "two")
        await taken.turns(3)
    assert [span.trace == "ab" * 16 for span in taken.roots] == [False, True, False]


async def test_a_turn_that_no_span_can_hold_holds_up_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The encoder refuses a time before 1970; the spans are read back from what an older version or a file may hold."""
    async with receiver() as taken, traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
        start = event("turn/start", {"session": "stdin:default", "attempt": 1, "inbounds": []}, turn="ab" * 16)
        step = event("loop.step", {"step": 1, "status": "ok", "elapsed_ms": 1e300}, turn="ab" * 16)
        await bot.tape("stdin:default").append([start, step, event("turn/end", {"status": "answered"}, turn="ab" * 16)])
        await say(bot, "one")
        await written(bot, "otel/exported")
    assert len(taken.roots) == 1
    assert [one.__dict__["entry"] for one in caplog.records if getattr(one, "action", "") == "otel.unreadable"]


@pytest.mark.parametrize("which", ["kind = 'message' AND payload LIKE '%said: 1%'", "name = 'turn/end'"])
async def test_a_damaged_entry_holds_up_no_other_turn(
    tmp_path: Path, waits: list[float], caplog: pytest.LogCaptureFixture, which: str
) -> None:
    """It may be one of a turn, or the one that ends it."""
    async with receiver() as taken:
        async with traced(settings_for(tmp_path, endpoint="http://127.0.0.1:9"), tmp_path) as bot:
            for number in range(3):
                await say(bot, str(number))
        tamper(
            Home(tmp_path).database,
            f"UPDATE entries SET payload = '{{' WHERE seq = (SELECT min(seq) FROM entries WHERE {which})",
        )
        async with traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
            await say(bot, "of another chat", chat="other")
            await taken.turns(3)
            await metric(bot, "entries_behind", lambda value: value == 0)
    assert len(taken.roots) == 3
    assert len([one for one in caplog.records if getattr(one, "action", "") == "otel.damaged"]) == 1


async def test_arguments_that_are_nested_too_deep_or_hold_half_a_character_go_out_as_text(tmp_path: Path) -> None:
    async with receiver() as taken, traced(settings_for(tmp_path, endpoint=taken.url, content="full"), tmp_path) as bot:
        start = event("turn/start", {"session": "stdin:default", "attempt": 1, "inbounds": []}, turn="ab" * 16)
        given = ["[" * 5_000, '{"x": "\\ud800"}']
        called = [
            tool_call(
                [{"id": text, "type": "function", "function": {"name": "tape_info", "arguments": text}}], turn="ab" * 16
            )
            for text in given
        ]
        await bot.tape("stdin:default").append(
            [start, *called, event("turn/end", {"status": "answered"}, turn="ab" * 16)]
        )
        await say(bot, "one")
        await taken.turns(2)
    shown = [span["gen_ai.tool.call.arguments"] for span in taken.spans if span.name.startswith("execute_tool")]
    assert shown == ["[" * 5_000, '{"x": "\N{REPLACEMENT CHARACTER}"}']


async def test_an_export_that_does_not_run_says_so_and_counts_nothing(tmp_path: Path) -> None:
    """A bot whose background work was not started: so it is in quarantine."""
    settings = settings_for(tmp_path, endpoint="http://127.0.0.1:9")
    async with open_app(settings, Home(tmp_path), channel_settings={"write": lambda _: None}) as bot:
        assert health(bot)[1] == ["to 127.0.0.1:9; nothing is sent yet, and in quarantine nothing at all"]


async def test_what_ends_the_export_stands_in_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(exporter, "encode_turn", fail)
    was_told = False
    with suppress(RuntimeError):  # which is for whoever tries again, unless the block ends before
        async with receiver() as taken, traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
            await say(bot, "one")

            async def is_told() -> bool:
                return "RuntimeError" in health(bot)[1][-1]

            await until(is_told)
            was_told = True
    assert was_told


async def test_what_was_said_while_it_was_off_is_never_sent(tmp_path: Path) -> None:
    async with receiver() as taken:
        on = settings_for(tmp_path, endpoint=taken.url, content="full")
        async with traced(on, tmp_path) as bot:
            await say(bot, "one")
            await written(bot, "otel/exported")
        async with traced(settings_for(tmp_path), tmp_path, begun=False) as bot:
            await written(bot, "otel/ended")
            await say(bot, "private")
        async with traced(on, tmp_path, begun=False) as bot:
            await written(bot, "otel/began", 2)
            await say(bot, "two")
            await written(bot, "otel/exported", 2)
            keys = {data["key"] for name, data in await facts(bot) if name == "otel/began"}
            assert len(keys) == 2
    assert inputs(taken) == ["one", "two"]


async def test_a_reload_switches_it_on_and_off(tmp_path: Path) -> None:
    async with receiver() as taken:
        off = settings_for(tmp_path)
        async with traced(off, tmp_path, begun=False) as bot:

            def hooks() -> int:
                return sum(len(feature.on_merged) for feature in bot.features.lasting if feature.name == "otel")

            await say(bot, "before")
            assert hooks() == 0
            on = settings_for(tmp_path, endpoint=taken.url, content="full")
            await reload(bot, on)
            await written(bot, "otel/began")
            await say(bot, "one")
            await written(bot, "otel/exported")
            assert hooks() == 1
            await reload(bot, off)
            assert hooks() == 0
            await written(bot, "otel/ended")
            await say(bot, "after")
    assert inputs(taken) == ["one"]


async def test_pseudonyms_stay_the_same_and_a_home_has_its_own(tmp_path: Path) -> None:
    async with receiver() as taken:
        for home in ("a", "a", "b"):
            settings = settings_for(tmp_path / home, endpoint=taken.url)
            async with traced(settings, tmp_path / home) as bot:
                before = len(taken.roots)
                await say(bot, "hello")
                await taken.turns(before + 1)
                await written(bot, "otel/exported")
    first, second, other = (span["session.id"] for span in taken.roots)
    assert first == second != other


@pytest.mark.parametrize("status", [200, 401, 429, 503])
async def test_a_receiver_that_may_take_it_later_is_asked_again_and_no_turn_waits(
    tmp_path: Path, waits: list[float], status: int
) -> None:
    async with receiver() as taken:
        headers = {503: {"Retry-After": "7"}, 200: {"Content-Type": "text/html"}}  # 200: another service
        taken.answers = [(status, headers.get(status, {}))] * 3
        async with traced(settings_for(tmp_path, endpoint=taken.url, content="full"), tmp_path) as bot:
            await say(bot, "one")
            await taken.turns(1)
            await written(bot, "otel/exported")
            await metric(bot, "entries_behind", lambda value: value == 0)
            metrics, lines = health(bot)
    assert inputs(taken) == ["one"]
    assert all(count == 1 for count in taken.ids.values())
    assert len(waits) == 3
    assert (waits == [7.0] * 3) == (status == 503)
    assert metrics == {
        "spans_sent": 3,
        "spans_rejected": 0,
        "requests_failed": 3,
        "entries_behind": 0,
        "labels_sent": 0,
        "labels_rejected": 0,
    }
    assert lines == [f"to {taken.url.removeprefix('http://')}; spans sent: 3, entries waiting: 0"]


async def test_a_dead_receiver_touches_no_turn_and_the_status_says_why_traces_wait(tmp_path: Path) -> None:
    async with receiver() as gone:
        url = gone.url
    async with traced(settings_for(tmp_path, endpoint=url, content="full"), tmp_path) as bot:
        for number in range(3):
            assert (await say(bot, str(number))).text == f"You said: {number}"
        await metric(bot, "requests_failed", lambda value: value > 0)
        metrics, lines = health(bot)
        assert metrics["entries_behind"] > 0
        assert "it cannot be reached" in lines[-1]
    port = int(url.rpartition(":")[2])
    on = settings_for(tmp_path, endpoint=url, content="full")
    async with receiver(port=port) as taken, traced(on, tmp_path):
        await taken.turns(3)
    assert inputs(taken) == ["0", "1", "2"]


async def test_a_slow_receiver_touches_no_turn(tmp_path: Path) -> None:
    async with (
        receiver(opened=False) as taken,
        traced(settings_for(tmp_path, endpoint=taken.url, content="full"), tmp_path) as bot,
    ):
        await say(bot, "0")
        await taken.until(lambda: taken.headers)  # a request is under way, and stays so
        for number in range(1, 4):
            await say(bot, str(number))
        assert taken.spans == []
        taken.gate.set()
        await taken.turns(4)
    assert inputs(taken) == ["0", "1", "2", "3"]


async def test_an_answer_that_does_not_come_in_time_is_no_answer(tmp_path: Path, waits: list[float]) -> None:
    async with (
        receiver(opened=False) as taken,
        traced(settings_for(tmp_path, endpoint=taken.url, timeout=0.05), tmp_path) as bot,
    ):
        await say(bot, "one")
        await metric(bot, "requests_failed", lambda value: value >= 2)
        assert "it gave no answer in time" in health(bot)[1][-1]


async def test_one_turn_that_the_receiver_refuses_holds_up_no_other(tmp_path: Path, waits: list[float]) -> None:
    async with receiver(opened=False) as taken:
        taken.refuses = b"odd words"
        async with traced(settings_for(tmp_path, endpoint=taken.url, content="full"), tmp_path) as bot:
            await say(bot, "0")
            await taken.until(lambda: taken.headers)
            for text in ("1", "odd words", "3", "4"):  # a model is shown what was said before in its chat
                await say(bot, text, chat="odd" if text == "odd words" else "default")
            taken.gate.set()
            await taken.turns(4)
            await written(bot, "otel/exported", 2)
            found = await facts(bot)
            metrics, lines = health(bot)
    assert inputs(taken) == ["0", "1", "3", "4"]
    assert all(count == 1 for count in taken.ids.values())
    (refused,) = [data for name, data in found if name == "otel/refused"]
    assert refused["status"] == 400
    last = found[-1][1]
    assert (last["turns"], last["spans"], last["rejected"]) == (4, 12, 3)
    assert (metrics["spans_sent"], metrics["spans_rejected"]) == (12, 3)
    assert lines[-1] == "spans that the receiver refuses: 3"
    assert waits == []


async def test_a_receiver_that_refuses_a_turn_is_there_again(tmp_path: Path, waits: list[float]) -> None:
    async with receiver() as taken:
        taken.answers = [(503, {"Retry-After": "7"}), (400, {})]
        async with traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
            await say(bot, "one")
            await written(bot, "otel/refused")
            await metric(bot, "entries_behind", lambda value: value == 0)
            assert health(bot)[1][-2] == "spans that the receiver refuses: 3"
    assert waits == [7.0]


async def test_spans_that_the_receiver_says_it_rejects_are_counted_and_not_sent_again(tmp_path: Path) -> None:
    async with receiver() as taken:
        taken.rejects = 2
        async with traced(settings_for(tmp_path, endpoint=taken.url), tmp_path) as bot:
            await say(bot, "one")
            await written(bot, "otel/exported")
            assert (await facts(bot))[-1][1]["rejected"] == 2
            assert (health(bot)[0]["spans_sent"], health(bot)[0]["spans_rejected"]) == (1, 2)
    assert len(taken.bodies) == 1


async def test_a_long_backlog_goes_out_in_requests_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, "MAX_REQUEST_SPANS", 5)
    monkeypatch.setattr(exporter, "PAGE_ENTRIES", 3)
    async with (
        receiver(opened=False) as taken,
        traced(settings_for(tmp_path, endpoint=taken.url, content="full"), tmp_path) as bot,
    ):
        for number in range(7):
            await say(bot, str(number))
        taken.gate.set()
        await taken.turns(7)
        await written(bot, "otel/exported", 4)
    assert inputs(taken) == [str(number) for number in range(7)]
    assert max(sum(bytes.fromhex(span.id) in body for span in taken.roots) for body in taken.bodies) <= 2
    assert len(taken.bodies) >= 4


async def test_spans_go_out_packed_with_the_headers_of_the_settings(tmp_path: Path) -> None:
    async with receiver() as taken:
        settings = settings_for(
            tmp_path, endpoint=f"{taken.url}/v1/traces/", headers="authorization=Bearer a-secret-key, x-team = red\n"
        )
        async with traced(settings, tmp_path) as bot:
            await say(bot, "one")
            await taken.turns(1)
    (headers,) = taken.headers
    assert headers["authorization"] == "Bearer a-secret-key"
    assert (headers["x-team"], headers["content-encoding"]) == ("red", "gzip")
    assert headers["content-type"] == "application/x-protobuf"


async def test_a_turn_that_was_cut_off_is_sent_once_it_is_merged(tmp_path: Path) -> None:
    async with receiver() as taken:
        on = settings_for(tmp_path, endpoint=taken.url, content="full")
        async with traced(on, tmp_path) as bot:
            tape = bot.tape("stdin:default")
            fork = await tape.open_fork(stamp={"turn": "cd" * 16})
            start = {"session": "stdin:default", "attempt": 1, "inbounds": []}
            await fork.append(
                [event("turn/start", start), message("user", "cut off", sender={"id": "1", "name": "Ann"})]
            )
            await fork.save()
        async with traced(on, tmp_path) as bot:
            await taken.turns(1)
    (root,) = taken.roots
    assert (root.trace, root["bubbot.turn.status"], root["error.type"]) == ("cd" * 16, "interrupted", "interrupted")
    assert root["input.value"] == "cut off"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3", 3.0), ("-1", 0.0), ("1e9", 3600.0), ("nan", None), ("", None), ("soon", None),
     ("Tue, 24 Nov 99999999999 10:00:30 GMT", None),
     ("Tue, 24 Nov 2026 10:00:30 GMT", 30.0), ("Tue, 24 Nov 2026 09:00:00 GMT", 0.0)],
)  # fmt: skip
def test_a_receiver_may_name_seconds_or_a_time(text: str, seconds: float | None) -> None:
    now = parse_moment("2026-11-24T10:00:00+00:00")
    assert now is not None
    assert parse_retry_after(text, now) == seconds


def test_a_changed_setting_is_another_config() -> None:
    assert OtelConfig.of(Settings()) == OtelConfig.of(Settings())
    assert replace(OtelConfig.of(Settings()), agent="x") != OtelConfig.of(Settings())
