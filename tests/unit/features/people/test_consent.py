"""Consent: what a person allows, given and withdrawn by the person alone; the newest answer of any linked account counts."""

from __future__ import annotations

from typing import get_args

import pytest

from bubbot.app.people import people_options
from bubbot.features.people.commands import COMMANDS
from bubbot.features.people.consent import PURPOSES, ConsentService
from bubbot.features.people.facts import Consent
from bubbot.features.people.state import CONSENT_PROJECTION, ConsentState
from bubbot.ports.channel import Role, Sender
from bubbot.ports.people import Purpose
from bubbot.shell_command import CommandContext
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.projection import ProjectionRunner, read_projection
from bubbot.texts import Texts
from tests.callers import run_shell
from tests.doubles import CountingIds
from tests.tapes import whole
from tests.unit.features.people.people_home import ANN, BOB, DISCORD_ANN, GROUP, PeopleHome, post, say

TELEGRAM_ANN, LINKED_ANN, TELEGRAM_BOB = ("telegram", ANN), ("discord", DISCORD_ANN), ("telegram", BOB)


@pytest.fixture
def home(sqlite_store: SqliteStore) -> PeopleHome:
    return PeopleHome(sqlite_store)


async def allowed(home: PeopleHome, account: tuple[str, str] = TELEGRAM_ANN) -> set[str]:
    """What the person allows, as another process reads it from the tape."""
    fresh = ConsentService(home.tape("bubbot/access"), ProjectionRunner(), home.find_accounts)
    found = {purpose for purpose in PURPOSES if await fresh.has_consented(account, purpose)}
    assert found == {purpose for purpose in PURPOSES if await home.consents.has_consented(account, purpose)}
    return set(found)


class TestAnswers:
    async def test_nothing_is_allowed_unless_a_person_says_so(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            await say(bench, ANN, "I allow training, evaluation and sharing. ,consent training yes")
            assert await allowed(home) == set()
            overview = await say(bench, ANN, ",consent")
        assert overview.count("not allowed; you never said anything") == 3
        assert await allowed(home) == set()

    async def test_an_answer_holds_at_once_for_one_purpose_and_one_person(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            answer = await say(bench, ANN, ",consent training yes")
            assert "(training): you allow it from now on" in answer
            assert await allowed(home) == {"training"}
            assert await allowed(home, TELEGRAM_BOB) == set()
            await say(bench, ANN, ",consent sharing yes")
            await say(bench, ANN, ",consent training no")
            assert await allowed(home) == {"sharing"}
            overview = await say(bench, ANN, ",consent")
        assert "(sharing): you allow it, since 2026-11-21" in overview
        assert "(training): you do not allow it, since 2026-11-21" in overview

    async def test_the_same_answer_again_writes_nothing(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            await say(bench, ANN, ",consent training no")
            assert await home.store.head("bubbot/access") == 0
            await say(bench, ANN, ",consent training yes")
            head = await home.store.head("bubbot/access")
            assert "nothing" in (await say(bench, ANN, ",consent training yes")).lower()
            assert await home.store.head("bubbot/access") == head

    async def test_the_fact_names_account_and_purpose_and_nobody_else(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            await say(bench, ANN, ",consent evaluation yes")
            await say(bench, ANN, ",consent evaluation no")
        stored = [(entry.name, dict(entry.data)) for entry in await whole(home.store, "bubbot/access")]
        data = {"channel": "telegram", "id": ANN, "purpose": "evaluation"}
        assert stored == [("people/consent_given", data), ("people/consent_withdrawn", data)]

    async def test_buttons_ask_and_a_press_is_the_answer_of_who_pressed(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            await say(bench, ANN, ",consent")
            (intent,) = [
                entry for entry in await whole(home.store, "bubbot/outbox/telegram") if entry.name == "outbox/intent"
            ][-1:]
            (buttons,) = [part["buttons"] for part in intent.data["parts"] if part.get("buttons")]
            commands = [button["command"] for button in buttons["buttons"]]
            assert commands == [f",consent {purpose} yes" for purpose in PURPOSES]
            assert buttons["person"] == ANN, "nobody else may press"
            await say(bench, ANN, commands[0])
        assert await allowed(home) == {"training"}

    @pytest.mark.parametrize("words", ["training perhaps", "selling yes", "yes", f"training yes telegram:{BOB}"])
    async def test_another_text_is_explained_and_changes_nothing(self, home: PeopleHome, words: str) -> None:
        async with home.on("telegram") as bench:
            assert "consent" in await say(bench, ANN, f",consent {words}")
        assert await home.store.head("bubbot/access") == 0


class TestWhoAnswers:
    async def test_an_owner_cannot_consent_for_others(self, home: PeopleHome) -> None:
        async with home.on("telegram", Role.OWNER) as bench:
            for words in (f"training yes {BOB}", f"training yes person=telegram:{BOB}", f"training yes id={BOB}"):
                await say(bench, ANN, f",consent {words}")
        assert await allowed(home, TELEGRAM_BOB) == set()
        shell = [command for command in COMMANDS.commands if "consent" in command.name]
        assert [(command.name, command.writes) for command in shell] == [("access consents", False)]

    async def test_a_group_refuses_it(self, home: PeopleHome) -> None:
        async with home.on("telegram", Role.OWNER) as bench:
            assert "direct chat" in await say(bench, ANN, ",consent training yes", chat=GROUP)
        assert await allowed(home) == set()

    async def test_a_bot_and_a_job_cannot_consent(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            bot = await (await post(bench, Sender(ANN, "ANN", bot=True), ",consent training yes"))
            assert "yourself" in bot.text
            await (await post(bench, Sender(ANN, "ANN"), ",consent training yes", origin="schedule"))
            await bench.quiet()
        assert await allowed(home) == set()


class TestLinkedAccounts:
    async def test_the_newest_answer_of_any_account_counts(self, home: PeopleHome) -> None:
        await home.write("bubbot/access", Consent(*TELEGRAM_ANN, "training"))
        assert await allowed(home, LINKED_ANN) == set()
        await home.link(TELEGRAM_ANN, LINKED_ANN)
        assert await allowed(home, LINKED_ANN) == await allowed(home, TELEGRAM_ANN) == {"training"}
        async with home.on("discord") as bench:
            await say(bench, DISCORD_ANN, ",consent training no")
        assert await allowed(home, TELEGRAM_ANN) == set()
        async with home.on("telegram") as bench:
            await say(bench, ANN, ",consent training yes")
        assert await allowed(home, LINKED_ANN) == {"training"}


class TestTheShell:
    async def test_it_lists_what_people_answered(self, home: PeopleHome) -> None:
        facts = [
            Consent(*TELEGRAM_ANN, "training"),
            Consent(*TELEGRAM_BOB, "sharing"),
            Consent("discord", "7", "future"),
        ]
        await home.write("bubbot/access", *facts)
        await home.link(TELEGRAM_ANN, LINKED_ANN)
        withdrawn = Consent(*LINKED_ANN, "training").to_entry(Consent.EVENTS[1])
        await home.tape("bubbot/access").append([withdrawn])
        context = CommandContext(home.store, "home", home.clock, CountingIds(), settings=people_options({}))
        every = await run_shell("access consents", context)
        assert every.data is not None
        rows = [(row["account"], row["purpose"], row["given"], row["allowed"]) for row in every.data["consents"]]
        assert rows == [
            (f"discord:{DISCORD_ANN}", "training", False, False),
            (f"telegram:{ANN}", "training", True, False),
            (f"telegram:{BOB}", "sharing", True, True),
        ]
        assert every.rows[2][:3] == (f"telegram:{BOB}", "sharing", "allowed")
        of_ann = await run_shell("access consents", context, f"telegram:{ANN}")
        assert of_ann.data is not None
        assert len(of_ann.data["consents"]) == 2
        assert await home.store.head("bubbot/access") == 6, "it only reads"


class TestTheState:
    async def test_it_is_the_same_from_a_checkpoint_which_holds_no_words(self, home: PeopleHome) -> None:
        for purpose in get_args(Purpose):
            await home.write("bubbot/access", Consent(*TELEGRAM_ANN, purpose))
        state = await read_projection(CONSENT_PROJECTION, home.tape("bubbot/access"))
        saved = CONSENT_PROJECTION.encode(state)
        assert saved == {"answers": [1, 2, 3]}
        entries = await whole(home.store, "bubbot/access")
        assert CONSENT_PROJECTION.decode(saved, entries) == state
        assert isinstance(state, ConsentState)

    @pytest.mark.parametrize("language", ["en", "de", "zh"])
    def test_every_purpose_has_its_words(self, language: str) -> None:
        texts = Texts(language)
        for purpose in PURPOSES:
            assert texts.say(f"purpose_{purpose}").count(purpose) == 1
            labels = [texts.say(f"consent_button_{purpose}_{answer}") for answer in ("yes", "no")]
            assert len({*labels}) == 2
