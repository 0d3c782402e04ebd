"""A whole bot over a model server: the bytes of an image arrive there, a recording is written down, a file goes out."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.tapes import new_id
from bubbot.errors import ModelRateLimited, ModelRefused
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.home import Home
from bubbot.ports.channel import Attachment, Channel, Inbound, Sender
from bubbot.ports.model import Model, ModelOptions
from bubbot.ports.turn import TurnResult
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e import bot, forked
from tests.e2e.model_paths import make_model, model_path, via  # noqa: F401 - a fixture among them
from tests.e2e.openai_server import calls, says, serving
from tests.e2e.provider_asking import asking
from tests.e2e.speech_server import listening
from tests.e2e.test_images import JPEG, PNG
from tests.made_settings import make_settings
from tests.turns import KeptChannel

# Warnings of pydantic about litellm's own code: not ours to mend.
pytestmark = [
    pytest.mark.usefixtures("model_path"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

VOICE = Attachment("voice", "", "audio/ogg", kind="voice")


def settings(address: str, *, name: str = "openai/gpt-4o", **attachments: Any) -> Settings:
    model = ModelSettings(name=name, api_base=address, api_key="sk-x", retries=1, retry_wait=0.01, via=via())  # type: ignore[arg-type]
    return make_settings(AttachmentSettings(**attachments), model=model)


def wrapped(made: list[KeptChannel], **files: bytes) -> PortWrappers:
    def channel(_: Channel) -> Channel:
        made.append(KeptChannel("stdin"))
        made[0].files = dict(files)
        return made[0]

    return PortWrappers(channel=channel)


async def said(app: Bot, text: str, *attachments: Attachment) -> TurnResult:
    inbound = Inbound("stdin", new_id(), "default", Sender("0"), text, "2026-11-21T20:21:00Z", attachments=attachments)
    async with asyncio.timeout(60):
        return await app.ask(inbound)


def images(body: dict[str, Any]) -> list[bytes]:
    """The bytes of the images of a request."""
    parts = [part for one in body["messages"] if isinstance(one["content"], list) for part in one["content"]]
    found = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(";base64,")[2], validate=True) for url in found]


async def test_the_bytes_of_an_image_arrive_and_requests_extend_each_other(tmp_path: Path) -> None:
    made: list[KeptChannel] = []
    async with serving(says("A dot."), says("Grey."), says("Two.")) as server:
        given = settings(server.address)
        async with open_app(given, Home(tmp_path / "home"), wrappers=wrapped(made, photo=PNG, other=JPEG)) as app:
            await said(app, "What is this?", Attachment("photo", "photo.png", kind="image"))
            await said(app, "and this?", Attachment("other", "other.jpg", kind="image"))
            await said(app, "how many?")
    assert [images(body) for body in server.requests] == [[PNG], [PNG, JPEG], [PNG, JPEG]]
    for shorter, longer in zip(server.requests, server.requests[1:], strict=False):
        assert longer["messages"][: len(shorter["messages"])] == shorter["messages"]
    assert made[0].texts == ["A dot.", "Grey.", "Two."]


async def test_images_can_be_switched_off(tmp_path: Path) -> None:
    async with serving(says("So you say.")) as server:
        given = settings(server.address, images=False)
        async with open_app(given, Home(tmp_path / "home"), wrappers=wrapped([], photo=PNG)) as app:
            await said(app, "What is this?", Attachment("photo", "photo.png", kind="image"))
    assert images(server.requests[0]) == []
    assert "this model cannot see it" in json.dumps(server.requests[0])


async def test_a_voice_message_is_written_down_by_the_configured_model(tmp_path: Path) -> None:
    async with listening("please buy milk") as ears, serving(says("Milk.")) as server:
        given = settings(server.address, transcription="openai/whisper-1")
        own = given.model_copy(update={"model": given.model.model_copy(update={"api_base": ears.address})})

        def chat(model: Model) -> Model:
            return make_model(ModelOptions("openai/gpt-4o", tmp_path, {"api_base": server.address, "api_key": "k"}))

        wrap = wrapped([], voice=b"OggS" * 100)
        async with open_app(
            own, Home(tmp_path / "home"), wrappers=PortWrappers(model=chat, channel=wrap.channel)
        ) as app:
            await said(app, "", VOICE)
    (heard,) = ears.heard
    assert (heard.data, heard.name, heard.media_type, heard.model) == (
        b"OggS" * 100,
        "voice.ogg",
        "audio/ogg",
        "whisper-1",
    )
    assert "please buy milk" in json.dumps(server.requests[0])


class TestTranscribing:
    async def test_it_is_asked_again_where_that_can_help(self) -> None:
        async with listening(503, "hello") as ears, asking("openai/whisper-1", ears.address) as model:
            assert (await model.transcribe(b"OggS", "a.ogg", "audio/ogg")).text == "hello"
        assert [heard.key for heard in ears.heard] == ["Bearer sk-canary-2"] * 2

    @pytest.mark.parametrize(("status", "kind"), [(401, ModelRefused), (429, ModelRateLimited)])
    async def test_errors_are_ours_and_hold_no_key(self, status: int, kind: type[Exception]) -> None:
        async with listening(status) as ears, asking("openai/whisper-1", ears.address, retries=1) as model:
            with pytest.raises(kind) as raised:
                await model.transcribe(b"OggS", "a.ogg", "audio/ogg")
        assert "sk-canary-2" not in str(raised.value)

    @pytest.mark.parametrize(
        ("name", "body", "cost"),
        [
            ("openai/whisper-1", {"duration": 30.0}, 30 * 0.0001),
            ("openai/whisper-1", {"duration": -30.0}, None),
            ("openai/gpt-4o-transcribe", {"usage": {"input_tokens": "100", "output_tokens": None}}, None),
            (
                "openai/gpt-4o-transcribe",
                {
                    "usage": {
                        "type": "tokens", "input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
                        "input_token_details": {"audio_tokens": 100, "text_tokens": 0},
                    }
                },
                100 * 2.5e-6 + 20 * 1e-5,
            ),
        ],
    )  # fmt: skip
    async def test_it_costs_what_its_length_or_its_tokens_cost(
        self, name: str, body: dict[str, Any], cost: float | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with listening({"text": "hello", **body}) as ears:
            monkeypatch.setenv("OPENAI_BASE_URL", ears.address)
            monkeypatch.setenv("OPENAI_API_BASE", ears.address)
            monkeypatch.setenv("OPENAI_API_KEY", "sk-canary-2")
            async with asking(name, "", api_key=None) as model:  # at OpenAI, as far as the model knows
                usage = (await model.transcribe(b"OggS", "a.ogg", "audio/ogg")).usage
        assert usage.cost == pytest.approx(cost)
        tokens = (100, 20) if cost and "gpt" in name else (0, 0)
        assert (usage.input_tokens, usage.output_tokens) == tokens

    async def test_an_own_server_has_no_known_price(self) -> None:
        async with (
            listening({"text": "hello", "duration": 30.0}) as ears,
            asking("openai/whisper-1", ears.address) as model,
        ):
            assert (await model.transcribe(b"OggS", "a.ogg", "audio/ogg")).usage.cost is None

    async def test_a_recording_of_a_wrong_kind_is_refused(self) -> None:
        async with listening("never") as ears, asking("openai/whisper-1", ears.address) as model:
            with pytest.raises(ModelRefused, match="Invalid file format"):
                await model.transcribe(b"x", "a.txt", "text/plain")


async def test_a_file_that_a_model_sends_goes_out(tmp_path: Path) -> None:
    made: list[KeptChannel] = []
    asked = calls(("c1", "file_send", json.dumps({"name": "notes.md", "text": "# Notes"})))
    async with (
        serving(asked, says("Here.")) as server,
        open_app(settings(server.address), Home(tmp_path / "home"), wrappers=wrapped(made)) as app,
    ):
        made[0].blob = app.channel_factory.blob_reader("stdin")
        await said(app, "write it down")
    assert (made[0].texts, made[0].received) == (["Here.", ""], {"notes.md": b"# Notes"})


CHILD = """
import asyncio, os, signal, sys
from pathlib import Path
from bubbot.ports.channel import Attachment, Inbound, Sender
from bubbot.errors import DeliveryFailed
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.settings.loader import Settings, ModelSettings
from bubbot.app.bot import PortWrappers, open_app
from bubbot.app.tapes import new_id
from tests.turns import KeptChannel, Played, calls, says

at, home = sys.argv[1], Path(sys.argv[2])

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Platform(KeptChannel):
    async def fetch(self, attachment, limit):
        if at == "fetch":
            die()
        return b"the words of the file"
    async def send(self, part):
        if at == "send":
            die()
        if part.file:
            print("FILE", part.file.name, (await self.blob(part.file.digest)).decode())
        else:
            print("TEXT", part.text.replace(chr(10), " "), flush=True)
        return await super().send(part)

class Dying(Played):
    async def stream(self, request):
        if at == "model":
            die()
        assert "the words of the file" in str(request.messages), request.messages
        async for item in super().stream(request):
            yield item

platform = Platform("stdin")
model = Dying(calls("file_send", name="back.txt", text="sent back"), says("here"))
async def main():
    settings = Settings(model=ModelSettings(name="scripted"))
    async with open_app(settings, Home(home), wrappers=PortWrappers(channel=lambda _: platform, model=lambda _: model)) as app:
        platform.blob = app.channel_factory.blob_reader("stdin")
        async with asyncio.timeout(30):
            for earlier in await app.recover("stdin:default"):
                await earlier
            if at != "none":
                attached = (Attachment("f", "a.txt", "text/plain"),)
                await app.ask(Inbound("stdin", "m1", "default", Sender("0"), "read", "2026-11-21T20:21:00Z", attachments=attached))
asyncio.run(main())
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("at", ["fetch", "model", "send"])
def test_killed_anywhere_the_message_and_its_files_are_answered_once(tmp_path: Path, at: str) -> None:
    home = tmp_path / "home"

    def child(when: str) -> tuple[int, str]:
        arguments = [CHILD, when, str(home)]
        done = forked.run(forked.PROGRAM, arguments, b"", env=bot.environment(home), cwd=tmp_path)
        return done.returncode, done.stdout.decode()

    assert child(at) == (-signal.SIGKILL, "")
    code, out = child("none")
    assert (code, out.splitlines()) == (0, ["TEXT here", "FILE back.txt sent back"])


def test_the_terminal_saves_files_and_says_where(tmp_path: Path) -> None:
    home = tmp_path / "home"
    script = tmp_path / "script.json"
    asks = {"calls": [{"name": "file_send", "arguments": {"name": "notes.md", "text": "# Notes"}}]}
    script.write_text(json.dumps({"default": [asks, {"text": "Here."}]}), encoding="utf-8")
    env = {"BUBBOT_MODEL__SCRIPT": str(script)}
    first, second = bot.said(home, "write it down", env=env)
    path = Path(second.removeprefix("The file notes.md is saved as "))
    assert (first, path.parent, path.read_text(encoding="utf-8")) == ("Here.", home / "exports", "# Notes")
    done = bot.run(home, "ask", "again", "--json", env=env)
    assert json.loads(done.stdout)["text"] == "Here."
    assert done.stderr.decode().splitlines() == [second]
