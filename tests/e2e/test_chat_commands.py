"""Commands as people meet them on Telegram and Discord: menus, help by role, letting somebody in from the chat."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path

from tests.e2e.bot import run
from tests.e2e.daemon import configured, running
from tests.e2e.test_telegram import SCRIPT, texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User


async def answer(server: Server, chat: Gathering, text: str, who: User | None = None) -> str:
    """What the bot answers to a message."""
    before = len(texts(chat))
    chat.say(text, who)
    await server.until(lambda: len(texts(chat)) > before)
    return texts(chat)[before]


async def read_help(server: Server, chat: Gathering) -> str:
    """Return the whole help, which takes more than one message."""
    before = len(texts(chat))
    chat.say("/help all")
    await server.until(lambda: any("/help NAME tells more" in text for text in texts(chat)[before:]))
    return "\n".join(texts(chat)[before:])


async def test_commands_and_rights_of_people_on_telegram(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, conflict_pause=0.1, privacy=False) as server:
        ada, bob, eve = server.user("Ada"), server.user("Bob"), server.user("Eve")
        configured(home, server, SCRIPT, owners=[ada.id], debounce=0.0, stale_after=3600)
        hers, his, new = server.private(ada), server.private(bob), server.private(eve)
        family = server.supergroup("Family", [ada, bob])
        async with running(home) as daemon:
            owner = await read_help(server, hers)
            assert "/memory_save – Replace what I remember" in owner
            assert "/access_approve – Let the person with a code in" in owner
            assert "/quit" not in owner
            assert not re.search(r"(?m)^,|  ", owner)
            assert owner.index("Talk\n") < owner.index("Remember\n") < owner.index("Times\n") < owner.index("Look back")
            assert owner.index("Settings\n") < owner.index("For admins\n") < owner.index("/help NAME tells more")
            assert (await answer(server, hers, "/hepl")) == "There is no command /hepl. Did you mean /help?"
            assert (await answer(server, hers, "/schedule_edit")).endswith(
                "Type /schedule_edit <job> …, such as /schedule_edit a1b2 at 9:00"
            )

            timed = await answer(server, hers, "/remind every weekday at 08:00: stretch")
            assert re.search(r"^To change: /schedule_edit [0-9a-f]{6} at ", timed, re.MULTILINE)

            # A stranger gets a code, and the owner lets him in without a terminal.
            code = re.search(r"code is (\w{8})", await answer(server, his, "hello?"))
            assert code
            await server.until(lambda: "Bob" in texts(hers)[-1])  # she is asked
            assert f"{bob.id} (Bob)" in await answer(server, hers, "/access")
            done = await answer(server, hers, f"/access_approve {code[1]}")
            assert done.startswith(f"Done: {bob.id} (Bob), member on telegram.")
            await server.until(lambda: len(texts(his)) == 3)  # he is told, and answered
            member = await read_help(server, his)
            assert "/remind" in member
            assert "/access" not in member
            assert "For admins" not in member
            assert await answer(server, his, "/access") == "/access is for the admin; you are a member here."

            # Nobody gives more than they have, or guesses codes.
            code = re.search(r"code is (\w{8})", await answer(server, new, "hello?"))
            assert code
            await server.until(lambda: "Eve" in texts(hers)[-1])
            await answer(server, hers, f"/access_grant {bob.id} admin")
            refused = await answer(server, his, f"/access_approve {code[1]} owner")
            assert "not enough to decide about owner" in refused
            for _ in range(10):
                assert "no such code" in (await answer(server, his, "/access_approve AAAAAAAA")).lower()
            assert "10 codes were wrong within an hour" in await answer(server, his, f"/access_approve {code[1]}")
            assert (await answer(server, hers, f"/access_approve {code[1]}")).startswith(f"Done: {eve.id} (Eve)")
            assert "cannot talk to me" in await answer(server, hers, f"/access_revoke {eve.id}")

            # In a group these are not offered, and do not work.
            assert "/access" not in await answer(server, family, "/help@bubbot_bot", ada)
            assert "direct chat with me only" in await answer(server, family, "/access@bubbot_bot", ada)
            # Every name of a command is one there, with and without the bot's name.
            for typed in (
                "/memory_save tea",
                "/memory.save tea",
                "/schedule_list",
                "/schedule_list@bubbot_bot",
                "/session_new",
            ):
                assert "You said" not in await answer(server, family, typed, ada)
            await daemon.quiet(server)
        listed = run(home, "access", "list").stdout.decode()
        assert re.search(rf"{bob.id}\s+admin\s+granted by telegram:{ada.id}", listed)
        assert str(eve.id) not in listed
        menus = {
            (json.loads(call.params["scope"])["type"], call.params.get("language_code", "")): json.loads(
                call.params["commands"]
            )
            for call in server.calls("setMyCommands")
        }
    scopes = {scope for scope, _ in menus}
    assert len(scopes) == 3  # private chats, groups and their admins
    assert {*menus} == set(product(scopes, ("", "de", "en", "zh")))  # the bot's language, and each that there is
    names = [item["command"] for item in menus["all_private_chats", ""]]
    assert {"help", "new", "remind", "memory", "model"} <= set(names)
    assert not {"quit", "context", "usage", "access"} & set(names)
    assert all(len(menu) <= 12 for menu in menus.values())
    assert all(len(item["description"]) <= 40 for item in menus["all_private_chats", "en"])
    assert all(len(item["description"]) <= 20 for item in menus["all_private_chats", "zh"])
    assert all(len(item["description"]) <= 45 for item in menus["all_private_chats", "de"])
    assert {"command": "help", "description": "Was ich kann"} in menus["all_private_chats", "de"]
    assert "model" not in [item["command"] for item in menus["all_group_chats", ""]]
