"""People who judge the answers of a whole bot, and shells beside it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count

from bubbot.features.judge.labels import LabelsView
from bubbot.features.judge.settings import JudgeSettings
from bubbot.ports.channel import Quote, Reaction, Sender
from bubbot.ports.judgements import Label
from bubbot.tape.entry import TapeEntry, timestamp
from tests.family import GROUP, MEMBER, NAMES, Family
from tests.turns import says

ANSWER = says("Nine o'clock.")
_KEYS = count(1)


async def react(bench: Family, message: str, *emojis: str, sender: str = MEMBER, chat: str = GROUP) -> None:
    """Let somebody show these reactions below a message, and no others."""
    now, who = timestamp(datetime.now(UTC)), Sender(sender, NAMES.get(sender, ""))
    key = f"react{next(_KEYS)}"
    await bench.daemon.bot.channel_runtimes["tg"].gate.receive(Reaction("tg", key, chat, message, who, emojis, now))
    await bench.quiet()


def sent(bench: Family, text: str) -> str:
    """Return the platform's id of the newest message of the bot with this text."""
    return f"p{max(place for place, part in enumerate(bench.channel.sent, 1) if text in part.text)}"


def quote_of(bench: Family, text: str) -> Quote:
    """Return what somebody quotes who replies to the newest message of the bot with this text."""
    message = sent(bench, text)
    return Quote(message, Sender("bot", "Bot"), bench.channel.sent[int(message[1:]) - 1].text, own=True)


async def labels(bench: Family, chat: str = GROUP, settings: JudgeSettings | None = None) -> Sequence[Label]:
    """Return the judgements of a chat, newest first."""
    section, tape = settings or JudgeSettings(), bench.daemon.bot.tape(f"tg:{chat}")
    return await tape.read(LabelsView.of_tape(tape, section.name, section.reactions))


def told(found: Sequence[Label]) -> list[tuple[float | None, str, bool]]:
    """Return the score of each judgement, who judges, and if it is in force."""
    return [(each.judgement.score, each.judgement.annotator.id, each.is_in_force) for each in found]


def answers_of(entries: Sequence[TapeEntry]) -> list[int]:
    """Return the entries of the answers, oldest first."""
    return [entry.id for entry in entries if entry.payload.get("role") == "assistant"]
