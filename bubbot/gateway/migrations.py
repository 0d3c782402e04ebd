"""Chats that moved: the session keeps its first chat id, messages go to the chat's current id."""

from __future__ import annotations

from collections.abc import Mapping


class ChatMigrations:
    """The chats that moved; `current_ids` maps the first id of each to its current id."""

    def __init__(self, current_ids: Mapping[str, str] | None = None) -> None:
        self._current = dict(current_ids or {})

    def add(self, chat: str, to: str) -> None:
        """Record that a chat continues under another id."""
        home = self.home(chat)
        if home != to:
            self._current[home] = to

    def current(self, chat: str) -> str:
        """Return the chat id to which messages for a chat go."""
        return self._current.get(chat, chat)

    def home(self, chat: str) -> str:
        """Return the chat id under which a chat's session began."""
        return next((old for old, new in self._current.items() if new == chat), chat)
