"""An owner changes settings from a chat: checked, written, applied, and told what takes a restart."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.daemon import configured, running
from tests.e2e.test_telegram import texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User


async def _ask(server: Server, room: Gathering, text: str, by: User | None = None) -> str:
    before = len(texts(room))
    room.say(text, by)
    await server.until(lambda: len(texts(room)) > before)
    return texts(room)[-1]


async def test_an_owner_reads_and_changes_settings_in_a_direct_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, privacy=False) as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        configured(home, server, live=False, owners=[ada.id], members=[bob.id])
        config = home / "config.toml"
        hers, his = server.private(ada), server.private(bob)
        family = server.supergroup("Family", [ada, bob])
        async with running(home) as daemon:
            listed = await _ask(server, hers, "/config")
            assert "model.name = scripted" in listed
            assert "channels.telegram.token = [secret]" in listed
            assert server.bot.token not in listed
            assert await _ask(server, hers, "/config_get bot.name") == "bot.name = bubbot  # default"

            begun = config.read_text()
            assert "must be a whole number from 1 to 1000" in await _ask(
                server, hers, "/config_set bot.turns_at_once 0"
            )
            assert "is not a setting" in await _ask(server, hers, "/config_set bot.nmae Rosi")
            assert "is a secret" in await _ask(server, hers, "/config_set channels.telegram.token 1:abc")
            refused = await _ask(server, family, "/config_set@bubbot_bot bot.name Rosi", ada)
            assert refused.startswith("/config_set works in a direct chat")
            assert "bot.name" not in await _ask(server, his, "/config_set bot.name Rosi")
            # A job is nobody who asks in person.
            await _ask(
                server, hers, '/schedule name=later when="every day at 9:00" command=",config.set bot.name Rosi"'
            )
            hers.say("/schedule_run later")
            await server.until(lambda: "works in a direct chat" in texts(hers)[-1])
            assert config.read_text() == begun

            done = await _ask(server, hers, "/config_set bot.name Rosi's helper")
            assert done == "bot.name = Rosi's helper\nApplied: bot.name."
            assert 'name = "Rosi\'s helper"' in config.read_text()
            later = await _ask(server, hers, "/config_set bot.timezone Europe/Berlin")
            assert later.splitlines()[-1] == "Takes effect at the next start: bot.timezone."
            # The channel of this very chat is restarted, and still answers.
            restarted = await _ask(server, hers, "/config_set channels.telegram.live true")
            assert restarted.splitlines()[-1] == "Restarted channels: telegram."
            undone = await _ask(server, hers, "/config_unset bot.name")
            assert undone.startswith(
                "bot.name = bubbot  # default\nBefore: bot.name = Rosi's helper\nApplied: bot.name."
            )
            assert "does not set" in await _ask(server, hers, "/config_unset bot.name")
        assert "action=turn.failed" not in daemon.errors
