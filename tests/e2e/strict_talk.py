"""A whole bot in this process that talks to a `StrictServer`: what a person says, and what came of it.

`addresses` sends every provider's models to the server. A model of the settings is called at its configured address, others
at those of the environment, as after `,model`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.tapes import new_id
from bubbot.home import Home
from bubbot.ports.channel import Attachment, Edit, Inbound, Sender
from bubbot.ports.turn import TurnResult
from bubbot.settings.loader import ModelSettings, Settings
from tests.e2e.model_paths import via
from tests.e2e.strict_server import StrictServer, Told, Verdict
from tests.turns import KeptChannel

ANN = Sender("0", "Ann")
_KEYS = ("OPENAI", "DEEPSEEK", "MISTRAL", "ANTHROPIC", "GEMINI", "HOSTED_VLLM", "OLLAMA")
WAIT = 60.0
"""Seconds any turn may take."""


def addresses(server: StrictServer) -> dict[str, str]:
    """The variables that send the models of every provider to this server."""
    return {
        **{f"{name}_API_KEY": "sk-canary-4" for name in _KEYS},
        "OPENAI_BASE_URL": f"{server.address}/openai/v1",
        "DEEPSEEK_API_BASE": f"{server.address}/deepseek/v1",
        "MISTRAL_AZURE_API_BASE": f"{server.address}/mistral/v1",
        "MISTRAL_API_BASE": f"{server.address}/mistral/v1",
        "ANTHROPIC_API_BASE": f"{server.address}/anthropic",
        "GEMINI_API_BASE": f"{server.address}/gemini/v1beta",
        "HOSTED_VLLM_API_BASE": f"{server.address}/hosted_vllm/v1",
        "OLLAMA_API_BASE": f"{server.address}/ollama",
    }


class Files(KeptChannel):
    """A chat whose files can be fetched."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__("stdin")
        self.files = dict(files)


@dataclass
class Turn:
    """What came of a message: the turn, and the requests that it made."""

    result: TurnResult
    verdicts: list[Verdict]

    @property
    def refused(self) -> list[Verdict]:
        """Its requests that were refused."""
        return [verdict for verdict in self.verdicts if verdict.rule]

    @property
    def rules(self) -> list[str]:
        """The rules that they broke."""
        return [verdict.rule.name for verdict in self.refused if verdict.rule]


@dataclass
class Talk:
    """A chat with a bot, which runs within `opened`: twice is a restart."""

    home: Path
    server: StrictServer
    name: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    app: Bot | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Talk]:
        """The bot runs within the block."""

        channel = Files(self.files)
        keys: dict[str, Any] = {"name": self.name, "api_key": "sk-canary-4", "via": via(), **self.keys}
        if self.name.startswith("openai/"):
            keys["api_base"] = f"{self.server.address}/own/v1"
        model = ModelSettings(retries=1, retry_wait=0.01, **keys)
        async with open_app(
            Settings(model=model), Home(self.home), wrappers=PortWrappers(channel=lambda _: channel)
        ) as app:
            self.app, channel.blob = app, app.channel_factory.blob_reader("stdin")
            await app.recover_all()
            yield self
            app.runtime.pause()
            await app.runtime.cancel()
        self.app = None

    @property
    def texts(self) -> list[str]:
        """What people have read since the bot began."""
        assert self.app is not None
        assert isinstance(self.app.channel, Files)
        return self.app.channel.texts

    def inbound(self, text: str, *attachments: Attachment, **fields: Any) -> Inbound:
        """A message of the chat."""
        now, given = datetime.now(UTC).isoformat(), new_id()
        fields = {"sender": ANN, "message": given, **fields}
        return Inbound("stdin", given, "default", text=text, time=now, attachments=attachments, **fields)

    async def say(self, text: str, *told: Told, attachments: tuple[Attachment, ...] = (), **fields: Any) -> Turn:
        """Say something; `told` is what the server answers to the requests that this makes."""
        assert self.app is not None
        self.server.tell(*told)
        before = len(self.server.verdicts)
        async with asyncio.timeout(WAIT):
            result = await self.app.ask(self.inbound(text, *attachments, **fields))
            await self.app.runtime.wait_idle()
        return Turn(result, self.server.verdicts[before:])

    async def edit(self, message: str, text: str) -> None:
        """Change a message."""
        assert self.app is not None
        now = datetime.now(UTC).isoformat()
        await self.app.gate.receive(Edit("stdin", new_id(), "default", message, ANN, text, now))
        await self.app.runtime.wait_idle()
