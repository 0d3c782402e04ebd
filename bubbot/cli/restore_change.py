"""The release of a home from quarantine, in this process or in the running bot.

The original bot kept running after the backup: it sent messages that are unsent in the backup, and answered unanswered
ones. So the release ends all of them by facts; nothing happens twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec import Struct

from bubbot.app.channels import STDIN
from bubbot.app.own_features import find_parts
from bubbot.arguments.fields import Args
from bubbot.errors import ConfigError
from bubbot.gateway.facts import HomeRestored
from bubbot.gateway.inbox import Inbox, inbox_tape, restart_entry
from bubbot.gateway.outbox import Outbox, abandoned_entry, live_end_entry, outbox_tape
from bubbot.gateway.quarantine import Quarantine, release_entry
from bubbot.ports.channel import APPROVAL_ORIGIN
from bubbot.ports.inbox import done_entry
from bubbot.runtime.recovery import merge_forks_of_channels
from bubbot.shell_command import Command, CommandContext, CommandResult, json_data
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fact import Cited
from bubbot.tape.store import Batch

OUTCOME = "restored"
"""The outcome of messages that were open when the backup was made."""
UNSENT = "not sent: restored"


class ReleaseHome(Args, frozen=True):
    """The arguments of a release.

    Attributes:
        deliver: keep open work open; the next run sends and answers it.
    """

    deliver: bool


class ReleaseResult(Struct, frozen=True):
    """The end of a quarantine.

    Attributes:
        delivered: open work stays open, so that the next run sends and answers it.
        unsent: messages of the bot that are not sent.
        unanswered: messages of people that get no answer.
        jobs: jobs whose time has passed.
        approvals: cards, and answers to cards, that run nothing.
    """

    delivered: bool
    unsent: int
    unanswered: int
    jobs: int
    approvals: int


@dataclass
class _ReleaseSummary:
    """The facts that end open work, and the counts.

    Attributes:
        batches: the facts by tape, for one transaction.
    """

    batches: list[Batch]
    intents: int = 0
    inbounds: int = 0
    jobs: int = 0
    approvals: int = 0

    def add(self, tape: str, facts: Sequence[TapeEntry], at: datetime) -> None:
        if facts:
            self.batches.append(
                Batch(tape, tuple(fact.with_meta(EMPTY_OBJECT, timestamp(at)) for fact in facts), if_absent=True)
            )


async def release(context: CommandContext, arguments: ReleaseHome) -> CommandResult:
    """End the quarantine and, unless `deliver` is set, all open work, in one transaction."""
    restored = await Quarantine(context.open_tape(HOME_TAPE)).current_restore()
    if restored is None:
        raise ConfigError("this home is in no quarantine: there is nothing to release")
    at, summary = context.now(), _ReleaseSummary([])
    if not arguments.deliver:
        await _end_channels(context, restored, summary, at)
        ended: dict[str, int] = {}
        for feature, end_open_work in find_parts("release", "end_open_work"):
            tape, facts, ended[feature] = await end_open_work(context, at)
            summary.add(tape, facts, at)
        summary.jobs, summary.approvals = ended.get("schedule", 0), ended.get("approvals", 0)
        await _end_approved(context, summary, at)
    fact = release_entry(
        deliver=arguments.deliver,
        intents=summary.intents,
        inbounds=summary.inbounds,
        jobs=summary.jobs,
        approvals=summary.approvals,
    )
    summary.add(HOME_TAPE, [fact], at)
    await context.store.append(summary.batches)
    result = ReleaseResult(arguments.deliver, summary.intents, summary.inbounds, summary.jobs, summary.approvals)
    return CommandResult(_describe(context, arguments, summary), data=json_data(result))


async def _end_channels(
    context: CommandContext, restored: Cited[HomeRestored], summary: _ReleaseSummary, at: datetime
) -> None:
    """End the open work of every channel except the terminal; merge interrupted turns without repeating them."""
    names = {tape.name for tape in await context.store.tapes()}
    channels = sorted({name.split("/")[2] for name in names if name.startswith(("bubbot/inbox/", "bubbot/outbox/"))})
    inboxes = {name: Inbox(context.open_tape(inbox_tape(name)), context.new_id) for name in channels if name != STDIN}
    await merge_forks_of_channels(context.store, inboxes, context.open_tape)
    for name, inbox in inboxes.items():
        unanswered = await inbox.open_inbounds()
        for tape, ids in _by_tape((inbox.tape_of(one.inbound.session), one.id) for one in unanswered).items():
            summary.add(tape, [done_entry(ids, outcome=OUTCOME)], at)
        summary.add(inbox.name, [restart_entry(timestamp(at), restored.id)], at)
        outbox = Outbox(context.open_tape(outbox_tape(name)))
        unsent, live = await outbox.pending(), await outbox.unanswered_live()
        for one in unsent:
            summary.add(outbox.tape_of(one.session), [abandoned_entry(one.id, UNSENT)], at)
        for shown in live:
            summary.add(outbox.tape_of(shown.session), [live_end_entry(shown.inbound)], at)
        summary.inbounds += len(unanswered)
        summary.intents += len(unsent)


def _by_tape(inbounds: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    ids: dict[str, list[int]] = {}
    for tape, inbound in inbounds:
        ids.setdefault(tape, []).append(inbound)
    return ids


async def _end_approved(context: CommandContext, summary: _ReleaseSummary, at: datetime) -> None:
    """End the turns in the terminal that an approval started."""
    inbox = Inbox(context.open_tape(inbox_tape(STDIN)), context.new_id)
    started = [one for one in await inbox.open_inbounds() if one.inbound.origin == APPROVAL_ORIGIN]
    for tape, ids in _by_tape((inbox.tape_of(one.inbound.session), one.id) for one in started).items():
        summary.add(tape, [done_entry(ids, outcome=OUTCOME)], at)
    summary.approvals += len(started)


def _describe(context: CommandContext, arguments: ReleaseHome, summary: _ReleaseSummary) -> str:
    if arguments.deliver:
        outcome = "What was left open when the backup was made is sent and answered by the next bubbot run."
    else:
        outcome = (
            f"Ended as {UNSENT!r}: {summary.intents} messages to people; ended without an answer: {summary.inbounds} "
            f"messages of theirs; jobs whose time had passed: {summary.jobs}; approvals that run nothing: "
            f"{summary.approvals}."
        )
    next_step = (
        "The bot that runs now has to be restarted to run its channels."
        if context.is_daemon
        else "bubbot run starts it."
    )
    return f"Released. {outcome}\n{next_step}\n"


RELEASE_HOME = Command(name="restore release", run=release, args=ReleaseHome, writes=True, result=ReleaseResult)
