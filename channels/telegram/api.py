"""The Bot API over python-telegram-bot: raw answers, a limit on every wait, and no token in any log or error.

The library's exceptions stay in this file: its `RetryAfter` warns on creation, it does not distinguish 401 from 404,
and its texts contain addresses.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp
import httpx
from msgspec import Struct
from telegram import Bot
from telegram.error import TelegramError, TimedOut
from telegram.warnings import PTBUserWarning

from channels.platform.refusals import RefusalTiming
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, parse_refusal
from channels.telegram.http import CLOSE_TIMEOUT_SECONDS, load_certificates, open_http
from channels.telegram.settings import TelegramSettings

UPDATE_KINDS = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "message_reaction",
    "callback_query",
    "my_chat_member",
]
"""The kinds of updates that we use; Telegram sends no others."""
_UPDATE_KINDS_JSON = json.dumps(UPDATE_KINDS)
"""The Bot API takes any list as text, too: the library looks at each value within a list, at every poll."""

_LOGGERS_WITH_ADDRESSES = ("httpx", "telegram.Bot")
"""Loggers of the libraries whose lines contain the address of a request, and so the token."""


class TelegramApiTiming(Struct, frozen=True):
    """Limits and waits in seconds, and the sources of time and randomness. Tests make them short.

    Attributes:
        verify_timeout: limit of the check of the token; the operator waits for it at a terminal.
        press_timeout: limit of the answer to a press; messages behind it wait.
        upload_timeout: limit of a call that sends a file.
        poll_margin: limit of a poll beyond the time that Telegram holds it.
        refusals: for a token that Telegram accepted before.
        conflicts: for 409. A process that is being replaced has its last poll open for about 30 seconds.
        conflict_quiet: time without a 409, beyond the length of a poll, after which the second program counts as
            gone. Two programs that take turns succeed now and then.
        first_wait: the wait after the first failure in an outage; it doubles with each one.
        max_wait: the limit of that doubling, so that people do not wait longer once the outage is over.
        webhook_check_interval: time between two checks of the webhook.
        jitter: random numbers from 0 to 1.
    """

    call_timeout: float = 30.0
    verify_timeout: float = 4.0
    press_timeout: float = 5.0
    upload_timeout: float = 180.0
    download_timeout: float = 180.0
    poll_margin: float = 15.0
    refusals: RefusalTiming = RefusalTiming()
    conflicts: RefusalTiming = RefusalTiming(first_wait=4.0)
    conflict_quiet: float = 90.0
    first_wait: float = 1.0
    max_wait: float = 10.0
    webhook_check_interval: float = 300.0
    monotonic: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


class TelegramApi:
    """Calls of one bot: one connection for polls, a pool for everything else."""

    def __init__(self, settings: TelegramSettings, timing: TelegramApiTiming) -> None:
        self._settings = settings
        self._timing = timing
        self._redaction = _TelegramRedactingFilter(settings.token, settings.webhook_secret)
        for name in _LOGGERS_WITH_ADDRESSES:
            logging.getLogger(name).addFilter(self._redaction)
        # The library recommends its parsed methods; with them, a result that it cannot parse would be lost.
        warnings.filterwarnings("ignore", "Please use 'Bot\\.", PTBUserWarning)
        trust = load_certificates(settings)  # once for all
        self._calls = open_http(settings, trust, pool=32)
        self._polls = open_http(settings, trust, pool=1)
        # The library reads a file as a whole; ours has to stop at a limit.
        self._downloads = httpx.AsyncClient(verify=trust, proxy=settings.proxy, timeout=httpx.Timeout(20, connect=10))
        self._bot = Bot(
            settings.token,
            base_url=settings.base_url,
            base_file_url=settings.base_file_url,
            request=self._calls,
            get_updates_request=self._polls,
        )

    async def call(self, method: str, parameters: Mapping[str, Any] | None = None, *, upload: bool = False) -> Any:
        """Call a method and return its result as JSON.

        Raises:
            TelegramApiError: Telegram refused the call.
            TelegramUnavailable: no readable answer came in time.
        """
        wait = self._timing.upload_timeout if upload else self._timing.call_timeout
        return await self._call_within(wait, method, dict(parameters or {}))

    @property
    def date(self) -> str:
        """The header `Date` of the newest answer to a call; empty before the first one."""
        return self._calls.date

    async def poll(self, offset: int | None, *, hold: bool) -> list[Any]:
        """Call `getUpdates` once; with `hold`, Telegram answers when there is news.

        A poll that neither returns nor fails is dropped together with its connection.
        """
        seconds = self._settings.poll_timeout if hold else 0
        parameters: dict[str, Any] = {"timeout": seconds, "allowed_updates": _UPDATE_KINDS_JSON}
        if offset is not None:
            parameters["offset"] = offset
        wait = seconds + self._timing.poll_margin
        try:
            updates = await self._call_within(wait, "getUpdates", parameters)
        except TelegramUnavailable:
            # A wedged connection looks like an idle one: the next poll gets a new one.
            await self._polls.renew()
            raise
        if not isinstance(updates, list):
            raise TelegramUnavailable("its answer to a poll is not a list")
        return updates

    async def _call_within(self, wait: float, method: str, parameters: dict[str, Any]) -> Any:
        try:
            async with asyncio.timeout(wait):
                return await self._bot.do_api_request(method, parameters, read_timeout=wait)
        except TelegramApiError:
            raise
        except TimeoutError:
            raise TelegramUnavailable(f"{method} neither came back nor failed within {wait:g} s") from None
        except TimedOut:
            raise TelegramUnavailable(f"{method} was not answered in time") from None
        except TelegramError as error:
            raise TelegramUnavailable(_describe_cause(error)) from None
        except (KeyError, TypeError):  # an answer that says success and has no result
            raise TelegramUnavailable("its answer has no result") from None

    async def download(self, path: str, limit: int) -> bytes | None:
        """Download a file by the path that `getFile` named; return None if it is larger than `limit` bytes."""
        url = f"{self._bot.base_file_url}/{quote(path)}"
        try:
            async with asyncio.timeout(self._timing.download_timeout):
                return await _download(self._downloads, url, limit, self._settings.token)
        except TimeoutError:
            raise TelegramUnavailable(f"it was not there within {self._timing.download_timeout:g} s") from None
        except httpx.HTTPError as error:
            raise TelegramUnavailable(f"the connection failed ({type(error).__name__})") from None

    async def aclose(self) -> None:
        try:
            await self._calls.close()
            await self._polls.close()
            async with asyncio.timeout(CLOSE_TIMEOUT_SECONDS):
                await self._downloads.aclose()
        except (TimeoutError, httpx.HTTPError, OSError):
            return  # the connections are dropped either way
        finally:
            for name in _LOGGERS_WITH_ADDRESSES:
                logging.getLogger(name).removeFilter(self._redaction)


async def _download(client: httpx.AsyncClient, url: str, limit: int, token: str) -> bytes | None:
    content = bytearray()
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise parse_refusal(response.status_code, await _read_beginning(response), token)
        if int(response.headers.get("content-length") or 0) > limit:
            return None
        async for chunk in response.aiter_bytes():
            content += chunk
            if len(content) > limit:
                return None
    return bytes(content)


async def _read_beginning(response: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in response.aiter_bytes():
        content += chunk
        if len(content) > 65536:
            break
    return bytes(content)


def _describe_cause(error: TelegramError) -> str:
    """Name the kind of failure; the text of the HTTP library's error may contain the address."""
    cause = error.__cause__
    if isinstance(cause, httpx.HTTPError | aiohttp.ClientError):
        return f"the connection failed ({type(cause).__name__})"
    return "its answer is not JSON" if error.message == "no JSON" else f"the request failed ({type(error).__name__})"


class _TelegramRedactingFilter(logging.Filter):
    """A filter that removes secrets from the libraries' log lines."""

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
