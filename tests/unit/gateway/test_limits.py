"""What one person may send: rates and bytes, by the times of the platform."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import structs

from bubbot.gateway.limits import PersonLimiter, PersonLimits
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Attachment, Edit, Inbound, Quote, Reaction, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from tests.doubles import START, SteppingClock
from tests.gateways import Stage, admitting, edit_of
from tests.turns import Options, running
from tests.virtual import virtual

LIMITS = PersonLimits(messages_per_minute=3, messages_per_hour=5, bytes_per_day=1000)
SAY = Texts().say


def limiter(rules: PersonLimits = LIMITS) -> PersonLimiter:
    return PersonLimiter(rules, SteppingClock())


def message(seconds: float = 0, text: str = "hi", sender: str = "1", *files: Attachment) -> Inbound:
    time = (START + timedelta(seconds=seconds)).isoformat()
    return Inbound("test", "", "7", Sender(sender), text, time, attachments=files)


def test_a_minute_and_an_hour_have_their_limits_for_each_person() -> None:
    one = limiter()
    assert [one.exceeded(message(at)) for at in (0, 1, 2, 3, 59)] == [None, None, None, "minute", "minute"]
    assert one.exceeded(message(59, sender="2")) is None
    assert [one.exceeded(message(at)) for at in (60, 61, 62)] == [None, None, "hour"]
    assert one.exceeded(message(3600)) is None


def test_what_was_sent_over_hours_is_no_flood_though_it_comes_at_once() -> None:
    one = limiter()
    assert [one.exceeded(message(at * 800)) for at in range(20)] == [None] * 20


def test_a_time_far_ahead_keeps_nobody_out() -> None:
    one = limiter()
    assert [one.exceeded(message(2 * 86400)) for _ in range(4)][-1] == "minute"
    assert [one.exceeded(message(0)) for _ in range(3)] == [None, None, None]


def test_a_message_without_a_time_that_can_be_read_counts_by_the_clock() -> None:
    one = PersonLimiter(LIMITS, lambda: datetime(2026, 11, 22, tzinfo=UTC))
    odd = structs.replace(message(), time="yesterday")
    assert [one.exceeded(odd) for _ in range(4)] == [None, None, None, "minute"]


def test_changes_are_counted_apart_from_messages() -> None:
    one = limiter()
    time = START.isoformat()
    edits = [Edit("test", "", "7", "m", Sender("1"), "x", time) for _ in range(4)]
    assert [one.exceeded(edit) for edit in edits] == [None, None, None, "minute"]
    assert one.exceeded(message()) is None


def test_files_and_texts_have_a_limit_of_bytes_in_a_day() -> None:
    one = limiter(PersonLimits(bytes_per_day=1000))
    files = [Attachment(f"f{number}", size=400, kind="image") for number in range(5)]
    taken = one.without_excess(
        structs.replace(message(0, "", "1", *files), quote=Quote("q", Sender("2"), "", (files[0],)))
    )
    assert taken.quote is not None
    assert [file.reference for file in (*taken.quote.attachments, *taken.attachments)] == ["f0", "f0", "", "", "", ""]
    assert "image not taken" in taken.attachments[-1].note
    assert one.exceeded(message(10, "x" * 200)) is None
    assert one.exceeded(message(10, "x")) == "bytes"
    assert one.without_excess(message(86400, "", "1", files[0])).attachments[0].reference == "f0"
    assert one.without_excess(message(86400, "", "2", Attachment("?"))).attachments[0].reference == ""


def test_bytes_of_one_minute_are_forgotten_together_when_the_first_of_them_are_a_day_old() -> None:
    one = limiter(PersonLimits(bytes_per_day=1000))
    assert [one.exceeded(message(at, "x" * size)) for at, size in ((0, 400), (59.9, 400), (60, 200))] == [None] * 3
    assert one.exceeded(message(86399.9, "x")) == "bytes"
    assert one.exceeded(message(86400, "x" * 801)) == "bytes"
    assert one.exceeded(message(86400, "x" * 800)) is None
    assert one.exceeded(message(86460, "x" * 200)) is None
    assert one.exceeded(message(86460, "x")) == "bytes"


def test_times_ahead_by_a_whole_limit_are_those_of_a_clock_that_was_set_back() -> None:
    one = limiter(PersonLimits(messages_per_hour=1))
    assert [one.exceeded(message(at)) for at in (3600, 0.1, 0)] == [None, "hour", None]
    one = limiter(PersonLimits(bytes_per_day=1))
    assert [one.exceeded(message(at, "x")) for at in (86400, 0, -0.1)] == [None, "bytes", None]


def test_who_exceeds_a_limit_is_told_once_an_hour_of_each() -> None:
    one = limiter()
    assert [one.should_notify(message(at), "minute") for at in (0, 0, 3599, 3600, 3601)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert [one.should_notify(message(3601), limit) for limit in ("hour", "bytes", "hour")] == [True, True, False]
    assert one.should_notify(message(3601, sender="2"), "minute")


def test_of_too_many_people_the_one_who_was_silent_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.gateway.limits.PEOPLE_REMEMBERED", 2)
    one = limiter(PersonLimits(messages_per_hour=2))
    assert [one.exceeded(message(0, sender=sender)) for sender in "1213"] == [None] * 4
    assert [one.exceeded(message(1, sender=sender)) for sender in "133"] == ["hour", None, "hour"]
    assert [one.exceeded(message(2, sender="2")) for _ in range(3)] == [None, None, "hour"]


def test_a_restart_does_not_forget_what_was_accepted() -> None:
    one = limiter()
    one.load([message(at, "", "1", Attachment("f", size=600)) for at in (0, 1, 2)])
    assert one.exceeded(message(3)) == "minute"
    assert one.without_excess(message(90, "", "1", Attachment("g", size=1))).attachments[0].reference == ""


def test_what_was_accepted_counts_with_its_text_its_files_and_those_of_its_quote() -> None:
    quote = Quote("q", Sender("2"), "", (Attachment("f", size=200),))
    one = limiter(PersonLimits(bytes_per_day=1_000_500))
    one.load([structs.replace(message(0, "x" * 100, "1", Attachment("?"), Attachment("", size=10**9)), quote=quote)])
    assert [one.exceeded(message(1, "x" * size)) for size in (201, 200, 1)] == ["bytes", None, "bytes"]


def test_files_of_a_quote_count_and_what_is_no_file_or_a_reaction_does_not() -> None:
    one = limiter(PersonLimits(bytes_per_day=1000))
    assert one.exceeded(Reaction("test", "", "7", "m", Sender("1"), ("+1",), START.isoformat())) is None
    note = Attachment("", note="too large", size=10**9)
    quoting = structs.replace(
        message(1, "", "1", note), quote=Quote("q", Sender("2"), "", (Attachment("f", size=1000),))
    )
    assert one.without_excess(quoting) == quoting
    quoting = structs.replace(quoting, attachments=())
    quote = one.without_excess(quoting).quote
    assert quote is not None
    assert [file.reference for file in quote.attachments] == [""]


def test_without_limits_everything_is_taken() -> None:
    one = limiter(PersonLimits())
    assert {one.exceeded(message()) for _ in range(500)} == {None}
    assert one.without_excess(message(0, "", "1", Attachment("f", size=10**12))).attachments[0].reference == "f"


def limited(store: InMemoryStore, person_limits: PersonLimits = LIMITS, **listed: Any) -> Any:
    rules = structs.replace(
        admitting(store, **(listed or {"owners": {"1"}, "members": {"2"}})), person_limits=person_limits
    )
    return running(store, ScriptedModel(), Options(rules=rules), channel=Stage())


@virtual
async def test_a_flood_is_skipped_before_it_is_stored_told_once_and_keeps_nobody_waiting() -> None:
    store = InMemoryStore()
    async with limited(store) as bench:
        for number in range(300):
            await bench.gate.receive(bench.inbound(f"m{number}", chat="9", sender="1"))
        await bench.gate.receive(bench.inbound("hello", chat="8", sender="2"))
        await bench.quiet()
        received = await bench.events("inbox/received", bench.inbox.name)
        assert [data["text"] for data in received] == ["m0", "m1", "m2", "hello"]
        assert bench.channel.texts.count(SAY("skipped_minute", number=3)) == 1
        assert "You said: hello" in bench.channel.texts


@virtual
async def test_edits_beyond_the_rate_are_not_stored() -> None:
    store = InMemoryStore()
    async with limited(store) as bench:
        await bench.gate.receive(bench.inbound("first", external_id="7", message="7"))
        await bench.quiet()
        for number in range(50):
            await bench.gate.receive(edit_of("7", f"edited {number}"))
        assert len(await bench.events("inbox/changed", bench.inbox.name)) == 3


@virtual
async def test_files_beyond_the_day_are_left_out_and_the_message_is_answered() -> None:
    store = InMemoryStore()
    async with limited(store, PersonLimits(bytes_per_day=1000)) as bench:
        files = tuple(Attachment(f"f{number}", size=400) for number in range(5))
        await bench.gate.receive(structs.replace(bench.inbound("look"), attachments=files))
        (data,) = await bench.events("inbox/received", bench.inbox.name)
        assert [one["reference"] for one in data["attachments"]] == ["f0", "f1", "", "", ""]
        assert bench.channel.texts[0] == SAY("skipped_bytes", size="1 kB")


@virtual
async def test_a_new_line_counts_what_its_tape_has() -> None:
    store = InMemoryStore()
    for text in ("one", "two"):
        async with limited(store, PersonLimits(messages_per_minute=1)) as bench:
            await bench.gate.receive(bench.inbound(text))
            await bench.quiet()
            received = await bench.events("inbox/received", bench.inbox.name)
            assert [data["text"] for data in received] == ["one"]
