"""Sums of settled calls: what each call adds, and what shards add up to."""

from __future__ import annotations

from typing import Any

from bubbot.features.usage.spending import SpendingReport, UsageSum, UsageTotals, combine_reports
from tests.budgets import ANN, settled


def call(nano: int | None, tokens: int, **fields: Any) -> Any:
    counts = {"input_tokens": tokens, "output_tokens": 2 * tokens, "cached_tokens": 3 * tokens}
    return settled("c", ANN, nano=nano, **counts, **fields)


def of(tape: str, *calls: Any) -> UsageSum:
    found = UsageSum()
    for number, each in enumerate(calls, 1):
        found.add_call(each, tape, number)
    return found


def test_a_sum_has_all_that_its_calls_have() -> None:
    total = of("bubbot/budget/0", call(1_500_000_000, 10), call(None, 5, estimated=True), call(250_000_000, 1))
    total.add(of("bubbot/budget/1", call(4_000_000, 100, estimated=True), call(None, 7, reserved=1)))
    assert (total.tokens, total.has_price, of("x", call(None, 1)).has_price) == (3 * 123, True, False)
    assert total.totals() == UsageTotals(
        dollars=1.754,
        calls=5,
        input_tokens=123,
        output_tokens=246,
        cached_tokens=369,
        unpriced=2,
        estimated=2,
        reservations=(),
        shards={"bubbot/budget/0": (1, 2, 3), "bubbot/budget/1": (1, 1)},
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
