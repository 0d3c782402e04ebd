"""The totals that a call counts towards."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bubbot.ports.usage import BudgetSubject, CallReserved, SpentTotal, user_key
from tests.budgets import reserved

CALL = reserved("c1", BudgetSubject("chat:room:1", "chat:ann", "j1", "t1"), model="large")


def test_a_call_counts_towards_its_own_totals_and_no_others() -> None:
    others = [
        replace(CALL, day="2026-11-20"),
        replace(CALL, day="2026-10-21"),
        replace(CALL, model="small"),
        reserved("c1", BudgetSubject("other:hall", "other:bob", "j2"), model="large"),
    ]
    keys = {key for each in (CALL, *others) for key in each.totals()}
    assert {key for key in keys if CALL.counts_towards(key)} == set(CALL.totals()) < keys


def test_a_call_of_nobody_counts_towards_its_bot_channel_chat_and_model() -> None:
    call = reserved("c1", BudgetSubject("chat:room:1"), model="large")
    assert call.scopes() == [("bot", ""), ("channel", "chat"), ("chat", "chat:room"), ("model", "large")]
    assert [(key.scope, key.period) for key in call.totals()][:2] == [("bot", "2026-11-21"), ("bot", "2026-11")]
    assert call.tokens == 30


@pytest.mark.parametrize("job", ["", "j1"])
def test_a_call_knows_who_pays(job: str) -> None:
    payer = BudgetSubject("chat:room:1", "chat:ann", job, "t1")
    entry = reserved("c1", payer).to_entry().with_id(7)
    assert CallReserved.of(entry).payer == payer
    assert ("job" in entry.data) is bool(job)


def test_totals_add_up() -> None:
    assert SpentTotal(1, 20, 300).add(SpentTotal(10, 100, 1000)) == (11, 120, 1300)


def test_a_person_is_named_with_the_channel() -> None:
    assert (user_key("chat:room:1", "ann"), user_key("chat:room", "")) == ("chat:ann", "")
