"""Reactions to answers on the platforms, as judgements of their people."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.bot import entries
from tests.e2e.daemon import configured, running
from tests.e2e.test_telegram import said, texts
from tests.fakes.botapi.server import Server

SCRIPT = {"default": [{"text": "Nine o'clock."}]}


async def test_a_reaction_on_telegram_judges_the_answer_until_it_is_taken_back(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        configured(home, server, SCRIPT, owners=[ada.id])
        async with running(home):
            room = server.private(ada)
            room.say("when does the train leave?")
            await server.until(lambda: texts(room) == ["Nine o'clock."], 60)
            room.react(said(room)[0], "👍")
            room.say("/labels")
            await server.until(lambda: f"quality 1 👍, by telegram:{ada.id}" in texts(room)[-1], 60)
            assert "replaced" not in texts(room)[-1]
            room.react(said(room)[0], None)
            room.say("/labels")
            await server.until(lambda: len(texts(room)) == 3, 60)
            assert f"quality 1 👍, by telegram:{ada.id} – replaced by #" in texts(room)[-1]
        names = [entry["payload"].get("name") for entry in await asyncio.to_thread(entries, home, f"telegram:{ada.id}")]  # type: ignore[attr-defined]
        assert (names.count("reaction"), names.count("judge/labelled")) == (2, 0)
