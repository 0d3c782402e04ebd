"""Two people plan a trip in their own chats on Telegram: each chat is shown a view of the other one, until it is taken back."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.bot import run
from tests.e2e.daemon import Daemon, configured, running
from tests.e2e.test_telegram import texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server


async def _ask(server: Server, room: Gathering, text: str) -> str:
    before = len(texts(room))
    room.say(text)
    await server.until(lambda: len(texts(room)) > before)
    return texts(room)[-1]


async def _read_request(server: Server, room: Gathering, daemon: Daemon) -> str:
    """Return the last request of a chat; it takes several messages."""
    before = len(texts(room))
    await _ask(server, room, "/why yes")
    await daemon.quiet(server)
    return "".join(texts(room)[before:])


async def test_two_chats_view_each_other_until_an_owner_takes_it_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, privacy=False) as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        script = {"default": [{"text": "Noted."}]}
        configured(home, server, script, live=False, owners=[ada.id], members=[bob.id])
        hers, his = server.private(ada), server.private(bob)
        ada_chat, bob_chat = f"telegram:{ada.id}", f"telegram:{bob.id}"
        async with running(home) as daemon:
            await _ask(server, hers, "We leave on Friday at nine.")
            await _ask(server, his, "I bring the map.")
            refused = await _ask(server, hers, f"/view_add {bob_chat}")
            assert f"/grant {bob_chat} to {ada_chat}" in refused
            for source, reader in ((bob_chat, ada_chat), (ada_chat, bob_chat)):
                await _ask(server, hers, f"/grant {source} to {reader}")
            assert "is shown what goes on in" in await _ask(server, hers, f"/view_add {bob_chat}")
            assert bob_chat in await _ask(server, hers, f"/view_add {ada_chat} chat={bob_chat}")
            assert ada_chat in await _ask(server, his, "/views")
            assert "admin" in await _ask(server, his, f"/view_remove {ada_chat}")

            await _ask(server, hers, "What does Bob bring?")
            shown = await _read_request(server, hers, daemon)
            assert "Bob" in shown
            assert "I bring the map." in shown
            assert f"{bob_chat}, tape " in await _ask(server, hers, "/why")
            await _ask(server, his, "When do we leave?")
            shown = await _read_request(server, his, daemon)
            assert "We leave on Friday at nine." in shown
            assert shown.count("I bring the map.") == 1  # said here, and not quoted back from there

            await _ask(server, hers, f"/grant_revoke {bob_chat} to {ada_chat}")
            await _ask(server, his, "I bring boots, too.")
            await _ask(server, hers, "And what else?")
            shown = await _read_request(server, hers, daemon)
            assert "may not be read here any more" in shown
            assert [word for word in ("map", "boots") if word in shown] == []
            assert "nothing more of" in await _ask(server, hers, f"/view_remove {ada_chat} chat={bob_chat}")
            await _ask(server, hers, "We leave on Saturday.")
            await _ask(server, his, "When?")
            shown = await _read_request(server, his, daemon)
            assert [day for day in ("Friday", "Saturday") if day in shown] == []
        assert "action=turn.failed" not in daemon.errors


async def test_a_shell_adds_a_view_to_a_running_bot_and_a_reload_makes_it_smaller(tmp_path: Path) -> None:
    home = tmp_path / "home"

    async def shell(*arguments: str) -> None:
        ran = await asyncio.to_thread(run, home, *arguments)
        assert ran.returncode == 0, ran.stderr

    async with Server(limits=None, privacy=False) as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        script = {"default": [{"text": "Noted."}]}
        configured(home, server, script, live=False, owners=[ada.id], members=[bob.id])
        hers, his = server.private(ada), server.private(bob)
        ada_chat, bob_chat = f"telegram:{ada.id}", f"telegram:{bob.id}"
        async with running(home) as daemon:
            await _ask(server, his, "I bring the map.")
            await _ask(server, hers, "Hello.")
            await shell("access", "grant-reading", bob_chat, ada_chat)
            await shell("view", "add", ada_chat, bob_chat)
            await _ask(server, hers, "What does Bob bring?")
            assert "I bring the map." in await _read_request(server, hers, daemon)
            config = (home / "config.toml").read_text()
            (home / "config.toml").write_text(f"{config}[views]\ntokens = 400\n")
            await shell("reload")
            for number in range(2):
                await _ask(server, his, f"Long {number}: {'word ' * 190}")
            await _ask(server, hers, "And now?")
            shown = await _read_request(server, hers, daemon)
            assert [number for number in range(2) if f"Long {number}" in shown] == [1]
