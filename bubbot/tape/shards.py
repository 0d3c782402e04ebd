"""Shards of system tapes: facts about one chat stay together, and different chats do not wait for one tape.

A store's `tape_shards` is the number of shards. It never changes: a redelivery must meet its key in the same shard. A
store without it has one shard, the tape itself.
"""

from __future__ import annotations

from hashlib import md5


def count_shards(store: object) -> int:
    """Return the number of shards of a system tape in this store."""
    shards: int = getattr(store, "tape_shards", 1)  # `isinstance` on a protocol is slow, and every message calls this
    return shards


def shard_tape(name: str, session: str, shards: int = 1) -> str:
    """Return the shard of a system tape with the facts about a session. All threads of a chat share one shard.

    Args:
        name: the system tape; facts about no session stay on it.
        session: the session id; empty for none.
    """
    if shards == 1 or not session:
        return name
    chat = chat_of(session)
    digest = md5(chat.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return f"{name}/{int.from_bytes(digest[:8]) % shards}"


def chat_of(session: str) -> str:
    """Return the chat of a session, `channel:chat`: what its threads share."""
    return ":".join(session.split(":", 2)[:2])


def chat_digest(chat: str) -> str:
    """Return a short digest of a chat, for notifications."""
    return md5(chat.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()


def shard_tapes(name: str, shards: int = 1) -> tuple[str, ...]:
    """Return all tapes of a system tape: the tape itself, and its shards if there are several."""
    return (name,) if shards == 1 else (name, *(f"{name}/{number}" for number in range(shards)))
