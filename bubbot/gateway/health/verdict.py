"""One line for the operator that says if the bot answers."""

from __future__ import annotations

from bubbot.gateway.health.snapshot import HealthSnapshot
from bubbot.texts import Texts


def format_verdict(snapshot: HealthSnapshot, texts: Texts) -> str:
    """Return one line that says if a running bot answers, or why not, by its newest turns, channels and features."""
    if snapshot.quarantine is not None:
        return texts.say("verdict_quarantine")
    deaf = [channel.name for channel in snapshot.channels if not channel.is_receiving]
    causes = [
        *([texts.say("verdict_readonly" if snapshot.readonly else "verdict_full")] if snapshot.full else []),
        *([texts.say("verdict_replaced")] if snapshot.replaced else []),
        *([texts.say("verdict_deaf", channels=", ".join(deaf))] if deaf else []),
        *(report.trouble for report in snapshot.reports if report.trouble),
    ]
    failed, ended = snapshot.failed_turns, len(snapshot.outcomes)
    turns = texts.say("verdict_failed", failed=failed, ended=ended) if ended > 1 else texts.say("verdict_failed_once")
    is_deaf = bool(deaf) and len(deaf) == len(snapshot.channels)
    if not snapshot.can_write or is_deaf or (failed and causes):
        every = [*([turns] if failed else []), *causes]
        return texts.say("verdict_not_answering", causes=texts.say("verdict_separator").join(every))
    if causes:
        return texts.say("verdict_in_trouble", causes=texts.say("verdict_separator").join(causes))
    if failed:
        return texts.say("verdict_but", turns=turns)
    return texts.say("verdict_answering" if ended else "verdict_ready")
