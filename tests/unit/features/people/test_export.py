"""Everything about a person, and nothing of anybody else, over two platforms and linked accounts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import unescape
from typing import Any, get_args

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.feature_settings import configured_people
from bubbot.app.people import people_options
from bubbot.features.access.facts import AccessRequested, AccountUnlinked, Audit, RoleGranted
from bubbot.features.approvals.facts import ApprovalDecided, ToolGranted
from bubbot.features.explain.facts import CitedStatement, ExplanationEnded
from bubbot.features.memory.facts import MemoryNoted, MemorySaved
from bubbot.features.people import record as people_record
from bubbot.features.people.export import MAX_CHAT_CHARS, encode_lines, number_names, safe_name, split_lines
from bubbot.features.people.facts import Consent
from bubbot.features.people.record import ExportLine, LineKind, LineReason, PersonReader, PersonRecord
from bubbot.features.replay.facts import ReplayEnded, RunSummary, TurnReplay
from bubbot.features.schedule.facts import Actor, ChatRef, Job
from bubbot.ports.channel import Role
from bubbot.ports.usage import CallSettled
from bubbot.shell_command import CommandContext
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.events import CommandRun, TapeImported, TurnStart
from bubbot.tape.fact import Fact
from bubbot.texts import Texts
from tests.callers import by, refused, run, run_shell
from tests.doubles import CountingIds
from tests.made_settings import make_settings
from tests.tapes import whole
from tests.unit.features.people.people_home import (
    ANN,
    BOB,
    DISCORD_ANN,
    DISCORD_BOB,
    GROUP,
    NAMES,
    SECRET,
    PeopleHome,
    live,
    marks,
    say,
)

TELEGRAM_ANN, LINKED_ANN = ("telegram", ANN), ("discord", DISCORD_ANN)
TELEGRAM_BOB = ("telegram", BOB)
GROUP_SESSION = f"telegram:{GROUP}"
REST = {"by": "", "name": ""}


async def read(home: PeopleHome, account: tuple[str, str] = TELEGRAM_ANN, max_chars: int = 10**9) -> PersonRecord:
    accounts = await home.find_accounts(account)
    exports = home.exports
    return await PersonReader(home.store, exports._tapes, accounts, exports._redact, max_chars).read()


def lines_of(record: PersonRecord, kind: LineKind) -> list[ExportLine]:
    return [line for line in record.lines if line.kind == kind]


async def write_facts(home: PeopleHome) -> None:
    """Write what other features know of both, on the tapes of the system."""
    place = ChatRef("telegram", ANN)
    job: dict[str, Any] = {"session": f"telegram:{ANN}", "place": place, "do": "prompt", "when": "8:00", "zone": "UTC"}
    ann, bob = Actor("telegram", ANN, "ANN.actor"), Actor("telegram", BOB, "BOB.actor")
    for who, actor, other in (("ANN", ann, bob), ("BOB", bob, ann)):
        number, account = actor.id, f"telegram:{actor.id}"
        await home.write("bubbot/schedule", Job(id=who, by=actor, granted=other, text=f"{who}.job", since="", **job))
        await home.write(
            "bubbot/access",
            AccessRequested("telegram", number, f"{who}.chat", f"{who}.asked"),
            RoleGranted("telegram", number, "member", f"telegram:{other.id}", "code", f"{who}.granted"),
            Audit("telegram", number, f"{who}.audited", "terminal"),
            ApprovalDecided(who, f"telegram:{other.id}", "denied", "", f"{who}.reason", number, "", "telegram", "chat"),
            ToolGranted(
                tool="shell.run", kind="recipient", value=account, approval="x", by=other.id, channel="telegram"
            ),
            Consent("telegram", number, "training"),
        )
        shared: dict[str, str] = {"session": f"telegram:{number}", "channel": "telegram", "by": number}
        lines = "ANN.saved" if who == "ANN" else "ANN.saved\nBOB.saved"
        new = (0,) if who == "ANN" else (1,)
        await home.write(
            "bubbot/memory/workspace",
            MemorySaved(lines, 0, new, (), **shared),
            MemoryNoted("2026-11-21", f"{who}.noted", **shared),
        )
        call: dict[str, Any] = {"call": who, "session": GROUP_SESSION, "turn": "t", "day": "2026-11-21", "nano": 5}
        used = CallSettled(
            **call,
            user=account,
            model=f"{who}.model",
            input_tokens=7,
            output_tokens=3,
            cached_tokens=0,
            status="answered",
        )
        await home.write("bubbot/budget", used, used)


@pytest.fixture
async def home(sqlite_store: SqliteStore) -> PeopleHome:
    """A home in which both have lived and Ann's accounts are linked."""
    made = PeopleHome(sqlite_store)
    await live(made)
    await write_facts(made)
    await made.link(TELEGRAM_ANN, LINKED_ANN)
    return made


class TestWhatIsInIt:
    async def test_a_person_gets_their_words_of_all_linked_accounts_and_no_word_of_another_person(
        self, home: PeopleHome
    ) -> None:
        text = encode_lines((await read(home)).lines).decode()
        assert marks(text, "BOB") == set()
        assert f"telegram:{BOB}" not in text
        assert f"discord:{DISCORD_BOB}" not in text
        told = "direct user chat topic group shared together secret file photo quoted quotes edited emoji both"
        told += " discorddirect server job asked granted reason saved noted model"
        assert {f"ANN.{word}" for word in told.split()} <= marks(text, "ANN")

    async def test_the_other_person_gets_theirs(self, home: PeopleHome) -> None:
        text = encode_lines((await read(home, TELEGRAM_BOB)).lines).decode()
        assert marks(text, "ANN") == set()
        assert {"BOB.direct", "BOB.group", "BOB.quoted", "BOB.job", "BOB.saved"} <= marks(text, "BOB")
        assert "BOB.discorddirect" not in text, "these accounts are not linked"

    async def test_the_number_of_another_platform_is_another_person(self, home: PeopleHome) -> None:
        record = await read(home, ("discord", ANN))
        assert [line.text for line in lines_of(record, "message")] == ["BOB.sameid"]
        assert marks(encode_lines(record.lines).decode(), "ANN") == set()

    async def test_unlinked_accounts_are_apart_again_and_the_link_names_nobody_else(self, home: PeopleHome) -> None:
        await home.write("bubbot/access", AccountUnlinked(*LINKED_ANN))
        text = encode_lines((await read(home)).lines).decode()
        assert "ANN.direct" in text
        assert "ANN.discorddirect" not in text
        assert "discord" not in text

    async def test_a_line_says_where_it_stands_and_why_it_is_there(self, home: PeopleHome) -> None:
        record = await read(home)
        for line in record.lines:
            if line.id and line.kind not in ("usage", "name"):
                (entry,) = [each for each in await whole(home.store, line.tape) if each.id == line.id]
                assert entry.date == line.date
        reasons = {(line.kind, line.why) for line in record.lines}
        assert {
            ("message", "said"),
            ("answer", "answered"),
            ("command", "typed"),
            ("quote", "quoted"),
            ("memory", "own_memory"),
            ("memory", "wrote"),
            ("topic", "opened"),
            ("attachment", "sent"),
            ("usage", "used"),
            ("schedule", "said"),
            ("consent", "named"),
            ("name", "account"),
        } <= reasons

    async def test_own_memory_is_whole_with_its_versions_and_shared_lines_say_who_wrote_them(
        self, home: PeopleHome
    ) -> None:
        record = await read(home)
        memory = lines_of(record, "memory")
        (own,) = [line for line in memory if line.tape.startswith("bubbot/memory/user/")]
        assert (own.text, own.data["by"]) == ("ANN.user", f"telegram:{ANN}")
        chat = [line for line in memory if line.tape == f"telegram:{ANN}"]
        assert [line.text for line in chat] == ["ANN.chat"]
        shared = [line for line in memory if line.why == "wrote"]
        assert {line.text for line in shared} == {"ANN.shared", "ANN.saved", "ANN.noted"}
        assert {line.data["by"] for line in shared} == {f"telegram:{ANN}"}

    async def test_usage_is_added_up_by_day_and_model(self, home: PeopleHome) -> None:
        (line,) = [each for each in lines_of(await read(home), "usage") if each.data["model"] == "ANN.model"]
        assert (line.date, line.data["calls"], line.data["input_tokens"]) == ("2026-11-21", 2, 14)

    async def test_no_secret_of_the_bot_is_in_it(self, home: PeopleHome) -> None:
        record = await read(home)
        assert SECRET not in encode_lines(record.lines).decode()
        assert any(line.text == "ANN.secret [redacted]" for line in record.lines)

    async def test_the_role_of_the_settings_is_in_it(self, home: PeopleHome) -> None:
        tapes = people_record.PersonalTapes(
            references=OWN_REFERENCES,
            user_tape=lambda account: "",
            memory_texts=(),
            topic_prefix="topic/",
            configured_role=lambda account: "owner" if account == LINKED_ANN else "",
        )
        record = await PersonReader(home.store, tapes, (TELEGRAM_ANN, LINKED_ANN), str, 10**9).read()
        assert [(line.text, line.data["account"]) for line in lines_of(record, "role")] == [
            ("owner", f"discord:{DISCORD_ANN}")
        ]

    async def test_erased_words_are_in_no_export(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            await say(bench, ANN, ",reset yes")
            await bench.tape(f"telegram:{ANN}").reset(archive=False)
        text = encode_lines((await read(home)).lines).decode()
        assert "ANN.secret" not in {json.loads(line)["text"] for line in text.splitlines()}
        assert "ANN.group" in text

    async def test_an_archive_of_a_chat_is_in_it(self, home: PeopleHome) -> None:
        archive = await home.tape(f"telegram:{ANN}").reset()
        found = [line for line in (await read(home)).lines if line.text == "ANN.direct"]
        assert [line.tape for line in found] == [archive]


class TestWhatIsLeftOut:
    async def test_an_answer_to_several_people_is_counted_and_not_told(self, home: PeopleHome) -> None:
        before = (await read(home)).left_out.shared_answers
        inbox = "bubbot/inbox/telegram"
        numbers = {
            entry.data["text"]: entry.id for entry in await whole(home.store, inbox) if entry.name == "inbox/received"
        }
        inbounds = ((inbox, numbers["ANN.group"]), (inbox, numbers["BOB.group"]))
        start = TurnStart(attempt=1, session=GROUP_SESSION, inbounds=inbounds).to_entry(turn="joined")
        answer = TapeEntry("message", {"role": "assistant", "content": "BOB.answered, ANN"}, {"turn": "joined"})
        await home.tape(GROUP_SESSION).append([start, answer])
        record = await read(home)
        assert record.left_out.shared_answers == before + 1
        assert marks(encode_lines(record.lines).decode(), "BOB") == set()

    async def test_the_answer_to_a_message_that_quotes_another_person_is_left_out(self, home: PeopleHome) -> None:
        record = await read(home)
        assert record.left_out.shared_answers == 1
        assert "ANN.quotes" in {line.text for line in record.lines}

    async def test_what_commands_print_is_counted_and_what_was_typed_is_told(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            answer = await say(bench, ANN, ",search BOB", chat=GROUP)
        assert "BOB." in answer, "the command shows words of the other person"
        record = await read(home)
        assert ",search BOB" in {line.text for line in lines_of(record, "command")}
        assert marks(encode_lines(record.lines).decode(), "BOB") == set()
        assert record.left_out.outputs == len(lines_of(record, "command"))

    async def test_a_chat_in_which_the_person_never_spoke_is_not_named(self, home: PeopleHome) -> None:
        (entry,) = [
            each for each in await whole(home.store, f"telegram:{ANN}") if each.payload.get("content") == "ANN.direct"
        ]
        statement = CitedStatement(text="Ann said so", quote="ANN.explained", cites=((f"telegram:{ANN}", entry.id),))
        explained = ExplanationEnded(
            question="BOB.question",
            tape=f"telegram:{ANN}",
            fork="",
            status="founded",
            statements=(statement,),
            read=(),
            problems=(),
            steps=1,
            tokens=1,
        )
        await home.write(f"telegram:{BOB}", explained)
        (line,) = [each for each in (await read(home)).lines if each.text == "ANN.explained"]
        assert (line.kind, line.session, line.tape) == ("quote", "", "")
        other = await read(home, TELEGRAM_BOB)
        assert "ANN.explained" not in encode_lines(other.lines).decode()

    async def test_a_replay_quotes_the_person_only_with_their_own_words(self, home: PeopleHome) -> None:
        entries = await whole(home.store, GROUP_SESSION)
        said = next(entry for entry in entries if entry.payload.get("content") == "ANN.group")
        start = next(
            entry for entry in entries if entry.name == "turn/start" and entry.meta["turn"] == said.meta["turn"]
        )
        none, place = RunSummary(), (GROUP_SESSION, start.id)
        turns = [TurnReplay(place, "t", question, none, none) for question in ("ANN.group", "BOB.between")]
        fact = ReplayEnded("r", "g", GROUP_SESSION, GROUP_SESSION, 1, 9, "m", True, (), tuple(turns), "")
        await home.write("bubbot/replay", fact)
        record = await read(home)
        assert [line.text for line in lines_of(record, "quote") if line.tape == "bubbot/replay"] == ["ANN.group"]

    async def test_an_imported_tape_does_not_mix_up_inboxes(self, home: PeopleHome) -> None:
        """The inbounds of an imported tape are those of another home: the same numbers may be other people here."""
        inbox = "bubbot/inbox/telegram"
        own = next(entry.id for entry in await whole(home.store, inbox) if entry.data.get("text") == "ANN.group")
        start = TurnStart(attempt=1, session="telegram:7", inbounds=((inbox, own),)).to_entry(turn="there")
        message = {"sender": {"id": "7", "name": "BOB.there"}, "origin": "human", "turn": "there"}
        said = TapeEntry("message", {"role": "user", "content": "BOB.imported"}, message)
        answer = TapeEntry("message", {"role": "assistant", "content": "BOB.answer"}, {"turn": "there"})
        command = CommandRun("search", ",search BOB.command", "ok", 1, "").to_entry(turn="alone")
        alone = TurnStart(attempt=1, session="telegram:7", inbounds=((inbox, own),)).to_entry(turn="alone")
        await home.tape("imported").append([start, said, answer, alone, command])
        await home.write("bubbot/imports", TapeImported("imported", "telegram:7", 3, 0, 0, 0, "00"))
        assert marks(encode_lines((await read(home)).lines).decode(), "BOB") == set()

    async def test_what_has_no_room_is_counted(self, home: PeopleHome) -> None:
        full = await read(home)
        cut = await read(home, max_chars=2_000)
        assert 0 < len(cut.lines) < len(full.lines)
        assert cut.left_out.too_much == len(full.lines) - len(cut.lines)
        assert cut.lines == full.lines[: len(cut.lines)]

    def test_lines_come_in_pieces_that_are_whole_lines(self) -> None:
        lines = [ExportLine(kind="message", why="said", text="x" * 300) for _ in range(9)]
        pieces = split_lines(lines, 1_000)
        assert len(pieces) > 1
        assert b"".join(pieces) == encode_lines(lines)
        assert all(len(piece) <= 1_000 and piece.endswith(b"\n") for piece in pieces)
        assert split_lines([], 10) == [b""]
        assert number_names("about-me.jsonl", 2) == ["about-me-1.jsonl", "about-me-2.jsonl"]

    @pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "a\0b", "</script>", ""])
    def test_the_name_of_a_file_leads_nowhere_else(self, name: str) -> None:
        safe = safe_name(name)
        assert safe
        assert not set(safe) & set("/\\\0<>")
        assert safe.strip(".") == safe


class TestInAChat:
    async def test_a_member_gets_two_files_and_the_page_holds_no_markup_of_anybody(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            answer = await say(bench, ANN, ",export.me")
            page, lines = bench.channel.received["about-me.html"].decode(), bench.channel.received["about-me.jsonl"]
        assert "about-me.html" in answer
        assert page.count("<script") == 0
        assert page.count("</script") == 0
        assert "&lt;/script&gt;&lt;script&gt;alert(&#39;ANN.name&#39;)" in page
        assert "\u202e" not in page
        assert "default-src 'none'" in unescape(page)
        assert marks(page, "BOB") == marks(lines.decode(), "BOB") == set()
        told = [json.loads(line) for line in lines.decode().splitlines()]
        assert set(told[0]) == {"kind", "why", "session", "tape", "id", "date", "text", "data"}
        for each in told:
            if each["kind"] == "message":
                assert each["text"] in page

    async def test_it_works_twice_and_the_second_one_knows_of_the_first(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            await say(bench, ANN, ",export.me")
            first = bench.channel.received["about-me.jsonl"].decode().splitlines()
            await say(bench, ANN, ",export.me")
            second = bench.channel.received["about-me.jsonl"].decode().splitlines()
        passing = ('"what":"name"', '"tape":"bubbot/inbox/telegram"')  # the dates of a name; a command that runs
        assert {line for line in first if not any(part in line for part in passing)} < set(second)
        assert sum(",export.me" in line for line in second) == 2

    async def test_a_group_refuses_it(self, home: PeopleHome) -> None:
        for role in (Role.MEMBER, Role.OWNER):
            async with home.on("telegram", role) as bench:
                answer = await say(bench, ANN, ",export.me", chat=GROUP)
                assert not bench.channel.received
            assert "direct chat" in answer

    @pytest.mark.parametrize("words", [f"telegram:{BOB}", f"person=telegram:{BOB}", BOB])
    async def test_nobody_gets_the_record_of_another_person_in_a_chat(self, home: PeopleHome, words: str) -> None:
        async with home.on("telegram", Role.OWNER) as bench:
            answer = await say(bench, ANN, f",export.me {words}")
            assert not bench.channel.received
        assert "export.me" in answer

    async def test_a_model_cannot_ask_for_it(self, home: PeopleHome) -> None:
        async with home.on("telegram") as bench:
            assert [tool.for_model for tool in bench.toolbox if tool.name in ("people.export", "people.consent")] == [
                False,
                False,
            ]

    async def test_a_large_one_says_what_had_no_room(self, home: PeopleHome, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.features.people.export.MAX_CHAT_CHARS", 3_000)
        monkeypatch.setattr("bubbot.features.people.export.PIECE_BYTES", 1_000)
        assert MAX_CHAT_CHARS > 3_000
        async with home.on("telegram") as bench:
            answer = await say(bench, ANN, ",export.me")
            names = sorted(bench.channel.received)
        assert "no room" in answer
        assert names[:2] == ["about-me-1.jsonl", "about-me-2.jsonl"], "the page is too long for a piece"


class TestInAShell:
    async def test_a_folder_has_the_page_the_lines_and_the_files_that_the_person_sent(self, home: PeopleHome) -> None:
        result: Any = await run(home.exports.export_person, by("terminal"), f"discord:{DISCORD_ANN}", "out")
        assert result.accounts == (f"telegram:{ANN}", f"discord:{DISCORD_ANN}")
        assert result.folder == "out"
        assert {"about-me.html", "about-me.jsonl"} < set(result.files)
        (attached,) = [data for name, data in result.files.items() if name.startswith("attachments/")]
        assert attached.endswith(b"ANN.bytes")
        assert not any(marks(data.decode(errors="replace"), "BOB") for data in result.files.values())

    async def test_the_command_of_the_shell_gets_what_the_tapes_mean_from_the_settings(self, home: PeopleHome) -> None:
        settings = make_settings(channels={"telegram": {"members": [int(ANN)]}})
        context = CommandContext(
            home.store, "home", home.clock, CountingIds(), settings=people_options(configured_people(settings))
        )
        result: Any = await run_shell("access export", context, f"telegram:{ANN}", "out")
        lines = [json.loads(line) for line in result.files["about-me.jsonl"].splitlines()]
        assert [line["text"] for line in lines if line["kind"] == "role"] == ["member"]
        assert "ANN.discorddirect" in {line["text"] for line in lines}
        assert [*result.data["accounts"]] == [f"telegram:{ANN}", f"discord:{DISCORD_ANN}"]
        assert result.data.keys() == {"accounts", "lines", "target", "left_out"}

    @pytest.mark.parametrize("target", ["a.jsonl", "a.html"])
    async def test_a_file_has_one_of_them(self, home: PeopleHome, target: str) -> None:
        result: Any = await run(home.exports.export_person, by("terminal"), f"telegram:{ANN}", target)
        assert (result.file, result.folder) == (target, None)
        assert b"ANN.group" in result.content

    @pytest.mark.parametrize("person", ["42", "telegram:", "telegram:x", "telegram:1 or 1", ":1", ""])
    async def test_a_text_that_is_no_account_is_refused(self, home: PeopleHome, person: str) -> None:
        with refused("is not an account"):
            await run(home.exports.export_person, by("terminal"), person, "out")

    async def test_a_person_of_whom_nothing_is_known_has_an_id_alone(self, home: PeopleHome) -> None:
        record = await read(home, ("telegram", "999"))
        assert [line.text for line in record.lines] == ["telegram:999"]


class TestDeclarations:
    def test_a_fact_that_names_a_person_says_what_is_of_this_person_alone(self) -> None:
        undeclared = [
            f"{name}: {path}"
            for name, model in OWN_REFERENCES.events.items()
            for path in OWN_REFERENCES.of_event(name).people
            if issubclass(model, Fact) and model.personal_data is Fact.personal_data and path not in model.PERSONAL
        ]
        assert undeclared == []

    def test_what_is_declared_exists(self) -> None:
        for name, model in OWN_REFERENCES.events.items():
            if issubclass(model, Fact):
                assert set(model.PERSONAL) <= set(OWN_REFERENCES.of_event(name).people), name

    @pytest.mark.parametrize("language", ["en", "de", "zh"])
    def test_every_kind_and_reason_has_its_words(self, language: str) -> None:
        texts = Texts(language)
        for kind in get_args(LineKind):
            assert texts.say(f"person_line_{kind}")
        for reason in get_args(LineReason):
            assert texts.say(f"person_reason_{reason}")


def test_names_of_the_two_people_differ() -> None:
    """The marks tell apart whose words a text has."""
    given: Mapping[str, str] = NAMES
    assert all(marks(name, "ANN") or marks(name, "BOB") for name in given.values())
