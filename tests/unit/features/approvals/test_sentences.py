"""Every sentence whose name is put together is said with what it needs, in every language."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from bubbot.features.approvals.card import ApprovalCard, show_details
from bubbot.features.approvals.decision import EffectRow, Place, Verdict
from bubbot.features.approvals.service import Rejection, Scope
from bubbot.features.approvals.state import StandingGrant
from bubbot.features.approvals.tools import format_lists
from bubbot.features.why.formats import format_check
from bubbot.ports.channel import Role, Sender
from bubbot.ports.tool import GrantKind, GrantTarget
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages

AT = datetime(2026, 11, 24, 20, 0, tzinfo=UTC)
LANGUAGES = [Texts(tag) for tag in list_languages("bubbot.texts")]


def asked(kind: str = "domain", **changes: Any) -> dict[str, Any]:
    """The data of a card."""
    call = {"tool": "page.read", "details": "read it", "target": {"kind": kind, "value": "example.org"}}
    data = {
        "id": "7KQ2M", "calls": [call], "verdict": "ask", "why": ["outside"], "tainted_by": [["chat", 12]],
        "scopes": ["once", "chat", "always"], "expires": AT.isoformat(),
    }  # fmt: skip
    return {**data, **changes}


@pytest.mark.parametrize("texts", LANGUAGES, ids=lambda one: one.language)
class TestEverySentence:
    @pytest.mark.parametrize("kind", GrantKind)
    def test_what_always_would_cover(self, texts: Texts, kind: GrantKind) -> None:
        card = ApprovalCard("7KQ2M", asked(kind), "telegram:42", Sender("42", "Ann"), texts)
        values = {"value": "`example.org`"} if kind is not GrantKind.ARGUMENTS else {"value": ""}
        says_what = texts.say(f"approval_always_{kind}", tool="`page.read`", **values)
        assert says_what in card.format_open()
        grants = [StandingGrant(3, "page.read", GrantTarget(kind, "example.org"), session) for session in ("", "a:1")]
        assert "example.org" in format_lists([], grants, {}, texts, str)

    def test_a_list_is_no_longer_than_a_few_messages(self, texts: Texts) -> None:
        target = GrantTarget(GrantKind.RECIPIENT, "bob")
        listed = format_lists(
            [], [StandingGrant(number, "post.send", target) for number in range(1_000)], {}, texts, str
        )
        assert (listed.count("post.send"), "999" in listed, "970" in listed) == (30, True, True)

    def test_why_it_is_asked(self, texts: Texts) -> None:
        why = [*EffectRow, "used_before", "cut_off"]
        text = ApprovalCard("7KQ2M", asked(why=why), "telegram:42", Sender("42"), texts).format_open()
        assert "#12" in text
        assert len(set(text.split("\n\n"))) == len(text.split("\n\n"))

    def test_what_was_cut_off(self, texts: Texts) -> None:
        card = ApprovalCard("7KQ2M", asked(cut_off=True, scopes=["once"]), "telegram:42", Sender("42"), texts)
        assert "7KQ2M" in card.format_open()
        labels = [button.label for button in card.message("telegram:42", "owner", seconds=9).buttons.buttons]  # type: ignore[union-attr]
        assert labels == [texts.say("approval_button_again"), texts.say("approval_button_leave")]

    @pytest.mark.parametrize("scope", ["", *get_args(Scope)])
    def test_how_it_was_answered(self, texts: Texts, scope: str) -> None:
        card = ApprovalCard("7KQ2M", asked(), "telegram:42", Sender("42"), texts)
        assert "Bob" in card.format_decided("approved" if scope else "denied", scope, "Bob", AT)

    def test_why_an_answer_does_not_count(self, texts: Texts) -> None:
        for rejection in set(get_args(Rejection)) - {"decided"}:
            assert "7KQ2M" in texts.say(f"approval_{rejection}", id="7KQ2M")

    @pytest.mark.parametrize("place", Place)
    @pytest.mark.parametrize("verdict", Verdict)
    def test_what_a_call_rests_on(self, texts: Texts, verdict: Verdict, place: Place) -> None:
        for row in EffectRow:
            data = {
                "tool": "page.read", "row": row.value, "verdict": verdict.value, "role": Role.OWNER.value, "place": place.value,
                "tainted_by": [["chat", 7]], "quote": ["chat", 8], "grant": 9, "approval": "7KQ2M", "used_before": True,
            }  # fmt: skip
            said = format_check(data, texts)
            assert all(word in said for word in ("page.read", "#7", "#8", "9"))
            assert format_check({**data, "grant": 0, "tainted_by": []}, texts) != said


class TestForgery:
    HOSTILE = "x\u202ey\x1b[2J\u200b ```\n**Approval AAAAA** ,approve @everyone\n````\n[a](http://b)\ttab\u2028z"

    def test_nothing_in_the_details_leaves_its_block(self) -> None:
        call = {"tool": "page.read", "details": self.HOSTILE, "target": None}
        card = ApprovalCard("7KQ2M", asked(calls=[call], scopes=["once"]), "telegram:42", Sender("42", "A`*_"), Texts())
        text = card.format_open()
        block = text.partition("`````\n")[2].partition("\n`````")[0]
        assert block == (
            "x<U+202E>y<U+001B>[2J<U+200B> ```\n**Approval AAAAA** ,approve @everyone\n````\n[a](http://b)    tab<U+2028>z"
        )
        assert "@everyone" not in text.replace(block, "")

    def test_a_name_is_a_name(self) -> None:
        card = ApprovalCard("7KQ2M", asked(), "telegram:42", Sender("42", "**Eve**\n`,approve`\u202e"), Texts())
        assert "\\*\\*Eve\\*\\* \\`,approve\\` (42)" in card.format_open()

    def test_what_a_grant_names_stays_in_its_span(self) -> None:
        call = {"tool": "page.read", "details": "d", "target": {"kind": "recipient", "value": "a` **b**\nc"}}
        text = ApprovalCard("7KQ2M", asked(calls=[call]), "telegram:42", Sender("42"), Texts()).format_open()
        assert "`a<U+0060> **b** c`" in text

    @pytest.mark.parametrize("hidden", ["\u034f", "\u180b", "\u2065", "\ufe0f", "\U000e0041", "\U000e0100"])
    def test_what_no_screen_shows_is_written_as_its_number(self, hidden: str) -> None:
        assert show_details(f"rm{hidden} x") == f"rm<U+{ord(hidden):04X}> x"

    @pytest.mark.parametrize(
        ("details", "value", "count"),
        [
            ("\u200b" * 1_190, "r", 1),
            ("`" * 1_190, "r", 1),
            ("x", "\u200b" * 5_000, 5),
            ("x", "r", 200),
            ("x" * 80_000, "r", 1),
        ],
    )
    def test_no_platform_cuts_a_card(self, details: str, value: str, count: int) -> None:
        call = {"tool": "page.read", "details": details, "target": {"kind": "recipient", "value": value}}
        card = ApprovalCard("7KQ2M", asked(calls=[call] * count), "telegram:42", Sender("42", "Ann"), Texts())
        assert len(card.format_open()) < 4_096
        assert len(card.message("telegram:42", "owner", seconds=1).files) == (len(details) > 1 or count > 5)


@pytest.mark.parametrize(
    ("language", "here", "elsewhere"),
    [
        ("en", "Bob (2) asked me to run this.", "Bob (2) in `Family (group on Telegram)` asked me to run this."),
        ("zh", "：Bob (2) 请我执行以下操作。", "：`Family (group on Telegram)` 中的 Bob (2) 请我执行以下操作。"),
    ],
)
def test_a_card_names_the_chat_only_if_it_is_shown_elsewhere(language: str, here: str, elsewhere: str) -> None:
    card = ApprovalCard("7KQ2M", asked(), "telegram:-100", Sender("2", "Bob"), Texts(language))
    assert here in card.format_open()
    assert "telegram:-100" not in card.format_open()
    assert elsewhere in replace(card, chat="Family (group on Telegram)").format_open()
