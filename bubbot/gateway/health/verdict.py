"""Whether the bot answers, in one line for the operator."""

from __future__ import annotations

from bubbot.gateway.health.snapshot import HealthSnapshot


def format_verdict(snapshot: HealthSnapshot) -> str:
    """Say in one line whether a running bot answers, and if not, why: by its newest turns, channels and features."""
    if snapshot.quarantine is not None:
        return (
            "Not answering: in quarantine, with no channel. `bubbot restore --release`, and then a new start, end that."
        )
    deaf = [channel.name for channel in snapshot.channels if not channel.is_receiving]
    disk = (
        "the disk is read-only, and the bot waits"
        if snapshot.readonly
        else "the disk is full, and the bot waits for room"
    )
    causes = [
        *([disk] if snapshot.full else []),
        *(["its database was removed or replaced: put it back, or restart the bot"] if snapshot.replaced else []),
        *([f"nothing is received from {', '.join(deaf)}"] if deaf else []),
        *(report.trouble for report in snapshot.reports if report.trouble),
    ]
    failed, ended = snapshot.failed_turns, len(snapshot.outcomes)
    turns = f"the last {failed} of {ended} turns failed" if ended > 1 else "the last turn failed"
    is_deaf = bool(deaf) and len(deaf) == len(snapshot.channels)
    if not snapshot.can_write or is_deaf or (failed and causes):
        return f"Not answering: {'; '.join([*([turns] if failed else []), *causes])}."
    if causes:
        return f"In trouble: {'; '.join(causes)}."
    if failed:
        return f"Answering, but {turns}: the log tells why."
    return "Answering: no turn failed lately." if ended else "Ready: no turn since the start."
