"""What Telegram says, and what the port calls it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from bubbot.app.channels import RETRY_DELAYS_SECONDS
from channels.telegram.api import TelegramApiTiming
from channels.telegram.errors import (
    TelegramApiError,
    TelegramUnavailable,
    is_token_refusal,
    make_delivery_error,
    make_fetch_error,
    make_token_error,
    parse_refusal,
)
from channels.telegram.poller import OutageLog
from tests.virtual import virtual

TOKEN = "4242:SECRET-token"


def read(code: int, description: str, **parameters: Any) -> TelegramApiError:
    body: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    if parameters:
        body["parameters"] = parameters
    return parse_refusal(code, json.dumps(body).encode(), TOKEN)


@pytest.mark.parametrize(
    ("error", "permanent", "retry_after"),
    [
        (read(400, "Bad Request: chat not found"), True, None),
        (read(400, "Bad Request: message is too long"), True, None),
        (read(403, "Forbidden: bot was blocked by the user"), True, None),
        (read(413, "Request Entity Too Large"), True, None),
        (read(429, "Too Many Requests: retry after 14", retry_after=14), False, 14.0),
        (read(429, "Too Many Requests"), False, 1.0),
        (read(401, "Unauthorized"), False, None),
        (read(404, "Not Found"), False, None),
        (read(408, "Request Timeout"), False, None),
        (read(409, "Conflict"), False, None),
        (read(410, "Gone"), True, None),
        (read(499, "Odd"), True, None),
        (read(500, "Internal Server Error"), False, None),
        (parse_refusal(502, b"<html>", TOKEN), False, None),
        (TelegramUnavailable("the connection failed (ConnectError)"), False, None),
    ],
)
def test_a_failed_delivery_says_whether_and_when_to_try_again(
    error: TelegramApiError | TelegramUnavailable, permanent: bool, retry_after: float | None
) -> None:
    failed = make_delivery_error(error)
    assert (failed.permanent, failed.retry_after) == (permanent, retry_after)
    assert (error.description if isinstance(error, TelegramApiError) else str(error)) in str(failed)


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (read(403, "Forbidden: bot was kicked from the group chat"), True),
        (read(400, "Bad Request: chat not found"), True),
        (read(400, "Bad Request: GROUP chat was deactivated"), True),
        (read(400, "Bad Request: message is too long"), False),
        (read(404, "Not Found: chat not found"), False),
    ],
)
def test_only_a_chat_that_is_out_of_reach_is_gone(error: TelegramApiError, gone: bool) -> None:
    assert make_delivery_error(error).gone is gone


def test_what_was_not_answered_may_have_arrived_and_what_was_refused_has_not() -> None:
    assert make_delivery_error(TelegramUnavailable("the connection failed")).maybe
    assert not make_delivery_error(read(400, "Bad Request")).maybe
    assert str(read(400, "Bad Request")) == "Bad Request"


def test_only_who_runs_a_server_is_asked_for_its_address() -> None:
    error = read(401, "Unauthorized")
    told = [str(make_token_error("tg", error, self_hosted=self_hosted)) for self_hosted in (False, True)]
    assert told == [
        f"[channels.tg] token was refused by Telegram (401): copy it again from @BotFather{rest}."
        for rest in ("", ", and see that base_url is right")
    ]


@pytest.mark.parametrize(
    ("error", "said", "permanent"),
    [
        (read(400, "Bad Request: file is too big"), "larger than the 20 MB", True),
        (read(400, "Bad Request: wrong file_id or the file is temporarily unavailable"), "wrong file_id", True),
        (read(500, "Internal Server Error"), "500", False),
        (read(429, "Too Many Requests: retry after 3", retry_after=3), "429", False),
        (TelegramUnavailable("the connection failed (ReadError)"), "ReadError", False),
    ],
)
def test_a_failed_download_says_why_and_whether_to_try_again(
    error: TelegramApiError | TelegramUnavailable, said: str, permanent: bool
) -> None:
    failed = make_fetch_error(error)
    assert said in str(failed)
    assert failed.permanent is permanent


def test_only_the_bot_api_itself_can_refuse_a_token() -> None:
    assert is_token_refusal(read(401, "Unauthorized"))
    assert is_token_refusal(read(404, "Not Found"))
    assert not is_token_refusal(parse_refusal(404, b"<html>nginx</html>", TOKEN))
    assert not is_token_refusal(parse_refusal(404, b"[]", TOKEN))
    assert not is_token_refusal(parse_refusal(404, b"[" * 9_000, TOKEN))
    assert not is_token_refusal(read(403, "Forbidden"))


def test_a_chat_that_moved_is_named() -> None:
    error = read(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-1001)
    assert error.migrate_to == "-1001"


def test_what_telegram_says_is_searched_for_the_token_and_cut() -> None:
    error = read(400, f"Bad Request: https://example.org/bot{TOKEN}/x " + "y" * 1000)
    assert TOKEN not in error.description
    assert len(error.description) == 300


@virtual
async def test_in_an_outage_nobody_waits_longer_than_ten_seconds_for_the_next_try() -> None:
    outage, loop, waits = (
        OutageLog("tg", replace(TelegramApiTiming(), jitter=lambda: 1.0)),
        asyncio.get_running_loop(),
        [],
    )
    for _ in range(12):
        began = loop.time()
        await outage.wait(TelegramUnavailable("down"))
        waits.append(loop.time() - began)
    assert waits[:5] == [1, 2, 4, 8, 10]
    assert max(waits) == 10
    assert max(RETRY_DELAYS_SECONDS) <= 15, "answers that wait go out as soon"
