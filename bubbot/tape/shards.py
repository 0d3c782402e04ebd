"""Shards of system tapes: the facts about one chat are together, and different chats do not wait for one tape.

A store says into how many shards it spreads them, as `tape_shards`, which never changes: a redelivery has to meet its key
in the same shard. A store that does not say so has one, and the tape itself is it.
"""

from __future__ import annotations

from hashlib import md5


def count_shards(store: object) -> int:
    """Return the number of shards of a system tape in this store."""
    shards: int = getattr(store, "tape_shards", 1)  # `isinstance` is slow for a protocol, and every message asks
    return shards


def shard_tape(name: str, session: str, shards: int = 1) -> str:
    """Return the tape with the facts of a system tape about a session: that of its chat, for all its threads.

    Args:
        name: the system tape; facts about no session stay on it.
        session: the session id; empty for none.
        shards: see `count_shards`.
    """
    if shards == 1 or not session:
        return name
    chat = ":".join(session.split(":", 2)[:2])
    digest = md5(chat.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return f"{name}/{int.from_bytes(digest[:8]) % shards}"


def shard_tapes(name: str, shards: int = 1) -> tuple[str, ...]:
    """Return all tapes of a system tape: the tape itself, and its shards if there are several."""
    return (name,) if shards == 1 else (name, *(f"{name}/{number}" for number in range(shards)))
