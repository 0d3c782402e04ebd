"""What has to be true after every schedule, of what people see and of the tapes."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from bubbot.gateway.outbound import part_key
from bubbot.ports.outbox import intent_from
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, thaw
from bubbot.tape.query import TapeQuery
from tests.simulation.platform import TOKEN, Platform, Said
from tests.turns import CHANNEL, Bench

INBOX, OUTBOX, ACCESS = f"bubbot/inbox/{CHANNEL}", f"bubbot/outbox/{CHANNEL}", "bubbot/access"
ANSWER = re.compile(r"answers ((?:#m\d+# ?)+); seen ((?:#m\d+# ?)+)")
CARD = re.compile(r"Approval ([2-9A-Z]{5})")


@dataclass
class Facts:
    """What the tapes hold at the end, by tape."""

    tapes: dict[str, tuple[TapeEntry, ...]]
    done: dict[tuple[str, int], list[JsonObject]] = field(default_factory=dict)
    outcomes: dict[str, JsonObject] = field(default_factory=dict)
    """How the message with this mark was settled."""

    def named(self, prefix: str, *names: str) -> list[tuple[str, TapeEntry]]:
        """The events of these names, or all entries, on a tape and its shards."""
        return [
            (tape, entry)
            for tape, entries in self.tapes.items()
            if tape == prefix or tape.startswith(f"{prefix}/")
            for entry in entries
            if entry.name in names or not names
        ]


async def read_facts(store: InMemoryStore) -> Facts:
    """Read everything."""
    names = [summary.name for summary in await store.tapes()]
    facts = Facts(dict(zip(names, await store.fetch([TapeQuery(name) for name in names]), strict=True)))
    for tape, entry in facts.named(INBOX, "inbox/done"):
        for one in entry.payload["data"]["inbounds"]:
            facts.done.setdefault((tape, one), []).append(entry.payload["data"])
    for tape, entry in _accepted(facts):
        for data in facts.done.get((tape, entry.id), ()):
            facts.outcomes[entry.key or ""] = data
    return facts


def _accepted(facts: Facts) -> list[tuple[str, TapeEntry]]:
    """What was accepted. An erased entry has its key, but no name."""
    return [
        (tape, entry)
        for tape, entry in facts.named(INBOX)
        if entry.name in ("inbox/received", "inbox/changed") or (entry.erased and entry.key)
    ]


async def check(platform: Platform, bench: Bench, store: InMemoryStore) -> None:
    """Raise `AssertionError` if something does not hold."""
    assert await bench.inbox.open_inbounds() == (), "something accepted waits for ever"
    assert await bench.inbox.open_changes() == (), "a change waits for ever"
    assert await bench.outbox.pending() == (), "an answer waits for ever"
    assert await store.forks() == [], "a fork stays open"
    facts = await read_facts(store)
    check_tapes(facts)
    check_settled(platform, facts)
    check_answered(platform, facts)
    check_posted_once(platform, facts)
    check_acts(platform)
    check_chats(platform)
    check_windows(platform, facts)
    check_erased(platform, facts)
    check_cards(platform, facts)


def check_tapes(facts: Facts) -> None:
    """The laws of every tape: T2, T5, T12, T14."""
    for tape, entries in facts.tapes.items():
        assert [entry.id for entry in entries] == list(range(1, len(entries) + 1)), f"{tape}: ids with gaps"
        keys = [entry.key for entry in entries if entry.key]
        assert len(keys) == len(set(keys)), f"{tape}: a key stands twice"
        live = [entry for entry in entries if not entry.erased]
        ends = {e.meta["turn"]: e.payload["data"].get("status") for e in live if e.name == "turn/end"}
        made = [e for e in live if e.kind == Kind.TOOL_CALL and ends.get(e.meta["turn"]) != "stopped"]
        calls = Counter(call["id"] for e in made for call in e.payload["calls"])
        results = Counter(r["tool_call_id"] for e in live if e.kind == Kind.TOOL_RESULT for r in e.payload["results"])
        assert not calls - results, f"{tape}: calls without results: {calls - results}"
        begun = Counter(e.meta["turn"] for e in live if e.name == "turn/start")
        ended = Counter(e.meta["turn"] for e in live if e.name in ("turn/end", "turn/interrupted"))
        assert begun == ended, f"{tape}: turns without an end: {begun - ended}"
        said = [entry.meta["inbound"] for entry in live if entry.kind == Kind.MESSAGE and "inbound" in entry.meta]
        assert len(said) == len(set(said)), f"{tape}: a message is on the tape twice"
        assert [number for _, number in said] == sorted(number for _, number in said), f"{tape}: out of order"


def check_settled(platform: Platform, facts: Facts) -> None:
    """All that the platform handed in was accepted, and is settled once."""
    owed = {(tape, entry.id): entry for tape, entry in _accepted(facts)}
    lost = platform.said.keys() - {entry.key for entry in owed.values()}
    assert not lost, f"acknowledged and never accepted: {sorted(lost)}"
    for place, entry in owed.items():
        times = len(facts.done.get(place, ()))
        if not times and entry.erased and entry.key and entry.key.startswith("press:"):
            continue  # a press that decides at once owes nothing more
        assert times == 1, f"{entry.key} ({entry.name}, erased: {entry.erased}) is settled {times} times"
    assert facts.done.keys() <= owed.keys(), "settled without having come"


def check_answered(platform: Platform, facts: Facts) -> None:
    """Each message has an answer that people saw, or a decision that they know of."""
    intents: dict[str, list[tuple[str, TapeEntry]]] = {}
    for tape, entry in facts.named(OUTBOX, "outbox/intent"):
        if not entry.erased:
            intents.setdefault(entry.payload["data"]["turn"], []).append((tape, entry))
    arrived = {(tape, entry.payload["data"]["intent"]) for tape, entry in facts.named(OUTBOX, "outbox/receipt")}
    for said in platform.said.values():
        outcome, was_erased = facts.outcomes[said.token], bool(_resets_after(platform, facts, said, erase=True))
        match outcome["outcome"]:
            case "withdrawn":
                assert said.is_deleted, f"{said.token} was dropped as deleted, and was not"
            case "stopped" | "silent":
                stops = [one for one in _of_chat(platform, said) if one.inbound.text == ",stop"]
                assert stops, f"{said.token} has no answer, and nobody stopped it"
            case "dropped" | "overtook" | "erased":
                pass
            case "answered" | "failed":
                if was_erased:
                    continue
                own = [place for turn, places in intents.items() if turn == outcome["turn"] for place in places]
                assert own, f"{said.token} is settled as {outcome['outcome']} without a message"
                assert any((tape, entry.id) in arrived for tape, entry in own), f"the answer to {said.token} never went"
                if outcome["outcome"] == "answered" and not said.inbound.text.startswith(","):
                    assert any(said.token in fresh for fresh, _ in _answers(platform)), f"nobody read of {said.token}"
            case other:
                raise AssertionError(f"{said.token} is settled as {other}")


def check_posted_once(platform: Platform, facts: Facts) -> None:
    """No part is posted twice but what the tape calls a possible repeat, no message has two answers, no half one stays."""
    may_repeat: dict[str, bool] = {}
    marked = {
        (tape, entry.payload["data"]["intent"], entry.payload["data"]["part"])
        for tape, entry in facts.named(OUTBOX, "outbox/receipt")
        if entry.payload["data"].get("resumed") or entry.payload["data"].get("missing")
    }
    for tape, entry in facts.named(OUTBOX, "outbox/intent"):
        if not entry.erased:
            message = intent_from(entry)
            for index in range(len(message.parts)):
                may_repeat[part_key(message, index)] = (tape, entry.id, index) in marked
    for key, times in Counter(post.key for post in platform.posts.values() if post.key.startswith("p")).items():
        if times > 1:
            assert not platform.is_searchable, f"{key} was posted {times} times, and could be found"
            assert may_repeat.get(key, True), f"{key} was posted {times} times, and the tape does not say so"
    replies: dict[str, set[str]] = {}
    for post in platform.posts.values():
        if post.reply_to and post.key.startswith("p"):
            replies.setdefault(post.reply_to, set()).add(post.key)
    twice = {token: keys for token, keys in replies.items() if len(keys) > 1}
    assert not twice, f"two answers: {twice}"
    # Where nothing can be searched, an answer begins as a bare sign, which may stay if its receipt was lost.
    ends = "…" if platform.is_searchable else " …"
    half = [post for post in platform.posts.values() if post.text.endswith(ends)]
    assert not half, f"half an answer stays: {half}"


def check_acts(platform: Platform) -> None:
    """Nothing happens outside without a yes, and once for each yes."""
    for token, times in Counter(platform.acts).items():
        allowed = len(platform.yes.get(token, ()))
        assert times <= allowed, f"{token} was done {times} times with {allowed} yes"


def check_chats(platform: Platform) -> None:
    """What is said in one chat appears in no other (P1)."""
    for post in platform.posts.values():
        for token in TOKEN.findall(" ".join(post.texts)):
            chat = platform.said[token].inbound.chat
            assert chat == post.chat, f"{token} of chat {chat} was shown in chat {post.chat}"


def check_windows(platform: Platform, facts: Facts) -> None:
    """After a new beginning the model is shown nothing of before (T10)."""
    for fresh, seen in _answers(platform):
        said = platform.said[fresh[-1]]
        for reset in _resets(platform, facts, said.inbound.chat):
            if reset.place < said.place:
                shown = [platform.said[token] for token in seen]
                # What is edited, or goes on after a yes, comes into the new window.
                older = [one for one in shown if one.place < reset.place]
                old = [one.token for one in older if not one.is_edited and one.token not in platform.yes]
                assert not old, f"{said.token} was answered with {old} of before {reset.inbound.text} {reset.token}"


def check_erased(platform: Platform, facts: Facts) -> None:
    """What was erased is on no tape (T17), but in changes that came after the erasure was asked for."""
    asked = {entry.key: (tape, entry.id) for tape, entry in _accepted(facts)}
    for tape, entries in facts.tapes.items():
        for entry in entries:
            for token in _tokens(entry):
                for reset in _resets_after(platform, facts, platform.said[token], erase=True):
                    place, number = asked[reset.token]
                    came_later = place == tape and entry.id > number
                    assert came_later, f"{token} is still on {tape} after {reset.token} {reset.inbound.text}"


def check_cards(platform: Platform, facts: Facts) -> None:
    """A card says that it was answered only if it was."""
    decided = {
        entry.payload["data"]["id"]: entry.payload["data"]["verdict"]
        for _, entry in facts.named(ACCESS, "approval.decided")
        if not entry.erased
    }
    for post in platform.posts.values():
        card = CARD.search(post.text.replace("*", ""))
        if card and "✓" in post.text and not _resets(platform, facts, post.chat):
            assert card[1] in decided, f"the card {card[1]} says that it was answered: {post.text[-60:]!r}"


def _answers(platform: Platform) -> list[tuple[list[str], list[str]]]:
    """What each answer answers, and what the model was shown for it."""
    found = [ANSWER.match(text) for post in platform.posts.values() for text in post.texts]
    return [(TOKEN.findall(match[1]), TOKEN.findall(match[2])) for match in found if match]


def _of_chat(platform: Platform, said: Said) -> list[Said]:
    return [one for one in platform.said.values() if one.inbound.chat == said.inbound.chat]


def _resets(platform: Platform, facts: Facts, chat: str, *, erase: bool = False) -> list[Said]:
    """The commands of a chat that began anew, or erased."""
    return [
        said
        for said in platform.said.values()
        if said.inbound.chat == chat
        and said.inbound.text.startswith(",reset erase" if erase else (",new", ",reset"))
        and _began_anew(facts, facts.outcomes.get(said.token, {}))
    ]


def _began_anew(facts: Facts, outcome: JsonObject) -> bool:
    """Whether a reset took place. One that was stopped did if it had begun: its turn has the first entry of a tape."""
    if outcome.get("outcome") != "stopped":
        return outcome.get("outcome") == "answered"
    begins = [entries[0] for entries in facts.tapes.values() if entries and not entries[0].erased]
    return any(first.meta.get("turn") == outcome["turn"] and first.name == "turn/start" for first in begins)


def _resets_after(platform: Platform, facts: Facts, said: Said, *, erase: bool) -> list[Said]:
    return [one for one in _resets(platform, facts, said.inbound.chat, erase=erase) if one.place > said.place]


def _tokens(entry: TapeEntry) -> list[str]:
    if entry.erased or entry.name == "approval.granted":  # a standing rule of an owner is of no chat
        return []
    content: Any = [thaw(entry.payload), thaw(entry.meta)]
    return TOKEN.findall(json.dumps(content))
