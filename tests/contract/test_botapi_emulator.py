"""One small client, the same for our Bot API server and for an emulator made by others: where do they differ?

Run on telegram-test-api 4.2.1 (npm; set BOTAPI_EMULATOR to its address with the token, such as
`http://127.0.0.1:9000/bot1:x/`, after its client has sent the text "hello"). Both agree on the shape of an update with
a message and on `ok` and `result`. Where they differ, the official pages
speak for our answer each time:

* getMe: the emulator leaves `is_bot` out; the page of User has it in every user.
* getUpdates: the emulator forgets an update once it was given; the page says that an update is confirmed when
  getUpdates is called with an offset higher than its id, and that unconfirmed ones are returned again.
* sendMessage: the emulator's message has no `from` and a date in milliseconds; Message has Unix time in seconds.
* Limits and markup: the emulator takes 4,097 characters, an empty text and open markup; the page says 1-4096
  characters after entities parsing.
* Unknown methods: the emulator answers 500 without `ok`; "Making requests" promises `ok` in every answer, and with it
  `description` and `error_code` where a request failed.
* Refusals: deleting what is not there has `error_code` 400 on both; only ours, as the platform, also says it with the
  status of HTTP, which the pages leave open and the library goes by.
* Tokens: the emulator takes any; the page gives each bot one unique token.
* An update of the emulator also carries the bot's token in the message, which no page knows.
"""

from __future__ import annotations

import os

import httpx

from tests.fakes.botapi.server import Server

EMULATOR = os.environ.get("BOTAPI_EMULATOR")
DOCUMENTED = {
    "getMe": "200 is_bot",
    "first poll": "200 1 update",
    "second poll": "200 1 update",
    "poll with a higher offset": "200 0 updates",
    "message": "200 seconds from",
    "4,097 characters": "400 ok=False",
    "no text": "400 ok=False",
    "open markup": "400 ok=False",
    "a method of nobody": "404 ok=False",
    "deletion of nothing": "400 ok=False",
}


async def _differences(address: str, chat: int) -> dict[str, str]:
    """What the client found, where it is not what the pages say."""
    found = {}
    async with httpx.AsyncClient(base_url=address, timeout=10, verify=False, trust_env=False) as client:
        me = await client.post("getMe")
        found["getMe"] = f"{me.status_code} {'is_bot' if me.json()['result'].get('is_bot') else 'no is_bot'}"
        number = 0
        for name in ("first poll", "second poll", "poll with a higher offset"):
            updates = await client.post("getUpdates", json={"offset": number + 1} if "higher" in name else {})
            result = updates.json()["result"]
            number = result[0]["update_id"] if result else number
            found[name] = f"{updates.status_code} {len(result)} update{'s' * (len(result) != 1)}"
        sent = await client.post("sendMessage", json={"chat_id": chat, "text": "hi"})
        message = sent.json()["result"]
        unit = "seconds" if message["date"] < 10**11 else "milliseconds"
        found["message"] = f"{sent.status_code} {unit} {'from' if 'from' in message else 'nobody'}"
        wrong: dict[str, tuple[str, dict[str, object]]] = {
            "4,097 characters": ("sendMessage", {"chat_id": chat, "text": "x" * 4097}),
            "no text": ("sendMessage", {"chat_id": chat, "text": ""}),
            "open markup": ("sendMessage", {"chat_id": chat, "text": "*x", "parse_mode": "MarkdownV2"}),
            "a method of nobody": ("sendTelepathy", {}),
            "deletion of nothing": ("deleteMessage", {"chat_id": chat, "message_id": 999}),
        }
        for name, (method, params) in wrong.items():
            answer = await client.post(method, json=params)
            found[name] = f"{answer.status_code} ok={answer.json().get('ok')}"
    return {name: words for name, words in found.items() if words != DOCUMENTED[name]}


async def test_our_server_answers_as_the_pages_say() -> None:
    async with Server() as server:
        chat = server.private(server.user("Ada"))
        chat.say("hello")
        assert await _differences(f"{server.base_url}{server.bot.token}/", chat.id) == {}


if EMULATOR:

    async def test_the_emulator_differs_where_the_docstring_says() -> None:
        agreed = {"first poll", "poll with a higher offset"}
        assert set(await _differences(EMULATOR or "", 1)) == set(DOCUMENTED) - agreed
