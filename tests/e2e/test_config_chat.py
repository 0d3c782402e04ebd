"""`,config`: an owner changes settings of a running bot from a direct chat on Telegram."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.e2e.daemon import configured
from tests.e2e.test_buttons import said
from tests.e2e.test_reload import facts, serving
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User


async def _ask(server: Server, room: Gathering, line: str, by: User | None = None) -> str:
    before = len(said(room))
    room.say(line, by)
    await server.until(lambda: len(said(room)) > before, 20)
    return str(said(room)[-1]["text"])


def _file(home: Path) -> dict[str, dict[str, object]]:
    return tomllib.loads((home / "config.toml").read_text())


async def test_an_owner_changes_settings_in_a_direct_chat(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        configured(home, server, {}, owners=[ada.id], members=[bob.id], debounce=0, live=False)
        token = str(_file(home)["channels"]["telegram"]["token"])  # type: ignore[index]
        async with serving(home, server):
            alone, club = server.private(ada), server.supergroup("Club", [ada, bob])
            await server.until(lambda: said(club), 20)
            listed = await _ask(server, alone, "/config")
            assert "model.name = scripted" in listed
            assert "channels.telegram.token = [secret]" in listed
            assert token not in listed

            changed = await _ask(server, alone, "/config_set approvals.hours 3")
            assert changed == "In the file now: approvals.hours = 3.0\nApplied: approvals.hours."
            assert "approvals.hours = 3" in await _ask(server, alone, "/config_get approvals.hours")
            later = await _ask(server, alone, "/config_set log.format json")
            assert later.endswith("Takes effect when I am started again: log.format."), later
            back = await _ask(server, alone, "/config_unset approvals.hours")
            assert "Before: approvals.hours = 3" in back
            assert "approvals" not in _file(home) or not _file(home)["approvals"]
            introduced = len(server.calls("getMe"))
            own = await _ask(server, alone, "/config_set channels.telegram.edit_interval 0.7")
            assert "Applied: channels.telegram.edit_interval." in own
            assert len(server.calls("getMe")) > introduced, "the channel on which it was asked was restarted"

            before = (home / "config.toml").read_bytes()
            assert "is not a setting" in await _ask(server, alone, "/config_set approvals.hour 3")
            assert "Nothing was changed" in await _ask(server, alone, "/config_set approvals.hours soon")
            assert "bubbot config set channels.telegram.token -" in await _ask(
                server, alone, "/config_set channels.telegram.token 123:x"
            )
            assert "is a secret" in await _ask(server, alone, "/config_unset channels.telegram.token")
            assert "direct chat" in await _ask(server, club, "/config@bubbot_bot", ada)
            assert "owner" in await _ask(server, server.private(bob), "/config_set approvals.hours 3")
            assert (home / "config.toml").read_bytes() == before
        loaded = [
            fact["data"] for fact in await facts(home) if fact["name"] == "config/loaded" and "by" in fact["data"]
        ]
        assert {fact["by"] for fact in loaded} == {f"telegram:{ada.id}"}
        assert (loaded[0]["how"], *loaded[0]["changed"]) == ("chat", "approvals.hours")
