"""Chats that moved: the session keeps its first chat id; messages go to the current one."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class ChatMigrations:
    """The chats that moved; `current_ids` returns current ids by earlier ones."""

    def __init__(self, current_ids: Callable[[], Mapping[str, str]] = dict) -> None:
        self._current_ids = current_ids

    def current(self, chat: str) -> str:
        """Return the chat id to send messages to."""
        return self._current_ids().get(chat, chat)

    def home(self, chat: str) -> str:
        """Return the chat id under which a chat's session began."""
        return next((old for old, new in self._current_ids().items() if new == chat), chat)
