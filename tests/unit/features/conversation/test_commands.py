"""Commands about the conversation itself: new, resume, correct, retry, reset, context, help."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.errors import DeliveryFailed
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role, UnparsedUpdate
from bubbot.ports.model import ModelTraits
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.copies import KnownCopies, find_copies_of_tape
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import Batch, TapeStore
from bubbot.texts import Texts
from tests.turns import HOME, Bench, Options, Played, asked, calls, running, says, texts_of


async def last_shown(bench: Bench) -> list[str]:
    """What people and the bot said, as the newest request shows it, without times."""
    shown = [(role, str(content)) for role, content in asked(bench.requests[-1])[1:]]
    return [content.partition("] ")[2] if role == "user" else content for role, content in shown]


class TestNew:
    async def test_what_was_said_is_no_longer_shown(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("old")
            await bench.say(",new")
            await bench.say("fresh")
            assert await last_shown(bench) == ["fresh"]

    async def test_memory_stays(self, memory_store: InMemoryStore) -> None:
        model = Played(calls("memory_save", content="Likes tea."), says("noted"), says("tea"))
        async with running(memory_store, model) as bench:
            await bench.say("I like tea")
            await bench.say(",new")
            await bench.say("what do I like?")
            assert "Likes tea." in bench.requests[-1].system

    async def test_what_was_said_is_still_found(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("the password is swordfish")
            await bench.say(",new")
            assert "swordfish" in (await bench.say(",tape.search swordfish")).text


class TestResume:
    async def test_the_old_thread_is_shown_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("first thread")
            await bench.say(",new")
            await bench.say("second thread")
            answer = (await bench.say(",resume session/start")).text
            assert answer.startswith("Going on from session/start (entry 1)")
            await bench.say("go on")
            assert await last_shown(bench) == ["first thread", "You said: first thread", "go on"]

    async def test_its_state_names_the_parent_and_inherits_the_summary(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say(',handoff phase/a summary="all about a"')
            await bench.say("in a")
            await bench.say(",new")
            await bench.say(",resume phase/a")
            found = [entry for entry in await bench.entries() if entry.name == "session/resume"][-1]
            parent = next(entry for entry in await bench.entries() if entry.name == "phase/a")
            assert found.payload["state"] == {
                "summary": "all about a", "owner": "human", "parents": (parent.id,), "resumed": "phase/a",
            }  # fmt: skip

    async def test_a_resumed_thread_can_be_resumed_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            await bench.say(",new")
            await bench.say("aside")
            await bench.say(",resume session/start")
            await bench.say("two")
            await bench.say(",new")
            await bench.say("another aside")
            await bench.say(",resume session/resume")
            await bench.say("three")
            assert await last_shown(bench) == ["one", "You said: one", "two", "You said: two", "three"]

    async def test_an_anchor_can_be_named_by_its_id(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            await bench.say(",new")
            await bench.say(",resume #1")
            await bench.say("two")
            assert await last_shown(bench) == ["one", "You said: one", "two"]

    async def test_the_window_that_is_open_can_be_resumed(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            await bench.say(",resume session/start")
            await bench.say("two")
            assert await last_shown(bench) == ["one", "You said: one", "two"]

    async def test_a_topic_is_taken_up_by_its_own_command(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            for line in (",topic Cake", "sugar", ",topic Trip", "rome"):
                await bench.say(line)
            answer = (await bench.say(",resume topic/cake")).text
            assert answer.endswith("belongs to the topic cake: ,topic cake takes it up.")
            assert "Trip" in (await bench.say(",topic")).text

    async def test_what_was_hidden_in_another_window_stays_hidden(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("my secret")
            await bench.say(",new")
            hidden = next(entry.id for entry in await bench.entries() if entry.payload.get("content") == "my secret")
            await bench.tape().hide(hidden)
            await bench.say(",resume session/start")
            await bench.say("go on")
            assert await last_shown(bench) == ["You said: my secret", "go on"]

    async def test_a_correction_from_another_window_is_shown_with_the_thread(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("at five")
            await bench.say(",new")
            await bench.say(",correct 3 at six")
            await bench.say(",resume session/start")
            await bench.say("when?")
            assert [content for _, content in asked(bench.requests[-1])][3] == "[corrects #3, by Ann (#1)] at six"

    @pytest.mark.parametrize("wanted", ["nothing/here", "4", "99", "memory/seal", "0"])
    async def test_what_opens_no_window_is_refused(self, memory_store: InMemoryStore, wanted: str) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            head = await memory_store.head(HOME)
            answer = (await bench.say(f",resume {wanted}")).text
            assert "there is no" in answer or "is not an anchor" in answer
            assert "session/resume" not in [entry.name for entry in (await bench.entries())[head:]]

    @pytest.mark.parametrize("state", [None, "text", ["a"], {"summary": 7}])
    async def test_an_imported_anchor_with_an_odd_state_does_no_harm(
        self, memory_store: InMemoryStore, state: object
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.tape().append([TapeEntry("anchor", {"name": "phase/odd", "state": state})])
            await bench.say(",resume phase/odd")
            assert {data["status"] for data in await bench.events("command")} <= {"ok", "refused"}


class TestRetry:
    async def test_the_last_message_is_answered_again_without_its_answer(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(says("bad"), says("good"))) as bench:
            await bench.say("question")
            assert (await bench.say(",retry")).text == "good"
            assert await last_shown(bench) == ["question"]
            assert bench.requests[1].messages == bench.requests[0].messages

    async def test_the_hidden_answer_stays_on_the_tape(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(says("bad"), says("good"))) as bench:
            await bench.say("question")
            await bench.say(",retry")
            assert texts_of(await bench.entries(), "assistant") == ["bad", "good"]

    async def test_a_failed_turn_can_be_tried_again(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played({"error": "unavailable"}, says("here"))) as bench:
            await bench.say("question")
            assert (await bench.say(",retry")).text == "here"

    async def test_where_nothing_was_asked_it_says_so(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            assert (await bench.say(",retry")).text == "there is no message in this window to answer again"
            assert bench.requests == []

    async def test_a_message_asked_again_keeps_its_correction_through_a_handoff(
        self, memory_store: InMemoryStore
    ) -> None:
        model = Played(says("a"), calls("tape_handoff", name="phase/two"), says("b"))
        async with running(memory_store, model) as bench:
            await bench.say("at five")
            await bench.say(",correct 3 at six")
            await bench.say(",retry")
            shown = [content for _, content in asked(bench.requests[-1])]
            assert shown[1:] == ["[2026-11-21 20:21] at five", "[corrects #3, by Ann (#1)] at six"]


class TestCorrect:
    async def test_it_names_both_entries(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("at five")
            head = await memory_store.head(HOME)
            assert (await bench.say(",correct 3 at six")).text == f"Entry 3 is corrected by entry {head + 2}."

    async def test_an_entry_that_does_not_exist_is_refused(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            assert "there is no entry 99; this tape has entries 1 to " in (await bench.say(",correct 99 x")).text

    async def test_an_entry_that_is_no_message_is_refused_with_what_it_is(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("at five")
            for entry in [one for one in await bench.entries() if one.kind != "message"]:
                kind = f"{entry.kind} {entry.name}" if entry.name else entry.kind
                refused = (await bench.say(f",correct {entry.id} x")).text
                assert refused.startswith(f"Entry {entry.id} is not a message ({kind}): only what somebody said")
            assert await bench.events("correction") == []

    @pytest.mark.law("T6")
    async def test_a_member_corrects_own_words_only_and_is_named(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(role=Role.MEMBER)) as bench:
            await bench.say("at five", sender="2", direct=False)
            own, answer = [entry.id for entry in await bench.entries() if entry.kind == "message"]
            for entry, sender in ((own, "1"), (answer, "1"), (answer, "2"), (1, "2")):
                refused = await bench.say(f",correct {entry} I never said that", sender=sender, direct=False)
                assert refused.text == Texts().say("correct_own", entry=entry)
            assert await bench.events("correction") == []
            await bench.say(f",correct {own} at six\n[2026-11-21 20:21] Bob (#3): yes", sender="2", direct=False)
            await bench.say("when?", sender="1", direct=False)
            shown = [content for _, content in asked(bench.requests[-1])]
            line = f"[corrects #{own}, by Ann (#2)] at six\n    \\[2026-11-21 20:21] Bob (#3): yes"
            assert line in shown

    @pytest.mark.parametrize("role", [Role.MEMBER, Role.ADMIN])
    async def test_in_a_group_a_handoff_is_for_admins(self, memory_store: InMemoryStore, role: Role) -> None:
        async with running(memory_store, ScriptedModel(), Options(role=role)) as bench:
            refused = await bench.say(",handoff trip", direct=False)
            assert (refused.text == Texts().say("handoff_only_admins")) is (role is Role.MEMBER)
            assert (await bench.say(",handoff trip")).text == "A new window opens at trip."

    @pytest.mark.law("T6")
    async def test_an_admin_corrects_what_others_and_the_bot_said(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(role=Role.ADMIN)) as bench:
            await bench.say("at five", sender="2", direct=False)
            for entry in await bench.entries():
                if entry.kind == "message":
                    assert "corrected" in (await bench.say(f",correct {entry.id} at six", sender="1")).text
            assert {entry.meta["sender"]["id"] for entry in await bench.entries() if entry.name == "correction"} == {
                "1"
            }


async def test_a_handoff_is_owned_by_who_asked_for_it(memory_store: InMemoryStore) -> None:
    model = Played(calls("tape_handoff", name="phase/two"), says("ok"))
    async with running(memory_store, model) as bench:
        await bench.say(",handoff phase/one what we know")
        await bench.say("go on")
        owners = {entry.name: entry.payload["state"]["owner"] for entry in await bench.entries() if entry.opens_window}
        assert owners == {"session/start": "human", "phase/one": "human", "phase/two": "agent"}


class TestReset:
    async def told(self, bench: Bench) -> None:
        """A conversation with a memory."""
        await bench.say("my secret plan")
        await bench.say("remember")

    MODEL = (says("a secret answer"), calls("memory_save", content="Likes tea."), says("noted"), says("fresh"))

    async def test_asked_without_more_it_says_what_would_go_and_does_nothing(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            head = await memory_store.head(HOME)
            assert "This tape has" in (await bench.say(",reset")).text
            assert "must be archive or erase" in (await bench.say(",reset everything")).text
            assert await memory_store.head(HOME) > head
            assert len([tape for tape in await memory_store.tapes() if tape.archived_from]) == 0

    async def test_archive_starts_anew_and_keeps_the_old_tape(self, store: TapeStore) -> None:
        async with running(store, Played(*self.MODEL)) as bench:
            await self.told(bench)
            old = await bench.entries()
            await bench.say(",reset archive")
            (archive,) = [tape for tape in await store.tapes() if tape.archived_from == HOME]
            assert (await bench.entries(archive.name))[:-1] == tuple(old)
            assert texts_of(await bench.entries(), "user") == []
            assert (await bench.say("hello")).text == "fresh"
            assert await last_shown(bench) == ["hello"]

    @pytest.mark.parametrize("how", ["archive", "erase"])
    async def test_the_new_tape_has_an_empty_memory_at_once(self, store: TapeStore, how: str) -> None:
        async with running(store, Played(*self.MODEL)) as bench:
            await self.told(bench)
            await bench.say(f",reset {how}")
            assert (await bench.say(",memory.recall")).text.startswith("Memory is empty (version 1,")

    async def test_archive_writes_the_memory_to_a_file_before(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, Played(*self.MODEL)) as bench:
            await self.told(bench)
            answer = (await bench.say(",reset archive")).text
            assert f"exports/{HOME}.md" in answer
            assert "Likes tea." in bench.exported[HOME]
            await bench.say("hello")
            assert "Likes tea." not in bench.requests[-1].system

    @pytest.mark.law("T17")
    async def test_erase_blanks_the_texts_on_every_tape_and_those_of_no_other_session(self, store: TapeStore) -> None:
        async with running(store, Played(*self.MODEL)) as bench:
            await bench.say("somebody else's words", chat="other")
            await self.told(bench)
            answer = (await bench.say(",reset erase")).text
            assert "was erased" in answer
            everything = str([await bench.entries(tape.name) for tape in await store.tapes()])
            for gone in ("my secret plan", "Likes tea", "noted"):
                assert gone not in everything
            assert "somebody else's words" in everything
            assert bench.channel.texts[-1] == answer

    async def test_erasing_and_nothing_else_has_the_files_of_the_session_removed(self, store: TapeStore) -> None:
        async with running(store, Played(*self.MODEL)) as bench:
            await self.told(bench)
            await bench.say(",reset")
            await bench.say(",reset archive")
            assert bench.forgotten == []
            await bench.say(",reset erase", chat="other")
            assert bench.forgotten == ["test:other"]

    async def test_after_erasing_nothing_is_owed_and_the_chat_goes_on(self, store: TapeStore) -> None:
        async with running(store, Played(*self.MODEL)) as bench:
            await self.told(bench)
            await bench.say(",reset erase")
            assert (await bench.recover()).inbounds == ()
            assert await bench.outbox.pending() == ()
            assert (await bench.say("hello")).text == "fresh"
        async with running(store, ScriptedModel(), life="second") as bench:
            assert await bench.resume() == []
            assert bench.channel.texts == []

    async def test_an_answer_that_could_not_be_delivered_is_erased_too(self, store: TapeStore) -> None:
        async with running(store, Played(*self.MODEL)) as bench:
            bench.channel.failures = [DeliveryFailed("offline")]
            await bench.say("my secret plan")
            await bench.say(",reset erase")
        async with running(store, ScriptedModel(), life="second") as bench:
            await bench.resume()
            assert bench.channel.texts == []

    async def test_an_unreadable_message_of_the_chat_is_erased_too(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel()) as bench:
            for chat in ("home", "other"):
                await bench.gate.receive(
                    UnparsedUpdate("test", f"u-{chat}", chat, f"secret of {chat}\xff".encode(), "odd")
                )
            await bench.say(",reset erase")
            (left,) = await bench.events("inbox/unparsed", bench.inbox.name)
            assert left["chat"] == "other"

    def looking(self, store: TapeStore, restarts: list[str], role: Role = Role.OWNER) -> Options:
        """Options of a bot that looks for copies in other chats."""

        async def find(tape: str) -> Sequence[KnownCopies]:
            return await find_copies_of_tape(store, tape, OWN_REFERENCES)

        async def find_owners(channel: str, sessions: Collection[str] | None) -> Sequence[str]:
            return [f"Zoe of {channel}", *(["Ben"] if sessions is None else sessions)]

        return Options(role=role, find_copies=find, find_owners=find_owners, restart=lambda: restarts.append("now"))

    async def copied(self, bench: Bench, store: TapeStore) -> None:
        """Something is said, and another chat has a copy of it."""
        await bench.say("my secret plan")
        await bench.say("unrelated", chat="other")
        (said,) = [entry for entry in await bench.entries() if entry.payload.get("content") == "my secret plan"]
        copy = TapeEntry(
            "message", {"role": "user", "content": "she wrote: my secret plan"}, {"source": [HOME, said.id]}
        )
        await store.append([Batch("test:other", (copy,))])

    @pytest.mark.law("T17")
    async def test_copies_in_other_chats_are_named_and_erased_after_one_more_yes(self, store: TapeStore) -> None:
        restarts: list[str] = []
        async with running(store, ScriptedModel(), self.looking(store, restarts)) as bench:
            await self.copied(bench, store)
            asked = (await bench.say(",reset erase")).text
            assert "test:other: 1 entries, 0 kept prompts; these decide there: Zoe of test, Ben" in asked
            assert "copies=erase" in asked
            assert "my secret plan" in str(await bench.entries()), "it only asked"
            assert "was erased" in (await bench.say(",reset erase copies=erase")).text
            everything = str([await bench.entries(tape.name) for tape in await store.tapes()])
            assert ("my secret plan" in everything, "unrelated" in everything) == (False, True)
            assert restarts == ["now"]

    async def test_copies_stay_if_the_owner_says_so(self, store: TapeStore) -> None:
        restarts: list[str] = []
        async with running(store, ScriptedModel(), self.looking(store, restarts)) as bench:
            await self.copied(bench, store)
            await bench.say(",reset erase copies=keep")
            assert "she wrote: my secret plan" in str(await bench.entries("test:other"))
            assert restarts == []

    async def test_in_a_group_the_copies_in_other_chats_are_named_and_out_of_reach(self, store: TapeStore) -> None:
        async with running(store, ScriptedModel(), self.looking(store, [])) as bench:
            await self.copied(bench, store)
            for words in (",reset erase", ",reset erase copies=erase"):
                asked = (await bench.say(words, direct=False)).text
                assert "only an owner in a direct chat may erase" in asked
                assert "these decide there: Zoe of test, test:home\n" in asked, "of those who wrote here"
            assert "my secret plan" in str(await bench.entries())

    async def test_a_chat_without_copies_is_erased_at_once(self, store: TapeStore) -> None:
        restarts: list[str] = []
        async with running(store, ScriptedModel(), self.looking(store, restarts)) as bench:
            await bench.say("my secret plan")
            assert "was erased" in (await bench.say(",reset erase")).text
            assert restarts == []

    async def test_it_is_for_the_owner(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel(), Options(role=Role.ADMIN)) as bench:
            await bench.say("hello")
            assert "is for the owner" in (await bench.say(",reset erase")).text
            assert texts_of(await bench.entries(), "user") == ["hello"]


class TestContext:
    @pytest.mark.parametrize(
        "traits", [ModelTraits(), ModelTraits(first_assistant=False), ModelTraits(tools=False, short_prompt=True)]
    )
    async def test_it_shows_exactly_what_the_next_request_begins_with(
        self, memory_store: InMemoryStore, traits: ModelTraits
    ) -> None:
        async with running(memory_store, ScriptedModel(traits=traits)) as bench:
            await bench.say("one")
            await bench.say("two")
            shown = (await bench.say(",context")).text
            await bench.say("three")
            request = bench.requests[-1]
            assert f"\n{request.system}\n" in shown
            told = shown.partition(request.system)[2]
            for message in request.messages[:-1]:
                line = f"{message['role']}: {message['content']}"
                assert line in told
                told = told.partition(line)[2]
            assert f", {len(request.messages) - 1} messages, tools: " in told
            offered = ", ".join(spec.name for spec in request.tools) or "none"
            assert told.endswith(f"tools: {offered}")

    async def test_it_cites_the_entries(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            assert "\n#3 user: [2026-11-21 20:21] one\n" in (await bench.say(",context")).text

    async def test_asking_for_it_changes_nothing_that_the_model_is_shown(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("one")
            first = (await bench.say(",context")).text
            assert (await bench.say(",context")).text == first

    async def test_it_shows_what_the_model_would_have_been_shown_then(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("first of all")
            sent = bench.requests[-1]
            (step,) = await bench.events("loop.step")
            await bench.say(",memory.save Likes tea.")
            await bench.say(",new")
            await bench.say("much later")
            then = (await bench.say(f",context at={step['head']}")).text
            assert then.startswith(f"as of entry {step['head']}, with the settings of today:\n\nsystem prompt (")
            assert sent.system in then
            assert str(sent.messages[-1]["content"]) in then
            assert "much later" not in then
            assert "Likes tea." not in then
            now = (await bench.say(",context")).text
            assert "Likes tea." in now
            assert (await bench.say(",context at=0")).text.startswith(
                "there is no entry 0; this tape has entries 1 to "
            )
            assert "there is no entry 999999" in (await bench.say(",context at=999999")).text

    async def test_looking_back_writes_nothing_but_the_turn(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            await bench.say("hello")
            before = await bench.entries()
            await bench.say(",context at=3")
            after = await bench.entries()
            assert after[: len(before)] == before
            assert {entry.name for entry in after[len(before) :]} == {"turn/start", "command", "turn/end"}
            assert await memory_store.forks() == []


async def test_quit_is_for_terminals(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        assert (await bench.say(",quit")).text == ",quit works in a terminal only."
        assert ",quit" not in (await bench.say(",help all")).text


async def test_models_are_not_offered_the_commands_about_the_conversation(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        offered = [spec.name for spec in bench.requests[0].tools]
        assert [name for name in offered if name.startswith("session")] == []
        assert "tape_search" in offered


async def test_a_handoff_anchor_written_elsewhere_opens_the_next_turns_window(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("one")
        await bench.tape().append([replace(anchor("phase/x", {"summary": "s"}), date="2026-11-21T20:21:00+00:00")])
        await bench.say("two")
        assert await last_shown(bench) == ["two"]


class TestHelp:
    async def test_ten_commands_are_listed_unless_all_are_asked_for(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            short, whole = [(await bench.say(typed)).text for typed in (",help", ",help all")]
            listed = [line for line in short.splitlines() if line.startswith(",")][:-1]
            assert 4 <= len(listed) <= 10
            assert short.splitlines()[-1].startswith(",help all lists every command")
            assert set(listed) < set(whole.splitlines())
            assert ",correct – Correct what was said in an entry" in whole.splitlines()

    async def test_a_person_who_is_new_is_greeted_with_three_things_to_try(self, memory_store: InMemoryStore) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            greeting = (await bench.say(",start")).text.splitlines()
            assert greeting[0] == "Hello, I am bubbot. Write to me as you would to a person."
            assert len([line for line in greeting if line.startswith("•")]) == 3

    @pytest.mark.parametrize(
        ("typed", "meant"), [(",cancel", ",stop"), (",clear", ",new"), (",CLEAR it", ",new"), (",settings", ",model")]
    )
    async def test_a_word_that_people_look_for_names_the_command(
        self, memory_store: InMemoryStore, typed: str, meant: str
    ) -> None:
        async with running(memory_store, ScriptedModel()) as bench:
            first, *lines = (await bench.say(typed)).text.splitlines()
            assert first.endswith("You may want:")
            assert f"{meant} – " in "\n".join(lines)
