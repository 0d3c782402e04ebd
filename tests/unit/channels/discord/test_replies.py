"""What becomes of an answer whose first try has an unknown or a refused outcome."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.ports.channel import MessagePart
from channels.discord.errors import DiscordApiError
from channels.discord.interactions import OpenInteractions
from channels.discord.sender import DiscordSender

MISSING_ACCESS = 50_001
LOADING_FLAG = 128


class Api:
    """Answers each call with the same message."""

    def __init__(self, message: dict[str, Any]) -> None:
        self.message = message
        self.calls: list[str] = []

    async def call(self, method: str, _path: str, **_options: Any) -> dict[str, Any]:
        """Note the method."""
        self.calls.append(method)
        return self.message


@pytest.mark.parametrize(("flags", "calls"), [(0, ["GET"]), (64, ["GET"]), (LOADING_FLAG, ["GET", "PATCH"])])
async def test_a_response_that_is_there_already_is_not_written_again(flags: int, calls: list[str]) -> None:
    api: Any = Api({"id": "5", "flags": flags})
    interactions = object.__new__(OpenInteractions)
    interactions._api = api
    interaction: Any = SimpleNamespace(original_path="/webhooks/1/t/messages/@original")
    assert await interactions._recover(interaction, {"content": "x"}, []) == "5"
    assert api.calls == calls


@pytest.mark.parametrize("follow_up", ["77", None])
async def test_where_the_bot_may_not_write_a_follow_up_carries_the_answer(follow_up: str | None) -> None:
    sender: Any = object.__new__(DiscordSender)

    async def refuse(*_: Any) -> str:
        raise DiscordApiError(403, MISSING_ACCESS, "Missing Access")

    async def follow(*_: Any) -> str | None:
        return follow_up

    sender._post = refuse
    sender._interactions = SimpleNamespace(follow_up=follow)
    part = MessagePart("1", "hello")
    if follow_up is None:
        with pytest.raises(DiscordApiError):
            await sender._send_payload(part, "1", {}, [])
    else:
        assert await sender._send_payload(part, "1", {}, []) == "77"
