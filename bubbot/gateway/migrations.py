"""Chats that moved: the session keeps the id it began with, messages go to the id the platform uses now."""

from __future__ import annotations

from collections.abc import Mapping


class ChatMigrations:
    """`known`: from the id of each chat that moved to the one it has now."""

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self._now = dict(known or {})

    def add(self, chat: str, to: str) -> None:
        """A chat goes on under another id."""
        home = self.home(chat)
        if home != to:
            self._now[home] = to

    def now(self, chat: str) -> str:
        """Where messages for a chat go."""
        return self._now.get(chat, chat)

    def home(self, chat: str) -> str:
        """The id under which a chat's session began."""
        return next((old for old, new in self._now.items() if new == chat), chat)
