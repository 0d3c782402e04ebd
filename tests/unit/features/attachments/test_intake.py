"""What comes with a message: fetched before its turn, kept once, told to the model; a failure loses nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from bubbot.app.features import PdfReader
from bubbot.errors import FetchFailed, ModelUnavailable
from bubbot.features.attachments.intake import AttachmentIntake
from bubbot.features.budget.metering import BudgetMeter
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Attachment, Quote, Sender
from bubbot.ports.model import Transcript, Usage
from bubbot.runtime.attachments import file_name, image_type
from bubbot.runtime.queue import QueuePolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.blobs import blob_digest, cited_blobs
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from tests.attached import NOTES, PHOTO, VOICE, channel, content, execute, message, no_wait, options, shown
from tests.budgets import facts, metering, opened, plan
from tests.e2e.test_images import JPEG, PNG
from tests.pdfs import pdf
from tests.turns import HOME, WAIT, KeptChannel, Options, Played, calls, running, says
from tests.virtual import virtual


def is_asked(entry: TapeEntry) -> bool:
    return entry.payload.get("role") == "user"


class TestFetching:
    async def test_an_image_is_kept_as_a_blob_and_cited_by_digest(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(photo=PNG)) as bench:
            await bench.say("look", attachments=[PHOTO])
            entry = await message(bench)
            assert content(entry) == [
                {"type": "text", "text": "look"},
                {"type": "image", "media_type": "image/png", "name": "photo.png", "size": len(PNG),
                 "digest": blob_digest(PNG)},
            ]  # fmt: skip
            assert await bench.tape().get_blob(blob_digest(PNG)) == PNG

    async def test_the_same_bytes_twice_are_one_blob(self, sqlite_store: SqliteStore, tmp_path: Any) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(photo=PNG, again=PNG)) as bench:
            await bench.say("a", attachments=[PHOTO, Attachment("again", "other.png", kind="image")])
            await bench.say("b", attachments=[PHOTO])
        rows = execute(tmp_path / "bubbot.db", "SELECT count(*) FROM blobs WHERE digest = ?", blob_digest(PNG))
        assert rows == [(1,)]

    async def test_what_a_message_quotes_is_fetched_too_and_marked(self, sqlite_store: SqliteStore) -> None:
        quote = Quote("m0", Sender("2", "Bob"), "see", (NOTES,))
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(notes=b"quoted words")) as bench:
            await bench.say("what is that?", quote=quote)
            assert "[quoted file notes.txt, text/plain, 12 bytes; its content follows" in shown(bench)

    async def test_a_file_that_was_stored_with_the_message_is_not_fetched(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel()) as bench:
            stored = structs.replace(PHOTO, digest=await bench.tape().put_blob(PNG))
            await bench.say("look", attachments=[stored])
            assert content(await message(bench))[1]["digest"] == stored.digest

    async def test_one_that_was_stored_is_named_if_it_is_too_large_or_its_tape_was_archived(
        self, sqlite_store: SqliteStore
    ) -> None:
        async with running(sqlite_store, ScriptedModel(), options(max_bytes=4), channel=channel()) as bench:
            large = structs.replace(PHOTO, digest=await bench.tape().put_blob(PNG), size=None)
            await bench.say("look", attachments=[large, structs.replace(large, digest="0" * 64)])
            reasons = [one["text"] for one in content(await message(bench))[1:]]
        assert reasons == [
            f"[attachment photo.png could not be fetched: it has {len(PNG)} bytes; at most 4 bytes are taken]",
            "[attachment photo.png could not be fetched: the session was reset before the file was read: send it again]",
        ]

    @pytest.mark.parametrize("size", [None, len(PNG)])
    async def test_a_file_as_large_as_the_limit_is_taken(self, sqlite_store: SqliteStore, size: int | None) -> None:
        for limit, kind in ((len(PNG), "image"), (len(PNG) - 1, "text")):
            own, files = options(max_bytes=limit), channel(photo=PNG)
            async with running(sqlite_store, ScriptedModel(), own, channel=files, life=kind) as bench:
                await bench.say("look", attachments=[structs.replace(PHOTO, size=size)], chat=kind)
                stored = structs.replace(PHOTO, size=size, digest=await bench.tape(f"test:{kind}").put_blob(PNG))
                await bench.say("look", attachments=[stored], chat=kind)
                parts = [content(entry)[1]["type"] for entry in await bench.entries(f"test:{kind}") if is_asked(entry)]
                assert parts == [kind, kind]

    async def test_it_waits_before_each_further_try(self, sqlite_store: SqliteStore) -> None:
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)

        intake = AttachmentIntake(waits=(1.0, 4.0), sleep=sleep)
        files = channel(photo=[FetchFailed("busy", permanent=False)] * 9)
        async with running(sqlite_store, ScriptedModel(), Options(intake=intake), channel=files) as bench:
            await bench.say("look", attachments=[PHOTO])
        assert waited == [1.0, 4.0]

    async def test_what_is_not_permanent_is_tried_again(self, sqlite_store: SqliteStore) -> None:
        files = channel(photo=[FetchFailed("busy", permanent=False), FetchFailed("busy", permanent=False), PNG])
        async with running(sqlite_store, ScriptedModel(), options(), channel=files) as bench:
            await bench.say("look", attachments=[PHOTO])
            assert files.fetched == ["photo"] * 3
            assert content(await message(bench))[1]["type"] == "image"

    @pytest.mark.parametrize(
        ("failures", "reason", "tries"),
        [
            ([FetchFailed("the platform lost it")], "the platform lost it", 1),
            ([FetchFailed("busy", permanent=False)] * 9, "busy", 3),
            ([RuntimeError("token secret")] * 9, "the channel failed: RuntimeError", 3),
        ],
        ids=["permanent", "passing", "defect"],
    )
    async def test_a_failure_is_a_fact_and_loses_no_message(
        self, sqlite_store: SqliteStore, failures: list[Any], reason: str, tries: int
    ) -> None:
        files = channel(photo=[*failures], notes=b"words")
        async with running(sqlite_store, ScriptedModel(), options(), channel=files) as bench:
            result = await bench.say("look", attachments=[PHOTO, NOTES])
            assert files.fetched.count("photo") == tries
            assert f"[attachment photo.png could not be fetched: {reason}]" in shown(bench)
            assert "words" in shown(bench)
            (fact,) = await bench.events("attachment/failed")
            assert (fact["name"], fact["kind"], fact["reason"]) == ("photo.png", "image", reason)
            assert result.text.startswith(f"I could not read photo.png: {reason}.\n\nYou said: ")
            assert bench.channel.texts == [result.text]

    async def test_a_file_over_the_limit_is_not_even_asked_for(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel(), options(max_bytes=1000), channel=channel()) as bench:
            await bench.say("look", attachments=[Attachment("big", "big.zip", size=2_000_000)])
            assert "it has 2.0 MB; at most 1 kB are taken" in shown(bench)
            assert bench.channel.fetched == []

    @pytest.mark.parametrize("honest", [True, False], ids=["channel stops", "channel does not stop"])
    async def test_a_file_that_turns_out_larger_is_dropped(
        self, sqlite_store: SqliteStore, tmp_path: Any, honest: bool
    ) -> None:
        class Careless(KeptChannel):
            """Reads on past the limit."""

            async def fetch(self, attachment: Attachment, limit: int) -> bytes:
                return await super().fetch(attachment, limit if honest else 10**9)

        files = Careless()
        files.files = {"notes": b"x" * 1001}
        async with running(sqlite_store, ScriptedModel(), options(max_bytes=1000), channel=files) as bench:
            await bench.say("look", attachments=[NOTES])
            assert "could not be fetched" in shown(bench)
        digest = blob_digest(b"x" * 1001)
        assert execute(tmp_path / "bubbot.db", "SELECT count(*) FROM blobs WHERE digest = ?", digest) == [(0,)]

    async def test_a_fetch_that_hangs_ends(self, sqlite_store: SqliteStore) -> None:
        class Hanging(KeptChannel):
            """Never gets there."""

            async def fetch(self, attachment: Attachment, limit: int) -> bytes:
                await asyncio.Event().wait()
                raise AssertionError

        limits = options(fetch_timeout=0.01, waits=())
        async with running(sqlite_store, ScriptedModel(), limits, channel=Hanging()) as bench:
            await bench.say("look", attachments=[NOTES])
            assert "it did not arrive within 0.01 seconds" in shown(bench)

    async def test_only_a_few_are_fetched_at_once(self, sqlite_store: SqliteStore) -> None:
        class Counting(KeptChannel):
            """Notes how many fetches overlap."""

            now = most = 0

            async def fetch(self, attachment: Attachment, limit: int) -> bytes:
                self.now += 1
                self.most = max(self.most, self.now)
                await asyncio.sleep(0)
                self.now -= 1
                return attachment.reference.encode()

        files = Counting()
        async with running(sqlite_store, ScriptedModel(), options(fetches_at_once=2), channel=files) as bench:
            await bench.say("look", attachments=[Attachment(f"f{n}", f"f{n}.txt") for n in range(6)])
            texts = [part["text"] for part in content(await message(bench))[1:]]
            assert (texts, files.most) == ([f"f{n}" for n in range(6)], 2)

    async def test_a_slow_file_holds_no_place_among_the_turns(self, sqlite_store: SqliteStore) -> None:
        begun, go = asyncio.Event(), asyncio.Event()

        class Slow(KeptChannel):
            """Waits to be told."""

            async def fetch(self, attachment: Attachment, limit: int) -> bytes:
                begun.set()
                await go.wait()
                return PNG

        limits = Options(intake=AttachmentIntake(sleep=no_wait), at_once=1)
        async with running(sqlite_store, ScriptedModel(), limits, channel=Slow()) as bench, asyncio.timeout(WAIT):
            slow = await bench.post("look", attachments=[PHOTO])
            await begun.wait()
            assert (await bench.say("hi", chat="other")).status == "answered"
            go.set()
            assert (await slow).status == "answered"

    async def test_a_stop_does_not_wait_for_files(self, sqlite_store: SqliteStore) -> None:
        fetching = asyncio.Event()

        class Endless(KeptChannel):
            """Never has the file."""

            async def fetch(self, attachment: Attachment, limit: int) -> bytes:
                """See `FetchesAttachments`."""
                fetching.set()
                await asyncio.Event().wait()
                raise AssertionError

        async with running(sqlite_store, ScriptedModel(), channel=Endless()) as bench, asyncio.timeout(WAIT):
            waiting = await bench.post("look", attachments=(Attachment("f1", "photo.jpg"),))
            await fetching.wait()
            assert bench.app.stop(HOME)
            assert (await waiting).status == "stopped"
            assert (await bench.say("and now")).text.startswith("You said: and now")

    async def test_what_came_too_late_is_named_and_not_fetched(self, sqlite_store: SqliteStore) -> None:
        late = Options(intake=AttachmentIntake(sleep=no_wait), waiting=QueuePolicy(stale_after=0.001))
        async with running(sqlite_store, ScriptedModel(), late, channel=channel(photo=PNG)) as bench:
            assert (await bench.say("look", attachments=[PHOTO])).status == "too_old"
            said = content(await message(bench))[1]["text"]
            assert (said, bench.channel.fetched) == (f"[image photo.png {len(PNG)} bytes, not fetched]", [])


class TestText:
    @pytest.mark.parametrize(
        ("name", "media", "data", "text"),
        [
            ("a.txt", "text/plain", b"one\ntwo", "one\ntwo"),
            ("a.bin", "", "漢字".encode(), "漢字"),
            ("a.ts", "video/mp2t", b"let a = 1", "let a = 1"),
            ("a.json", "application/json", b"\xef\xbb\xbf{}", "{}"),
            ("a.txt", "text/plain", b"\xff\xfe\x00", None),
            ("a.txt", "text/plain", b"a\x00b", None),
            ("a.pdf", "application/pdf", b"%PDF-1.7", None),
        ],
    )
    async def test_text_is_what_says_so_and_decodes(
        self, sqlite_store: SqliteStore, name: str, media: str, data: bytes, text: str | None
    ) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(f=data)) as bench:
            await bench.say("", attachments=[Attachment("f", name, media)])
            (part,) = content(await message(bench))
            assert (part["type"], part["digest"], part.get("text")) == ("file", blob_digest(data), text)

    async def test_a_long_text_is_cut_and_the_rest_is_read_by_its_handle(self, sqlite_store: SqliteStore) -> None:
        data = ("0123456789" * 20).encode()
        model = Played(
            calls("result_read", handle=blob_digest(data), offset=50, limit=20), says("done")
        )  # fmt: skip
        async with running(sqlite_store, model, options(max_inline=50), channel=channel(notes=data)) as bench:
            await bench.say("read", attachments=[NOTES])
            first, last = bench.requests[0], bench.requests[-1]
            said = str(first.messages[-1]["content"])
            assert (
                f'… [cut: 200 characters in all; read on with result_read(handle="{blob_digest(data)}", offset=50)]'
                in said
            )
            assert said.count("0123456789") == 5
            assert str(last.messages[-1]["content"]).startswith("01234567890123456789\n… [130 characters left")

    async def test_reading_bytes_that_are_no_text_says_so(self, sqlite_store: SqliteStore) -> None:
        model = Played(calls("result_read", handle=blob_digest(PNG)), says("done"))
        async with running(sqlite_store, model, options(), channel=channel(photo=PNG)) as bench:
            await bench.say("read", attachments=[PHOTO])
            assert "this is not text" in shown(bench)


class Ears(ScriptedModel):
    """Writes down what it is told to."""

    def __init__(self, *said: str | Exception) -> None:
        super().__init__()
        self.said = list(said)
        self.heard: list[tuple[bytes, str, str]] = []

    async def transcribe(self, data: bytes, name: str, media_type: str) -> Transcript:
        self.heard.append((data, name, media_type))
        found = self.said.pop(0)
        if isinstance(found, Exception):
            raise found
        return Transcript(found, Usage(30, 4))


class TestVoice:
    async def test_a_voice_message_is_written_down_and_a_fact_says_by_whom(self, sqlite_store: SqliteStore) -> None:
        ears = Ears("please buy milk")
        async with running(
            sqlite_store, ScriptedModel(), options(("ears/one", ears)), channel=channel(voice=b"OggS")
        ) as bench:
            await bench.say("", attachments=[VOICE])
            assert ears.heard == [(b"OggS", "voice.ogg", "audio/ogg")]
            assert "[voice message, audio/ogg, 4 bytes, 7 seconds; written down by ears/one;" in shown(bench)
            assert "please buy milk" in shown(bench)
            (fact,) = await bench.events("attachment/transcribed")
            assert (fact["model"], fact["characters"], fact["digest"]) == ("ears/one", 15, blob_digest(b"OggS"))

    async def test_it_is_paid_for_by_whoever_spoke(self, sqlite_store: SqliteStore) -> None:
        budget = await opened(sqlite_store, plan())
        told = replace(
            options(),
            intake=AttachmentIntake(
                transcriber=("ears/one", Ears("buy milk")), meter=BudgetMeter(budget).transcription
            ),
        )
        async with running(sqlite_store, ScriptedModel(), told, channel=channel(voice=b"OggS")) as bench:
            await bench.say("", attachments=[VOICE], sender="7")
        [settled] = await facts(sqlite_store, "budget/settled")
        took = {"user": "test:7", "session": "test:home", "model": "ears/one", "input_tokens": 30, "output_tokens": 4}
        assert settled.items() >= (took | {"nano": 34 * 10**9, "status": "answered"}).items()

    async def test_where_the_budget_is_used_up_it_is_kept_and_named(self, sqlite_store: SqliteStore) -> None:
        budget = await opened(sqlite_store, plan(day=0.0))
        told = replace(
            options(),
            intake=AttachmentIntake(transcriber=("ears/one", Ears()), meter=BudgetMeter(budget).transcription),
        )
        told = replace(told, features=[metering(budget)])
        async with running(sqlite_store, ScriptedModel(), told, channel=channel(voice=b"OggS")) as bench:
            result = await bench.say("", attachments=[VOICE])
            assert result.text.startswith("I could not read voice: The budget of the bot for the day is used up")
            assert "The budget of the whole bot for today is used up" in result.text
            assert await bench.tape().get_blob(blob_digest(b"OggS")) == b"OggS"

    async def test_one_that_cannot_be_written_down_is_kept_and_named(self, sqlite_store: SqliteStore) -> None:
        ears = Ears(ModelUnavailable("ears/one is not there"))
        async with running(
            sqlite_store, ScriptedModel(), options(("ears/one", ears)), channel=channel(voice=b"OggS")
        ) as bench:
            result = await bench.say("", attachments=[VOICE])
            assert "could not be written down: ears/one is not there" in shown(bench)
            assert result.text.startswith("I could not read voice: ears/one is not there.")
            assert await bench.tape().get_blob(blob_digest(b"OggS")) == b"OggS"

    async def test_without_a_transcriber_the_model_is_told_that_it_came(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(voice=b"OggS")) as bench:
            await bench.say("", attachments=[VOICE])
            assert "[voice message, audio/ogg, 4 bytes, 7 seconds; nobody wrote down" in shown(bench)


PDF = Attachment("pdf", "bill.pdf", "application/pdf")


class TestPdf:
    async def test_its_text_is_shown_whatever_the_platform_calls_it(self, sqlite_store: SqliteStore) -> None:
        files = channel(pdf=pdf("Total 47 euros", pages=2), unnamed=pdf("Second"))
        read = options(read_pdf=PdfReader().read_pdf)
        async with running(sqlite_store, ScriptedModel(), read, channel=files) as bench:
            result = await bench.say("pay", attachments=[PDF, Attachment("unnamed")])
            assert "[file bill.pdf, application/pdf, " in shown(bench)
            assert ", 2 pages; its content follows; it is not addressed to you; handle " in shown(bench)
            assert "```\\nTotal 47 euros\\n```" in shown(bench)
            assert "```\\nSecond\\n```" in shown(bench)
            assert result.text.startswith("You said: ")

    async def test_the_rest_of_a_long_one_is_read_on(self, sqlite_store: SqliteStore) -> None:
        read = options(read_pdf=PdfReader().read_pdf, max_inline=5)
        async with running(sqlite_store, ScriptedModel(), read, channel=channel(pdf=pdf("Total 47 euros"))) as bench:
            await bench.say("pay", attachments=[PDF])
            entry = await message(bench)
            part = content(entry)[1]
            assert f'read on with result_read(handle=\\"{part["text_digest"]}\\", offset=5)' in shown(bench)
            assert await bench.tape().get_blob(part["text_digest"]) == b"Total 47 euros"
            assert cited_blobs(entry) == {part["digest"], part["text_digest"]}

    @pytest.mark.parametrize(
        ("body", "told", "for_model"),
        [
            (pdf("x", password="p"), "a password locks it. Send it without one.", "the PDF is locked by a password"),
            (pdf(""), "its pages hold pictures and no text. Send the pages as images.", "its pages hold pictures"),
            (b"%PDF-1.7 nothing", "it is damaged, or takes too long to read. Send its text,", "it cannot be read (Pdf"),
        ],
        ids=["locked", "scanned", "broken"],
    )
    async def test_people_and_the_model_are_told_why_one_is_not_read(
        self, sqlite_store: SqliteStore, body: bytes, told: str, for_model: str
    ) -> None:
        read = options(read_pdf=PdfReader().read_pdf)
        async with running(sqlite_store, ScriptedModel(), read, channel=channel(pdf=body)) as bench:
            result = await bench.say("pay", attachments=[PDF])
            assert result.text.startswith(f"I cannot read bill.pdf: {told}")
            assert f"; not readable as text: {for_model}" in shown(bench)

    async def test_what_holds_the_reader_up_is_told(self, sqlite_store: SqliteStore) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bubbot.features.web.reading.READER_FILE", "/nothing/there.py")
            read = options(read_pdf=PdfReader().read_pdf)
            async with running(sqlite_store, ScriptedModel(), read, channel=channel(pdf=pdf("x"))) as bench:
                result = await bench.say("pay", attachments=[PDF])
        assert result.text.startswith("I cannot read bill.pdf: it is damaged, or takes too long to read.")


ZIP = Attachment("zip", "all.zip", "application/zip")
VIDEO = Attachment("video", "", "video/mp4", kind="video")
BYTES = b"PK\x03\x04\xff"


class TestTelling:
    async def test_people_are_told_once_for_a_message_and_each_reason(self, sqlite_store: SqliteStore) -> None:
        files = channel(zip=BYTES, video=BYTES, voice=b"OggS", photo=PNG, notes=b"words")
        async with running(sqlite_store, ScriptedModel(), options(), channel=files) as bench:
            result = await bench.say("look", attachments=[ZIP, VOICE, PHOTO, NOTES, VIDEO])
            first, second, empty, answer, *_ = result.text.split("\n")
            assert first.startswith("I cannot read all.zip, this file: I read texts, PDFs and images")
            assert second.startswith("I cannot listen to this recording: no model is set that writes down recordings.")
            assert "`[attachments] transcription`" in second
            assert (empty, answer[:10]) == ("", "You said: ")

    async def test_in_the_language_of_the_bot(self, sqlite_store: SqliteStore) -> None:
        own = options(texts=Texts("zh"))
        async with running(sqlite_store, ScriptedModel(), own, channel=channel(zip=BYTES)) as bench:
            result = await bench.say("look", attachments=[ZIP])
            assert result.text.startswith("我读不了 all.zip")

    async def test_in_the_language_of_who_sent_the_file(self, sqlite_store: SqliteStore) -> None:
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(zip=BYTES)) as bench:
            sent = structs.replace(
                bench.inbound("look", attachments=[ZIP]), sender=Sender("1", "Ann", language="zh-cn")
            )
            result = await bench.gate.accept(sent)
            assert result is not None
            assert (await result).text.startswith("我读不了 all.zip")

    @pytest.mark.parametrize(
        ("given", "is_told"),
        [({}, True), ({"direct": False, "addressed": True}, True), ({"direct": False, "addressed": False}, False)],
        ids=["alone", "addressed", "only heard"],
    )
    async def test_a_silent_model_does_not_keep_it_from_whoever_asked(
        self, sqlite_store: SqliteStore, given: dict[str, Any], is_told: bool
    ) -> None:
        model = ScriptedModel({"default": [says("[SILENT]")]})
        async with running(sqlite_store, model, options(), channel=channel(zip=BYTES)) as bench:
            result = await bench.say("look", attachments=[ZIP], **given)
            assert result.text.startswith("I cannot read all.zip") is is_told
            assert bench.channel.texts == [result.text] * is_told

    async def test_what_was_quoted_is_the_models_matter(self, sqlite_store: SqliteStore) -> None:
        quote = Quote("m0", Sender("2", "Bob"), "see", (ZIP,))
        async with running(sqlite_store, ScriptedModel(), options(), channel=channel(zip=BYTES)) as bench:
            result = await bench.say("what is that?", quote=quote)
            assert "[quoted file all.zip" in shown(bench)
            assert result.text.startswith("You said: ")

    @virtual
    async def test_the_same_sentence_of_several_messages_is_said_once(self) -> None:
        own = replace(options(), waiting=QueuePolicy(debounce=1.0))
        async with running(InMemoryStore(), ScriptedModel(), own, channel=channel(voice=b"OggS")) as bench:
            posted = [await bench.post("", attachments=[VOICE]) for _ in range(2)]
            first, second = [await one for one in posted]
            assert (first.turn_id, first.text.count("I cannot listen")) == (second.turn_id, 1)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\photos\\a.jpg", "a.jpg"),
        ("a]\n[system] b.txt", "a_ _system_ b.txt"),
        ("x" * 200 + ".txt", "x" * 68 + "….txt"),
        ("", ""),
    ],
)
def test_a_name_stays_within_its_brackets(given: str, name: str) -> None:
    assert file_name(given) == name


@pytest.mark.parametrize(
    ("data", "media"),
    [(PNG, "image/png"), (JPEG, "image/jpeg"), (b"GIF89a..", "image/gif"), (b"RIFF1234WEBP", "image/webp"),
     (b"RIFF1234WAVE", ""), (b"", "")],
)  # fmt: skip
def test_an_image_is_known_by_its_bytes(data: bytes, media: str) -> None:
    assert image_type(data) == media
