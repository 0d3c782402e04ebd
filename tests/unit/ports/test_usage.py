"""The totals that a call counts towards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bubbot.ports.usage import BudgetSubject, Reservation, SpentTotal, reservation_from, user_key


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


def test_a_call_of_nobody_counts_towards_its_bot_channel_chat_and_model() -> None:
    call = Reservation("c1", BudgetSubject("chat:room:1"), "large", "2026-11-21", 10, 20, None)
    assert call.scopes() == [("bot", ""), ("channel", "chat"), ("chat", "chat:room"), ("model", "large")]
    assert [(key.scope, key.period) for key in call.totals()][:2] == [("bot", "2026-11-21"), ("bot", "2026-11")]
    assert call.tokens == 30


@pytest.mark.parametrize("job", ["", "j1"])
@pytest.mark.parametrize("cost", [None, 0, 70])
def test_a_reservation_is_read_as_it_was_written(job: str, cost: int | None) -> None:
    subject = BudgetSubject("chat:room:1", "chat:ann", job, "t1")
    call = Reservation("c1", subject, "large", "2026-11-21", 10, 20, cost)
    assert reservation_from(call.as_json(), 7) == replace(call, entry=7)
    assert ("job" in call.as_json()) is bool(job)


def test_totals_add_up_and_a_call_without_a_price_costs_nothing() -> None:
    total = SpentTotal(1, 20, 300).add_call(5, 70).add_call(6, None)
    assert total == (3, 31, 370)
    assert total.add(SpentTotal(10, 100, 1000)) == (13, 131, 1370)


def test_a_person_is_named_with_the_channel() -> None:
    assert (user_key("chat:room:1", "ann"), user_key("chat:room", "")) == ("chat:ann", "")
