"""Numbers for Prometheus: what is counted where, what is read off, and that names cannot grow without end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from bubbot.errors import DeliveryFailed
from bubbot.features.budget.budget import Budget
from bubbot.features.budget.health import BUDGET_METRICS
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.health.snapshot import HealthSnapshot
from bubbot.gateway.metrics import Metrics
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.health import FeatureHealth, MetricSample, MetricSpec
from bubbot.ports.usage import BudgetSubject
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService
from tests.budgets import settled
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import WAITS, Stage, failing, rules
from tests.turns import Options, Played, running, says
from tests.unit.gateway.health.test_formatter import FULL
from tests.virtual import virtual

MAX_MODEL_LABELS = 50


def numbers(metrics: Metrics, snapshot: HealthSnapshot = FULL, commits: int = 0) -> Mapping[str, float]:
    """Every sample by its name and the values of its labels."""
    text = metrics.render(snapshot, commits).decode()
    return {
        f"{one.name}{{{','.join(value for _, value in sorted(one.labels.items()))}}}": one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def idle(budget: Budget | None = None) -> tuple[ActivityTracker, Budget]:
    """An activity and a budget in which nothing happens."""
    made = TapeService(InMemoryStore(), "bubbot/budget", now=SteppingClock(), new_id=CountingIds(), session="")
    books = budget or Budget(made, now=SteppingClock(), new_id=CountingIds(), zone=ZoneInfo("UTC"))
    return ActivityTracker(lambda _session, _event: None, lambda: 0.0), books


@virtual
async def test_messages_turns_and_deliveries_are_counted_where_they_happen() -> None:
    metrics, channel = Metrics(), Stage()
    model = Played(
        says("one"), says("[SILENT]"), {"error": "unavailable", "message": "down"}, {"text": "x", "delay": 9}
    )
    async with running(InMemoryStore(), model, Options(rules=rules()), channel=channel) as bench:
        _, budget = idle()
        metrics.attach([bench.line], bench.activity, budget)
        assert numbers(metrics)["bubbot_turns_total{test,failed}"] == 0
        first = bench.inbound("hello")
        for inbound in (first, first):
            await bench.gate.receive(inbound)
        await bench.quiet()
        for text in ("be silent", "break", "wait"):
            await bench.gate.receive(bench.inbound(text))
            if text != "wait":
                await bench.quiet()
        await asyncio.sleep(3)
        await bench.gate.receive(bench.inbound(",status"))
        await bench.gate.receive(bench.inbound(",stop"))
        await bench.quiet()
        found = numbers(metrics)
    assert found["bubbot_messages_accepted_total{test}"] == 6
    assert {name: value for name, value in found.items() if name.startswith("bubbot_turns_total") and value} == {
        "bubbot_turns_total{test,answered}": 1,
        "bubbot_turns_total{test,silent}": 1,
        "bubbot_turns_total{test,failed}": 1,
        "bubbot_turns_total{test,stopped}": 1,
    }
    assert found["bubbot_deliveries_total{test,sent}"] == len(channel.sent) == 4
    assert found["bubbot_turn_duration_seconds_count{test}"] == 4
    assert found["bubbot_turn_duration_seconds_bucket{test,5.0}"] == 4
    assert 3 <= found["bubbot_turn_duration_seconds_sum{test}"] < 4


@virtual
async def test_what_is_tried_again_and_what_is_given_up_is_told_apart() -> None:
    metrics, channel = Metrics(), Stage()
    channel.fail = failing(
        "send", DeliveryFailed("busy"), DeliveryFailed("busy"), None, DeliveryFailed("no", permanent=True)
    )
    async with running(InMemoryStore(), ScriptedModel(), Options(rules=rules()), channel=channel) as bench:
        metrics.attach([bench.line], *idle())
        for text in ("one", "two"):
            await bench.say(text)
            await asyncio.sleep(sum(WAITS))
        found = numbers(metrics)
    assert [found[f"bubbot_deliveries_total{{test,{what}}}"] for what in ("sent", "retried", "failed")] == [1, 2, 1]


def test_model_calls_are_counted_by_model_and_the_names_of_models_have_an_end() -> None:
    metrics = Metrics()
    _, budget = idle()
    metrics.attach([], ActivityTracker(lambda _session, _event: None, lambda: 0.0), budget)
    call = settled("c", BudgetSubject("telegram:42"), input_tokens=100, output_tokens=7, nano=5 * 10**8)
    budget.on_call_settled(call)
    budget.on_call_settled(
        settled("d", BudgetSubject("telegram:42"), input_tokens=100, output_tokens=7, status="failed")
    )
    for number in range(10 * MAX_MODEL_LABELS):
        budget.on_call_settled(settled("c", BudgetSubject("telegram:42"), model=f"surprise-{number}"))
    found = numbers(metrics)
    assert found["bubbot_model_calls_total{m,answered}"] == 1
    assert found["bubbot_model_calls_total{m,failed}"] == 1
    assert found["bubbot_model_tokens_total{input,m}"] == 200
    assert found["bubbot_model_tokens_total{output,m}"] == 14
    assert found["bubbot_model_cost_dollars_total{m}"] == 0.5
    calls = [name for name in found if name.startswith("bubbot_model_calls_total")]
    assert len(calls) <= MAX_MODEL_LABELS + 2
    assert found["bubbot_model_calls_total{other,answered}"] == 9 * MAX_MODEL_LABELS + 1


def test_a_snapshot_is_read_off_whole() -> None:
    found = numbers(Metrics(BUDGET_METRICS), FULL, commits=17)
    wanted = {
        "bubbot_info{1.2.3}": 1,
        "bubbot_store_commits_total{}": 17,
        "bubbot_channel_ready{telegram}": 1,
        "bubbot_channel_ready{old}": 0,
        "bubbot_open_deliveries{telegram}": 1,
        "bubbot_oldest_open_delivery_seconds{telegram}": 300,
        "bubbot_oldest_open_delivery_seconds{work}": 0,
        "bubbot_messages_waiting{}": 3,
        "bubbot_turns_running{}": 2,
        "bubbot_sessions{}": 7,
        "bubbot_log_records_total{error}": 1,
        "bubbot_budget_spent{cost,day}": 0.0123,
        "bubbot_budget_limit{cost,day}": 5,
        "bubbot_budget_limit{tokens,month}": 100000,
        "bubbot_database_bytes{}": 1_234_567,
        "bubbot_database_wal_bytes{}": 999,
        "bubbot_entries{}": 12345,
        "bubbot_newest_backup_timestamp_seconds{}": 1795312800,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert "bubbot_channel_last_heard_timestamp_seconds{work}" not in found
    assert "bubbot_budget_limit{tokens,day}" not in found
    assert found["process_resident_memory_bytes{}"] > 1_000_000
    assert found["process_open_fds{}"] > 2


def test_a_feature_has_its_metrics_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    declared = (
        MetricSpec("bubbot_plants", "Plants.", labels=("room",)),
        MetricSpec("bubbot_waterings", "Waterings.", "counter"),
        MetricSpec("bubbot_lamps", "Lamps."),
        MetricSpec("bubbot_plants", "Others."),
        MetricSpec("bubbot_turns", "Turns.", "counter"),
        MetricSpec("bubbot_turns_total", "Turns."),
        MetricSpec("bubbot_entries", "Entries."),
    )
    samples = (
        MetricSample("bubbot_plants", 3, ("hall",)),
        MetricSample("bubbot_waterings", 7),
        MetricSample("bubbot_entries", 1),
        MetricSample("bubbot_secret", 1),
    )
    report = FeatureHealth(name="plants", samples=samples)
    text = Metrics(declared).render(structs.replace(FULL, reports=(report,)), 0).decode()
    own = [line for line in text.splitlines() if re.search("plants|watering|lamp|secret|bubbot_entries", line)]
    assert own == [
        "# HELP bubbot_plants Plants.",
        "# TYPE bubbot_plants gauge",
        'bubbot_plants{room="hall"} 3.0',
        "# HELP bubbot_waterings_total Waterings.",
        "# TYPE bubbot_waterings_total counter",
        "bubbot_waterings_total 7.0",
        "# HELP bubbot_entries Entries over all tapes.",
        "# TYPE bubbot_entries gauge",
        "bubbot_entries 12345.0",
    ]
    taken = [record.getMessage().rpartition(" ")[2] for record in caplog.records]
    assert taken == ["bubbot_plants", "bubbot_turns", "bubbot_turns_total", "bubbot_entries"]


@pytest.mark.parametrize("name", ["", "1st", "bubbot-plants", "Plants", "plants total"])
def test_a_name_that_collectors_do_not_take_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a metric"):
        MetricSpec(name, "Plants.")


def test_no_label_names_a_person_a_chat_or_what_was_said() -> None:
    text = Metrics(BUDGET_METRICS).render(FULL, 0).decode()
    assert not any(word in text for word in ("42:", "telegram:42", "3fa9c1", 'delivered"', "token is not", "/home"))


def test_two_of_them_share_nothing_and_lag_is_never_negative() -> None:
    first, second = Metrics(), Metrics()
    first.record_lag(0.3)
    first.record_lag(-1.0)
    assert numbers(first)["bubbot_event_loop_lag_seconds_count{}"] == 2
    assert numbers(first)["bubbot_event_loop_lag_seconds_sum{}"] == 0.3
    assert numbers(second)["bubbot_event_loop_lag_seconds_count{}"] == 0


@virtual
async def test_counts_go_on_where_another_bot_takes_the_place_of_the_first() -> None:
    metrics = Metrics()
    for life in ("first", "second"):
        async with running(
            InMemoryStore(), ScriptedModel(), Options(rules=rules()), channel=Stage(), life=life
        ) as bench:
            metrics.attach([bench.line], bench.activity, idle()[1])
            await bench.say("hello")
            await bench.quiet()
    found = numbers(metrics)
    assert found["bubbot_messages_accepted_total{test}"] == 2
    assert found["bubbot_turns_total{test,answered}"] == 2
