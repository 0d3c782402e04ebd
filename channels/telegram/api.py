"""The Bot API over python-telegram-bot: raw answers, a limit on every wait, and no token in any log or error.

The library's own exceptions are not used beyond this file: its `RetryAfter` warns when it is made, it says the same
of 401 and 404, and its texts hold addresses.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from telegram import Bot
from telegram.error import TelegramError, TimedOut
from telegram.request import HTTPXRequest, RequestData

from channels.platform.refusals import RefusalTiming
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, refusal
from channels.telegram.settings import TelegramSettings

UPDATES = ["message", "edited_message", "channel_post", "edited_channel_post", "message_reaction", "my_chat_member"]
"""The kinds of updates we use; Telegram sends no others."""

_TALKATIVE = ("httpx", "telegram.Bot")
"""Loggers of the libraries whose lines have the address of a request in them, and so the token."""


@dataclass(frozen=True, slots=True)
class TelegramApiTiming:
    """Seconds, and where time and chance come from. Tests make them short."""

    call: float = 30.0
    introduction: float = 4.0
    """Who asks for it waits at a terminal."""
    upload: float = 180.0
    download: float = 180.0
    poll_margin: float = 15.0
    """How long a poll may take beyond what Telegram was asked to hold it."""
    refusals: RefusalTiming = RefusalTiming()  # noqa: RUF009 - frozen
    """Of a token that Telegram took before."""
    conflicts: RefusalTiming = RefusalTiming(first_wait=4.0)  # noqa: RUF009 - frozen
    """Of 409. A process that is being replaced has its last poll open for 30 seconds or so."""
    conflict_quiet: float = 90.0
    """Beyond the length of a poll: how long without a 409 until there is no second program any more. Two programs that
    take turns succeed now and then."""
    first_wait: float = 1.0
    longest_wait: float = 10.0
    """Between two tries in an outage: people who write when it is over are not kept waiting for longer."""
    webhook_check: float = 300.0
    monotonic: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random


class TelegramApi:
    """Calls of one bot, with connections of its own: one for polls, others for everything else."""

    def __init__(self, settings: TelegramSettings, timing: TelegramApiTiming) -> None:
        self._settings = settings
        self._timing = timing
        self._hush = _TelegramRedactingFilter(settings.token, settings.webhook_secret)
        for name in _TALKATIVE:
            logging.getLogger(name).addFilter(self._hush)
        trust = httpx.create_ssl_context()  # takes tens of milliseconds: once for both
        self._calls = _TelegramHttp(settings, trust, pool=32)
        self._polls = _TelegramHttp(settings, trust, pool=1)
        self._bot = _RawJsonBot(
            settings.token,
            base_url=settings.base_url,
            base_file_url=settings.base_file_url,
            request=self._calls,
            get_updates_request=self._polls,
        )

    async def call(self, method: str, parameters: Mapping[str, Any] | None = None, *, upload: bool = False) -> Any:
        """The result of a method as JSON. Raises `TelegramApiError` or `TelegramUnavailable`."""
        return await self._limited(self._timing.upload if upload else self._timing.call, method, dict(parameters or {}))

    @property
    def date(self) -> str:
        """The header `Date` of the newest answer to a call; empty before."""
        return self._calls.date

    async def poll(self, offset: int | None, *, hold: bool) -> list[Any]:
        """One `getUpdates`, held by Telegram until there is news or not at all. A poll that neither returns nor fails
        is given up, and its connection with it."""
        seconds = self._settings.poll_timeout if hold else 0
        parameters: dict[str, Any] = {"timeout": seconds, "allowed_updates": UPDATES}
        if offset is not None:
            parameters["offset"] = offset
        wait = seconds + self._timing.poll_margin
        try:
            found = await self._limited(wait, "getUpdates", parameters)
        except TelegramUnavailable:
            # Nobody can tell a connection that is wedged from one that is idle: the next poll has a new one.
            await self._polls.renew()
            raise
        if not isinstance(found, list):
            raise TelegramUnavailable("its answer to a poll is no list")
        return found

    async def _limited(self, wait: float, method: str, parameters: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(wait):
                return await self._bot.raw(method, parameters, wait)
        except TimeoutError:
            raise TelegramUnavailable(f"{method} neither came back nor failed within {wait:g} s") from None

    async def download(self, path: str, limit: int) -> bytes | None:
        """A file by the path that `getFile` named; None where it is larger than `limit` bytes."""
        url = f"{self._bot.base_file_url}/{quote(path)}"
        try:
            async with asyncio.timeout(self._timing.download):
                return await self._calls.download(url, limit)
        except TimeoutError:
            raise TelegramUnavailable(f"it was not there within {self._timing.download:g} s") from None

    async def aclose(self) -> None:
        """Closes every connection."""
        try:
            await self._calls.close()
            await self._polls.close()
        finally:
            for name in _TALKATIVE:
                logging.getLogger(name).removeFilter(self._hush)


class _RawJsonBot(Bot):
    """The library's bot, asked for plain JSON: what it cannot parse is still an answer."""

    async def raw(self, method: str, parameters: dict[str, Any], wait: float) -> Any:
        try:
            return await self._post(method, parameters, read_timeout=wait)
        except TelegramApiError:
            raise
        except TimedOut:
            raise TelegramUnavailable(f"{method} was not answered in time") from None
        except TelegramError as error:
            raise TelegramUnavailable(_cause(error)) from None
        except (KeyError, TypeError):  # an answer that says success and has no result
            raise TelegramUnavailable("its answer has no result") from None


class _TelegramHttp(HTTPXRequest):
    """The library's HTTP client, with refusals read by us and files read no further than wanted."""

    CLOSING = 5.0
    """Seconds the end of a connection may take; a wedged one does not answer that either."""

    def __init__(self, settings: TelegramSettings, trust: ssl.SSLContext, *, pool: int) -> None:
        self._token = settings.token
        self.date = ""
        super().__init__(
            connection_pool_size=pool, read_timeout=20, write_timeout=20, connect_timeout=10, pool_timeout=20,
            media_write_timeout=120, proxy=settings.proxy,
            httpx_kwargs={"verify": trust, "event_hooks": {"response": [self._noted]}},
        )  # fmt: skip

    async def _noted(self, response: httpx.Response) -> None:
        self.date = response.headers.get("date", "")

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *args: Any, **kwargs: Any
    ) -> tuple[int, bytes]:
        code, payload = await super().do_request(url, method, request_data, *args, **kwargs)
        if not 200 <= code <= 299:
            raise refusal(code, payload, self._token)
        return code, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """The library's own writes the payload, which is people's messages, to the log."""
        try:
            found: dict[str, Any] = json.loads(payload)
        except (ValueError, RecursionError):
            raise TelegramError("no JSON") from None
        return found

    async def download(self, url: str, limit: int) -> bytes | None:
        found = bytearray()
        try:
            async with self._client.stream("GET", url) as response:
                if response.status_code != 200:
                    raise refusal(response.status_code, await _beginning(response), self._token)
                if int(response.headers.get("content-length") or 0) > limit:
                    return None
                async for chunk in response.aiter_bytes():
                    found += chunk
                    if len(found) > limit:
                        return None
        except httpx.HTTPError as error:
            raise TelegramUnavailable(f"the connection failed ({type(error).__name__})") from None
        return bytes(found)

    async def close(self) -> None:
        try:
            async with asyncio.timeout(self.CLOSING):
                await self.shutdown()
        except (TimeoutError, httpx.HTTPError, OSError):
            return  # it is given up either way

    async def renew(self) -> None:
        await self.close()
        await self.initialize()


async def _beginning(response: httpx.Response) -> bytes:
    found = bytearray()
    async for chunk in response.aiter_bytes():
        found += chunk
        if len(found) > 65536:
            break
    return bytes(found)


def _cause(error: TelegramError) -> str:
    """Which kind of failure it was; the text of the HTTP library's error may hold the address."""
    cause = error.__cause__
    if isinstance(cause, httpx.HTTPError):
        return f"the connection failed ({type(cause).__name__})"
    return "its answer is not JSON" if error.message == "no JSON" else f"the request failed ({type(error).__name__})"


class _TelegramRedactingFilter(logging.Filter):
    """Takes secrets out of what libraries log."""

    def __init__(self, *secrets: str) -> None:
        super().__init__()
        self._secrets = [secret for secret in secrets if secret]

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(secret in text for secret in self._secrets):
            for secret in self._secrets:
                text = text.replace(secret, "[secret]")
            record.msg, record.args = text, ()
        return True
