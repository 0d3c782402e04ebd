"""Every sentence whose name is put together is said with what it needs, in every language."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import msgspec
import pytest
from msgspec import structs

from bubbot.command import Caller, Surface, describe, find_spec
from bubbot.features.approvals.commands import ApprovalCommands, format_cards, format_grants
from bubbot.features.approvals.decision import EffectRow, Place, Verdict
from bubbot.features.approvals.facts import Answer
from bubbot.features.approvals.results import CardAnswer, CardRow, GrantRow
from bubbot.features.approvals.service import Rejection
from bubbot.features.why.formats import CheckedCall, format_check
from bubbot.ports.channel import Role
from bubbot.texts import Texts
from bubbot.texts.catalogue import list_languages
from bubbot.tool import GrantKind, GrantTarget
from tests.approval_facts import EXPIRES, make_call, make_card, make_decided

AT = datetime(2026, 11, 24, 20, 0, tzinfo=UTC)
LANGUAGES = [Texts(tag) for tag in list_languages("bubbot.texts")]


@pytest.mark.parametrize("texts", LANGUAGES, ids=lambda one: one.language)
class TestEverySentence:
    @pytest.mark.parametrize("kind", GrantKind)
    def test_what_always_would_cover(self, texts: Texts, kind: GrantKind) -> None:
        shown = make_card(texts, make_call(target=GrantTarget(kind, "example.org"))).format_open()
        values = {"value": "`example.org`"} if kind is not GrantKind.ARGUMENTS else {"value": ""}
        says_what = texts.say(f"approval_always_{kind}", tool="`page.read`", **values)
        assert says_what in shown
        grants = [
            GrantRow(3, "page.read", kind, "example.org", session, "a:1", AT.isoformat()) for session in (None, "a:1")
        ]
        assert "\n".join(format_grants(grants, 2, texts)).count("example.org") == 2

    def test_a_list_is_no_longer_than_a_few_messages(self, texts: Texts) -> None:
        rows = [CardRow(str(number), "a:1", "a:1", ("post.send",), (), EXPIRES, EXPIRES) for number in range(1_000)]
        listed = "\n".join(format_cards(rows, texts, UTC))
        assert (listed.count("post.send"), "999" in listed, "970" in listed) == (30, True, True)
        grant = GrantRow(3, "post.send", GrantKind.RECIPIENT, "bob", None, "a:1", EXPIRES)
        assert "970" in format_grants([grant] * 30, 1_000, texts)[-1]

    def test_why_it_is_asked(self, texts: Texts) -> None:
        why = [*EffectRow, "used_before", "cut_off"]
        text = make_card(texts, why=why).format_open()
        assert "#12" in text
        assert len(set(text.split("\n\n"))) == len(text.split("\n\n"))

    def test_what_was_cut_off(self, texts: Texts) -> None:
        cut_off = make_card(texts, cut_off=True, scopes=("once",))
        assert "7KQ2M" in cut_off.format_open()
        labels = [button.label for button in cut_off.message("telegram:42", "owner", seconds=9).buttons.buttons]  # type: ignore[union-attr]
        assert labels == [texts.say("approval_button_again"), texts.say("approval_button_leave")]

    @pytest.mark.parametrize("scope", ["", "once", "chat", "always"])
    def test_how_it_was_answered(self, texts: Texts, scope: str) -> None:
        assert "Bob" in make_card(texts).format_decided(make_decided(scope), AT)

    def test_why_an_answer_does_not_count(self, texts: Texts) -> None:
        for rejection in set(get_args(Rejection)) - {"decided"}:
            for surface in Surface:
                assert "7KQ2M" in texts.say_on(surface, f"approval_{rejection}", id="7KQ2M")

    @pytest.mark.parametrize("surface", [Surface.CHAT, Surface.SHELL])
    def test_what_became_of_an_answer(self, texts: Texts, surface: Surface) -> None:
        spec = find_spec(ApprovalCommands, "approvals approve")
        results = [
            CardAnswer("7KQ2M", verdict, is_waiting) for verdict in get_args(Answer) for is_waiting in (True, False)
        ]
        said = {describe(spec, ApprovalCommands, result, Caller(texts=texts, surface=surface)) for result in results}
        assert len(said) == 4
        assert all("7KQ2M" in each for each in said)

    @pytest.mark.parametrize("place", Place)
    @pytest.mark.parametrize("verdict", Verdict)
    def test_what_a_call_rests_on(self, texts: Texts, verdict: Verdict, place: Place) -> None:
        for row in EffectRow:
            data = {
                "tool": "page.read", "row": row.value, "verdict": verdict.value, "role": Role.OWNER.value, "place": place.value,
                "tainted_by": [["chat", 7]], "quote": ["chat", 8], "grant": 9, "approval": "7KQ2M", "used_before": True,
                "effect": "outside",
            }  # fmt: skip
            check = msgspec.convert(data, CheckedCall)
            said = format_check(check, texts)
            assert all(word in said for word in ("page.read", "#7", "#8", "9"))
            assert format_check(structs.replace(check, grant=0, tainted_by=()), texts) != said


class TestForgery:
    HOSTILE = "x\u202ey\x1b[2J\u200b ```\n**Approval AAAAA** ,approve @everyone\n````\n[a](http://b)\ttab\u2028z"

    def test_nothing_in_the_details_leaves_its_block(self) -> None:
        call = make_call(details=self.HOSTILE, target=None)
        text = make_card(Texts(), call, scopes=("once",), name="A`*_").format_open()
        block = text.partition("`````\n")[2].partition("\n`````")[0]
        assert block == (
            "x<U+202E>y<U+001B>[2J<U+200B> ```\n**Approval AAAAA** ,approve @everyone\n````\n[a](http://b)    tab<U+2028>z"
        )
        assert "@everyone" not in text.replace(block, "")

    def test_a_name_is_a_name(self) -> None:
        shown = make_card(Texts(), name="**Eve**\n`,approve`\u202e").format_open()
        assert "\\*\\*Eve\\*\\* \\`,approve\\` (42)" in shown

    def test_what_a_grant_names_stays_in_its_span(self) -> None:
        call = make_call(target=GrantTarget(GrantKind.RECIPIENT, "a` **b**\nc"))
        assert "`a<U+0060> **b** c`" in make_card(Texts(), call).format_open()

    @pytest.mark.parametrize("hidden", ["\u034f", "\u180b", "\u2065", "\ufe0f", "\U000e0041", "\U000e0100"])
    def test_what_no_screen_shows_is_written_as_its_number(self, hidden: str) -> None:
        shown = make_card(Texts(), make_call(details=f"rm{hidden} x", target=None)).format_open()
        assert f"\nrm<U+{ord(hidden):04X}> x\n" in shown

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
        call = make_call(details=details, target=GrantTarget(GrantKind.RECIPIENT, value))
        shown = make_card(Texts(), *[call] * count, name="Ann")
        assert len(shown.format_open()) < 4_096
        assert len(shown.message("telegram:42", "owner", seconds=1).files) == (len(details) > 1 or count > 5)


@pytest.mark.parametrize(
    ("language", "here", "elsewhere"),
    [
        ("en", "Bob (42) asked me to run this.", "Bob (42) in `Family (group on Telegram)` asked me to run this."),
        ("zh", "：Bob (42) 请我执行以下操作。", "：`Family (group on Telegram)` 中的 Bob (42) 请我执行以下操作。"),
    ],
)
def test_a_card_names_the_chat_only_if_it_is_shown_elsewhere(language: str, here: str, elsewhere: str) -> None:
    shown = make_card(Texts(language), name="Bob", session="telegram:-100")
    assert here in shown.format_open()
    assert "telegram:-100" not in shown.format_open()
    assert elsewhere in structs.replace(shown, chat="Family (group on Telegram)").format_open()
