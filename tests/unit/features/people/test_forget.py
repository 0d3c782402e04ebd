"""What is forgotten of a person on the tapes, and what of others stays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.forgetting import finish_forgetting, try_forgetting
from bubbot.errors import StoreUnavailable
from bubbot.features.access.facts import AccessRevoked, AccountsLinked, Audit, GroupAudience, Reading, RoleGranted
from bubbot.features.access.state import AccessState
from bubbot.features.memory.changes import ZoneState
from bubbot.features.memory.facts import MemoryNoted, MemorySaved
from bubbot.features.memory.scopes import WORKSPACE_TAPE, user_tape
from bubbot.features.memory.views import MemoryView
from bubbot.features.memory.zone import MemoryZone
from bubbot.features.people.facts import PersonForgetting
from bubbot.features.schedule.facts import Actor, ChatRef, ChatRules, JobChanged, JobPaused
from bubbot.features.schedule.state import ScheduleState
from bubbot.features.usage.spending import SpendingView
from bubbot.gateway.facts import GroupCalled
from bubbot.home import Home
from bubbot.ports.inbox import done_entry
from bubbot.ports.usage import CallSettled
from bubbot.tape.anchor import anchor
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.schedules import make_job
from tests.tapes import whole

pytestmark = pytest.mark.law("T17")

ANN, OTHER, BEN = ("tg", "100000001"), ("dc", "200000002"), ("tg", "100000003")
"""The person, their account on another platform, and somebody else."""
HOME = "home"
FAMILY, HIS = session_tape(HOME, "tg:-5"), session_tape(HOME, "tg:100000003")
INBOX, ACCESS, SCHEDULE, BUDGET = "bubbot/inbox/tg", "bubbot/access", "bubbot/schedule", "bubbot/budget"


def received(text: str, who: tuple[str, str] = ANN, *, chat: str = "", name: str = "Ann Xo", **more: Any) -> TapeEntry:
    """A message in an inbox; without a chat in the direct one."""
    channel, number = who
    place = chat or number
    data = {
        "channel": channel, "external_id": f"{number}/{text}", "chat": place, "sender": {"id": number, "name": name},
        "text": text, "time": "2026-11-22T12:00:00+00:00", "thread": "", "reply_to": "", "attachments": [],
        "direct": not chat, "session": f"{channel}:{place}", **more,
    }  # fmt: skip
    return event("inbox/received", data, key=f"{number}/{text}")


def message(text: str, who: tuple[str, str] = ANN, *, turn: str = "t", name: str = "Ann Xo", **meta: Any) -> TapeEntry:
    """A message of a person on the tape of a chat."""
    sender = {"id": who[1], "name": name}
    return TapeEntry("message", {"role": "user", "content": text}, {"turn": turn, "sender": sender, **meta})


def answer(text: str, turn: str = "t") -> TapeEntry:
    """What the bot says in a turn."""
    return TapeEntry("message", {"role": "assistant", "content": text}, {"turn": turn})


def start(inbound: int, turn: str, tape: str = INBOX, session: str = "tg:-5") -> TapeEntry:
    """The beginning of a turn."""
    return event("turn/start", {"attempt": 1, "session": session, "inbounds": [[tape, inbound]]}, turn=turn)


class Bench:
    """A home with a store, in which somebody is forgotten."""

    def __init__(self, store: TapeStore, folder: Path) -> None:
        self.store, self.home = store, Home(folder)
        self.forgetting = 0

    async def append(self, tape: str, *entries: TapeEntry) -> Sequence[TapeEntry]:
        """Append entries."""
        return (await self.store.append([Batch(tape, entries)]))[0]

    async def ask(self, inbound: int = 1) -> None:
        """Ask to forget the sender of a message in the inbox."""
        await self.append("bubbot/people", PersonForgetting((INBOX, inbound), "owner").to_entry())

    async def forget(self, inbound: int = 1) -> Mapping[str, Any]:
        """Forget the sender of a message in the inbox; return the fact about it."""
        await self.ask(inbound)
        await finish_forgetting(self.store, self.home, HOME, OWN_REFERENCES)
        return (await self.entries("bubbot/people", "people/forgotten"))[-1].data

    async def entries(self, tape: str, *names: str) -> list[TapeEntry]:
        """The entries of a tape that are left."""
        return [
            entry for entry in await whole(self.store, tape) if not entry.erased and (not names or entry.name in names)
        ]

    async def texts(self, tape: str) -> list[Any]:
        """What is left of the messages on a tape."""
        return [entry.payload["content"] for entry in await self.entries(tape) if entry.kind == "message"]

    async def erased(self, tape: str) -> list[int]:
        """The ids of erased entries."""
        return [entry.id for entry in await whole(self.store, tape) if entry.erased]

    async def shown(self) -> str:
        """Everything that is left, as text."""
        tapes = [summary.name for summary in await self.store.tapes()]
        return json.dumps(
            [[dict(e.payload), dict(e.meta)] for tape in tapes for e in await self.entries(tape)], default=dict
        )


@pytest.fixture
def bench(store: TapeStore, tmp_path: Path) -> Bench:
    return Bench(store, tmp_path)


async def test_a_direct_chat_goes_whole_and_of_a_group_what_the_person_said_and_was_answered(bench: Bench) -> None:
    await bench.append(
        INBOX, received("hello"), received("in the group", chat="-5"), received("mine", BEN, chat="-5", name="Ben")
    )
    hers = session_tape(HOME, "tg:100000001")
    await bench.append(hers, anchor("session/start", meta={"session": "tg:100000001"}), message("hello"), answer("hi"))
    await bench.append(
        FAMILY,
        anchor("session/start", meta={"session": "tg:-5"}),
        start(2, "hers"), message("in the group", turn="hers"), answer("yes, Ann", "hers"),
        start(3, "his"), message("mine", BEN, turn="his", name="Ben"), answer("yes, Ben", "his"),
    )  # fmt: skip
    told = await bench.forget()
    assert await bench.entries(hers) == []
    assert await bench.texts(FAMILY) == ["mine", "yes, Ben"]
    assert await bench.erased(FAMILY) == [2, 3, 4]
    assert await bench.erased(INBOX) == [1, 2]
    assert (told["entries"], told["tapes"], dict(told["mentions"])) == (8, 3, {})
    assert "Ann" not in await bench.shown()


async def test_linked_accounts_are_one_person(bench: Bench) -> None:
    await bench.append(INBOX, received("here"))
    await bench.append("bubbot/inbox/dc", received("there", OTHER, chat="77", direct=True, name="Annika"))
    await bench.append(ACCESS, AccountsLinked(1, *ANN, *OTHER).to_entry())
    for account in (ANN, OTHER, BEN):
        await bench.append(user_tape(account), MemorySaved("likes tea", 0, (0,), (), session="", by="").to_entry())
    await bench.forget()
    assert await bench.entries("bubbot/inbox/dc") == await bench.entries(ACCESS) == []
    assert [len(await bench.entries(user_tape(account))) for account in (ANN, OTHER, BEN)] == [0, 0, 1]


async def test_the_same_number_on_another_platform_is_another_person(bench: Bench) -> None:
    await bench.append(INBOX, received("here", ("tg", "42")))
    await bench.append("bubbot/inbox/dc", received("there", ("dc", "42"), chat="42", direct=True, name="Zoe"))
    await bench.forget()
    assert (await bench.erased(INBOX), await bench.erased("bubbot/inbox/dc")) == ([1], [])


async def test_a_message_that_quotes_the_person_stays_without_the_quote(bench: Bench) -> None:
    quote = {"message": "9", "sender": {"id": ANN[1], "name": "Ann Xo"}, "text": "hers"}
    await bench.append(
        INBOX,
        received("hers", chat="-5"),
        received("I agree", BEN, chat="-5", quote=quote, name="Ben"),
        done_entry([1, 2], outcome="x"),
    )
    said = message("I agree", BEN, turn="his", quote=quote, message="10", name="Ben")
    await bench.append(FAMILY, anchor("session/start", meta={"session": "tg:-5"}), said)
    await bench.forget()
    (copy,) = [entry for entry in await bench.entries(FAMILY) if entry.kind == "message"]
    assert (copy.payload["content"], copy.meta["message"], copy.meta["context"]) == ("I agree", "10", False)
    assert copy.meta["source"] == (FAMILY, 2)
    assert "quote" not in copy.meta
    assert await bench.erased(INBOX) == [1, 2]


async def test_copies_of_what_the_person_said_go_from_every_tape(bench: Bench) -> None:
    await bench.append(INBOX, received("the plan is Rome", chat="-5"))
    await bench.append(
        FAMILY,
        anchor("session/start", meta={"session": "tg:-5"}),
        message("the plan is Rome", turn="hers"),
        event("correction", {"corrects": 2, "content": "the plan is Paris"}),
        anchor("summary", {"summary": "they go to Rome", "source_ids": [2]}),
        event("handoff", {"name": "summary", "state": {"summary": "they go to Rome", "source_ids": [2]}}),
    )
    text = TapeEntry("message", {"role": "user", "content": "she said: Rome"}, {"source": [FAMILY, 2]})
    cited = {"question": "why?", "tape": FAMILY, "fork": "", "status": "founded", "statements": [{"text": "Rome", "cites": [[FAMILY, 2]]}], "read": {FAMILY: [[2, 2]]}, "problems": [], "steps": 1, "tokens": 1}  # fmt: skip
    found = TapeEntry("tool_result", {"results": ["#2 Ann: the plan is Rome, in May"]}, {"turn": "his"})
    await bench.append(
        HIS, anchor("session/start", meta={"session": "tg:100000003"}), text, event("explain/ended", cited), found
    )
    await bench.append(HIS, TapeEntry("message", {"role": "user", "content": "copied again"}, {"source": [HIS, 2]}))
    await bench.forget()
    assert await bench.erased(FAMILY) == [2, 3, 4, 5]
    assert await bench.erased(HIS) == [2, 3, 4, 5]


async def test_what_others_said_of_the_person_is_listed_and_stays(bench: Bench) -> None:
    await bench.append(INBOX, received("hello"))
    said = [
        message("ask ann xo about it", BEN, name="Ben"),
        answer("Annabel Xo is somebody else"),
        answer(f"she is {ANN[1]}"),
    ]
    await bench.append(HIS, anchor("session/start", meta={"session": "tg:100000003"}), *said)
    told = await bench.forget()
    assert dict(told["mentions"]) == {HIS: ((2, 2), (4, 4))}
    assert await bench.erased(HIS) == []


async def test_prompts_with_words_of_the_person_go_and_others_stay(bench: Bench) -> None:
    await bench.append(INBOX, received(",remember we all like apricots", chat="-5"))
    prompts = [b"memory: we all like apricots best", b"memory: nothing"]
    for prompt in prompts:
        await bench.store.put_blob(FAMILY, prompt)
    steps = [event("loop.step", {"system": blob_digest(prompt)}, turn="his") for prompt in prompts]
    await bench.append(
        FAMILY, anchor("session/start", meta={"session": "tg:-5"}), message("we all like apricots"), *steps
    )
    await bench.forget()
    assert await bench.erased(FAMILY) == [2, 3]
    removed = [entry.data["digests"] for entry in await bench.entries("bubbot/home", "blob/removed")]
    assert removed == [(blob_digest(prompts[0]),)]
    assert await bench.store.get_blob(FAMILY, blob_digest(prompts[1]))


async def test_a_window_that_the_person_opened_stays_open(bench: Bench) -> None:
    await bench.append(INBOX, received(",new", chat="-5"))
    new = anchor("session/new", {"owner": "human"}, meta={"turn": "hers"})
    plan = anchor("plan", {"summary": "buy bread"}, meta={"turn": "hers"})
    await bench.append(FAMILY, anchor("session/start", meta={"session": "tg:-5"}), start(1, "hers"), plan, new)
    await bench.forget()
    assert await bench.erased(FAMILY) == [2, 3]


async def test_the_memory_of_a_chat_keeps_the_lines_of_others(
    bench: Bench, clock: SteppingClock, ids: CountingIds
) -> None:
    await bench.append(INBOX, received("x", chat="-5"), received("y", BEN, chat="-5", name="Ben"))
    await bench.append(FAMILY, anchor("session/start", meta={"session": "tg:-5"}))

    async def save(content: str, turn: str, inbound: int) -> None:
        tape = TapeService(bench.store, FAMILY, now=clock, new_id=ids, session="tg:-5", stamp={"turn": turn})
        await tape.append([start(inbound, turn)])
        await MemoryZone(tape, now=clock, zone=clock().tzinfo).save_long_term(content)  # type: ignore[arg-type]

    await save("Ben bakes", "one", 2)
    await save("Ben bakes\nAnn swims", "two", 1)
    await save("Ben bakes\nAnn swims\nBen runs", "three", 2)
    await bench.forget()
    tape = TapeService(bench.store, FAMILY, now=clock, new_id=ids, session="tg:-5")
    assert (await tape.read(MemoryView())).long_term == "Ben bakes\nBen runs"
    assert "swims" not in await bench.shown()
    assert "Ben bakes" in str((await tape.read(MemoryView())).long_term)


async def test_the_memory_of_the_workspace_keeps_the_lines_of_others(bench: Bench) -> None:
    await bench.append(INBOX, received("x"))
    of_ann = {"session": "tg:-5", "channel": "tg", "by": ANN[1]}
    of_ben = {"session": "tg:-5", "channel": "tg", "by": BEN[1]}
    await bench.append(
        WORKSPACE_TAPE,
        MemorySaved("open at 9", 0, (0,), (), **of_ben).to_entry(),
        MemorySaved("open at 9\nclosed on Sunday", 1, (1,), (), **of_ann).to_entry(),
        MemoryNoted("2026-11-22", "rain", **of_ben).to_entry(),
    )
    await bench.forget()
    memory = ZoneState().apply(await bench.entries(WORKSPACE_TAPE)).memory
    assert (memory.long_term, [note.content for note in memory.dailies]) == ("open at 9", ["rain"])
    assert "Sunday" not in await bench.shown()


async def test_the_rights_of_others_stay_without_who_gave_them(bench: Bench) -> None:
    ann, zoe, tom = f"tg:{ANN[1]}", ("tg", "100000007"), ("tg", "100000008")
    await bench.append(INBOX, received("x"))
    await bench.append(
        ACCESS,
        RoleGranted(*ANN, "admin", "terminal", "command", "Ann Xo").to_entry(),
        RoleGranted(*BEN, "member", ann, "command", "Ben").to_entry(),
        RoleGranted(*zoe, "member", "terminal", "command", "Zoe").to_entry(),
        AccessRevoked(*zoe, ann).to_entry(),
        RoleGranted(*tom, "owner", "terminal", "command", "Tom").to_entry(),
        GroupAudience("tg", "-5", "everybody", ann).to_entry(),
        Audit("tg", BEN[1], "tg:-5", ann).to_entry(),
        Audit("tg", ANN[1], "tg:-5", "terminal").to_entry(),
        Reading("tg:-5", "tg:-6", "terminal").to_entry(),
        Reading("tg:-5", "tg:-6", ann).to_entry("access/reading_revoked"),
        Reading("tg:-5", "tg:-7", ann).to_entry(),
    )
    await bench.forget()
    entries = await bench.entries(ACCESS)
    state = AccessState().apply(entries)
    assert {grant.fact.id: (str(grant.fact.role), grant.fact.by) for grant in state.grants} == {
        BEN[1]: ("member", ""), tom[1]: ("owner", "terminal"),
    }  # fmt: skip
    assert [(group.fact.audience, group.fact.by) for group in state.groups] == [("everybody", "")]
    assert [audit.fact.id for audit in state.audits] == [BEN[1]]
    assert [reading.fact.reader for reading in state.readings] == ["tg:-7"], "a revocation by the person holds"
    assert ANN[1] not in await bench.shown()


async def test_jobs_of_the_person_go_and_what_they_changed_of_others_stays_without_them(bench: Bench) -> None:
    await bench.append(INBOX, received("x"))
    ann, ben = Actor(*ANN, "Ann Xo"), Actor(*BEN, "Ben")
    group = ChatRef("tg", "-5", direct=False)
    theirs = make_job(id="hers", by=ann, place=group, text="call Ann")
    to_her = make_job(id="to her", by=ben, place=group, to=ChatRef("tg", ANN[1]))
    his = make_job(id="his", by=ben, place=group, text="bread")
    changed = JobChanged(**{**{name: getattr(his, name) for name in his.__struct_fields__}, "text": "rolls"})
    await bench.append(
        SCHEDULE,
        theirs.to_entry(), to_her.to_entry(), his.to_entry(),
        TapeEntry("event", changed.to_entry().payload, {"turn": "hers", "sender": {"id": ANN[1]}}),
        JobPaused("his", ann, "asked").to_entry(),
        JobPaused("hers", ben, "asked").to_entry(),
        ChatRules("tg:-5", "Europe/Berlin", by=ann).to_entry(),
    )  # fmt: skip
    await bench.forget()
    state = ScheduleState().apply(await bench.entries(SCHEDULE))
    assert list(state.jobs) == ["his"]
    assert {entry.data.get("job", "his") for entry in await bench.entries(SCHEDULE)} == {"his"}
    assert state.jobs["his"].job.text == "rolls"
    assert state.jobs["his"].status == "paused"
    assert [entry.data["zone"] for entry in await bench.entries(SCHEDULE, "schedule/chat")] == ["Europe/Berlin"]
    assert "Ann" not in await bench.shown()


def call(number: int, session: str, user: str) -> TapeEntry:
    """A settled call."""
    return CallSettled(
        call=f"c{number}", session=session, turn=f"t{number}", user=user, model="m", day="2026-11-22",
        input_tokens=10, output_tokens=number, nano=5, cached_tokens=0, status="ok", reserved=7,
    ).to_entry(key=f"settled:c{number}")  # fmt: skip


async def test_what_calls_cost_stays_as_sums_without_the_person(bench: Bench) -> None:
    await bench.append(INBOX, received("x"))
    user = f"tg:{ANN[1]}"
    await bench.append(BUDGET, call(1, user, user), call(2, "tg:-5", user), call(3, "tg:-5", f"tg:{BEN[1]}"))
    view = SpendingView()

    async def spent() -> tuple[Any, Mapping[str, Mapping[str, Any]], int]:
        report = view.fold(tuple(await bench.store.fetch(list(view.queries(BUDGET)))))
        total = report.total
        numbers = (total.calls, total.input_tokens, total.output_tokens, total.cost_nanousd)
        return (
            numbers,
            {by: {name: part.calls for name, part in parts.items()} for by, parts in report.by.items()},
            report.answers,
        )

    before = await spent()
    await bench.forget()
    after = await spent()
    assert (after[0], after[2], after[1]["day"], after[1]["model"]) == (
        before[0],
        before[2],
        before[1]["day"],
        before[1]["model"],
    )
    assert after[1]["user"] == {f"tg:{BEN[1]}": 1}
    assert after[1]["chat"]["tg:-5"] == 2
    assert ANN[1] not in await bench.shown()


async def test_what_was_to_be_sent_to_the_person_goes_with_its_receipts_by_the_shard_of_its_inbox(bench: Bench) -> None:
    def intent(text: str, session: str, inbound: int) -> TapeEntry:
        data = {"session": session, "turn": "x", "parts": [{"chat": "-5", "text": text}], "inbound": inbound}
        return event("outbox/intent", data)

    def receipt(of: int) -> TapeEntry:
        return event("outbox/receipt", {"intent": of, "part": 0, "external_id": "77"})

    await bench.append(INBOX, received("hello"))
    await bench.append(f"{INBOX}/3", received("in the group", chat="-5"), received("mine", BEN, chat="-5", name="Ben"))
    sent = [intent("for her", "tg:-5", 1), intent("for him", "tg:-5", 2), receipt(1), receipt(2)]
    await bench.append("bubbot/outbox/tg/3", *sent, intent("open", f"tg:{ANN[1]}", 0))
    await bench.append("bubbot/outbox/tg/4", intent("for somebody else", "tg:-9", 1))
    await bench.forget()
    assert await bench.erased("bubbot/outbox/tg/3") == [1, 3, 5]
    assert await bench.erased("bubbot/outbox/tg/4") == []


async def test_checkpoints_of_touched_tapes_go_and_messages_of_others_stay_done(bench: Bench) -> None:
    await bench.append(
        INBOX, received("hello"), received("mine", BEN, name="Ben"), GroupCalled("tg", "-5", "", "Family").to_entry(),
        done_entry([1, 2], outcome="answered"), event("inbox/checkpoint", {"version": 1, "after": 4, "state": {"open": []}}),
    )  # fmt: skip
    await bench.forget()
    assert await bench.erased(INBOX) == [1, 5]


class FailingOnce:
    """A store that fails when the wish is ended, as a kill would."""

    def __init__(self, store: TapeStore) -> None:
        self._store, self._has_failed = store, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
        names = {entry.name for batch in batches for entry in batch.entries}
        if "people/finished" in names and not self._has_failed:
            self._has_failed = True
            raise StoreUnavailable("killed")
        return await self._store.append(batches)


async def test_a_crash_after_the_erasure_is_finished_and_begins_nothing_twice(bench: Bench) -> None:
    await bench.append(INBOX, received("hello"))
    await bench.ask()
    failing: Any = FailingOnce(bench.store)
    with pytest.raises(StoreUnavailable):
        await finish_forgetting(failing, bench.home, HOME, OWN_REFERENCES)
    for _ in range(2):
        await finish_forgetting(bench.store, bench.home, HOME, OWN_REFERENCES)
    assert [entry.name for entry in await bench.entries("bubbot/people")] == [
        "people/forgetting", "tape/erased", "people/forgotten", "tape/erased", "people/finished",
    ]  # fmt: skip


async def test_a_wish_that_was_written_in_a_turn_of_the_person_stays_until_it_is_finished(bench: Bench) -> None:
    await bench.append(INBOX, received(",forget.me", chat="-5"))
    await bench.append(FAMILY, anchor("session/start", meta={"session": "tg:-5"}), start(1, "hers"))
    await bench.append("bubbot/people", PersonForgetting((INBOX, 1), "person").to_entry(turn="hers"))
    failing: Any = FailingOnce(bench.store)
    await try_forgetting(failing, bench.home, HOME, OWN_REFERENCES)
    await try_forgetting(failing, bench.home, HOME, OWN_REFERENCES)
    assert [entry.name for entry in await bench.entries("bubbot/people")][-1] == "people/finished"
    assert (await bench.entries("bubbot/people", "people/finished"))[0].data["forgetting"] == 1
    assert len(await bench.entries("bubbot/people", "people/forgetting")) == 1


async def test_a_failure_is_logged_and_tried_again_at_the_next_start(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    await bench.append(INBOX, received("hello"))
    await bench.ask()
    failing: Any = FailingOnce(bench.store)
    await try_forgetting(failing, bench.home, HOME, OWN_REFERENCES)
    assert [record.__dict__["action"] for record in caplog.records] == ["people.failed"]
    await try_forgetting(failing, bench.home, HOME, OWN_REFERENCES)
    assert len(await bench.entries("bubbot/people", "people/finished")) == 1


async def test_files_of_the_person_go_and_those_of_others_stay(bench: Bench) -> None:
    await bench.append(INBOX, received("my secret recipe is salt"))
    folder = bench.home.path
    files = {
        "sessions/tg_100000001-0123456789abcdef/workspace/a.txt": "x",
        "sessions/tg_100000001_7-0123456789abcdef/b.txt": "x",
        "sessions/tg_1000000019-0123456789abcdef/kept.txt": "x",
        "exports/memory-tg_100000001-20261122.md": "x",
        "exports/kept-tg_1000000019-20261122.md": "x",
        "exports/words.txt": "it said: my secret recipe is salt and more",
        "exports/named.txt": "by Ann Xo",
        "exports/kept.txt": "by Ben",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    hers = session_tape(HOME, "tg:100000001")
    await bench.append(
        hers, anchor("session/start", meta={"session": "tg:100000001"}), message("my secret recipe is salt")
    )
    told = await bench.forget()
    left = sorted(
        path.name
        for path in folder.rglob("*")
        if path.is_file() and "kept" not in path.name and "bubbot" not in path.name
    )
    assert (left, told["files"]) == ([], 5)
    assert len([path for path in folder.rglob("*kept*") if path.is_file()]) == 3


async def test_settings_that_list_the_person_are_named(bench: Bench) -> None:
    await bench.append(INBOX, received("x"))
    bench.home.config.write_text(f"[channels.tg]\nmembers = [{ANN[1]}]\n")
    assert (await bench.forget())["is_in_settings"] is True
    await bench.append(INBOX, received("again", BEN, name="Ben"))
    assert (await bench.forget(await bench.store.head(INBOX)))["is_in_settings"] is False


async def test_what_a_fork_holds_is_on_the_tape_before_anything_is_looked_for(bench: Bench) -> None:
    await bench.append(INBOX, received("open words", chat="-5"))
    await bench.append(FAMILY, anchor("session/start", meta={"session": "tg:-5"}))
    service = TapeService(
        bench.store, FAMILY, now=SteppingClock(), new_id=CountingIds(), session="tg:-5", references=OWN_REFERENCES
    )
    fork = await service.open_fork([start(1, "hers")])
    await fork.append([message("open words", turn="hers")])
    await fork.save()
    await bench.forget()
    assert await bench.store.forks() == []
    assert "open words" not in await bench.shown()
    assert (await bench.store.fetch([TapeQuery(FAMILY)]))[0][1].erased
