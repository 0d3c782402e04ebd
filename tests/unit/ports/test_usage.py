"""The totals that a call counts towards."""

from __future__ import annotations

from dataclasses import replace

from bubbot.ports.usage import BudgetSubject, Reservation


def test_a_call_counts_towards_its_own_totals_and_no_others() -> None:
    call = Reservation("c1", BudgetSubject("chat:room:1", "chat:ann", "j1"), "large", "2026-11-21", 10, 20, None)
    others = [
        replace(call, day="2026-11-20"),
        replace(call, day="2026-10-21"),
        replace(call, model="small"),
        replace(call, subject=BudgetSubject("other:hall", "other:bob", "j2")),
    ]
    keys = {key for each in (call, *others) for key in each.totals()}
    assert {key for key in keys if call.counts_towards(key)} == set(call.totals()) < keys
