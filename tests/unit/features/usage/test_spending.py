"""Sums of settled calls: what each call adds, and what shards add up to."""

from __future__ import annotations

from typing import Any

from bubbot.features.usage.spending import SpendingReport, UsageSum, UsageTotals, combine_reports


def call(nano: int | None, tokens: int, **fields: Any) -> dict[str, Any]:
    return {"nano": nano, "input_tokens": tokens, "output_tokens": 2 * tokens, "cached_tokens": 3 * tokens, **fields}


def of(tape: str, *calls: dict[str, Any]) -> UsageSum:
    result = UsageSum(reservations={tape: tuple(range(1, len(calls) + 1))})
    for each in calls:
        result = result.add_call(each)
    return result


def test_a_sum_has_all_that_its_calls_have() -> None:
    shard = of("bubbot/budget/0", call(1_500_000_000, 10), call(None, 5, estimated=True), call(250_000_000, 1))
    other = of("bubbot/budget/1", call(4_000_000, 100, estimated=True), call(None, 7))
    both = shard.add(other)
    assert both == other.add(shard)
    assert (both.tokens, both.has_price, of("x", call(None, 1)).has_price) == (3 * 123, True, False)
    assert both.totals() == UsageTotals(
        dollars=1.754,
        calls=5,
        input_tokens=123,
        output_tokens=246,
        cached_tokens=369,
        unpriced=2,
        estimated=2,
        reservations=(),
        shards={"bubbot/budget/0": (1, 2, 3), "bubbot/budget/1": (1, 2)},
    )


def test_reports_of_shards_add_up_and_are_sorted_again() -> None:
    dear, cheap = of("a", call(9, 1)), of("b", call(5, 1))
    reports = [
        SpendingReport(cheap, {"chat": {"one": cheap}, "day": {"2026-11-21": cheap}}, 1),
        SpendingReport(dear, {"chat": {"two": dear}, "day": {"2026-11-20": dear}}, 2),
        SpendingReport(cheap, {"chat": {"one": cheap}, "day": {"2026-11-21": cheap}}, 4),
    ]
    report = combine_reports(reports)
    assert (report.total.cost_nanousd, report.answers) == (19, 7)
    assert [(name, usage.cost_nanousd) for name, usage in report.by["chat"].items()] == [("one", 10), ("two", 9)]
    assert list(report.by["day"]) == ["2026-11-20", "2026-11-21"]
    assert combine_reports(reports[:1]) is reports[0]
