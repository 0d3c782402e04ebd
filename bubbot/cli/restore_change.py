"""The release of a home from quarantine, in this process or in the bot that runs for the home.

The bot that the backup was made from went on for a while: it has sent what the backup holds as unsent, and answered
what it holds as unanswered. So all of that is ended, with facts, and nothing of it is done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bubbot.cli.session_names import service
from bubbot.cli.write_command import CommandContext, CommandResult
from bubbot.errors import ConfigError
from bubbot.inbox import Inbox, began_anew, done, inbox_tape
from bubbot.outbox import Outbox, ended, live_end, outbox_tape
from bubbot.quarantine import HOME_TAPE, Quarantine, released
from bubbot.runtime.recovery import recover
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.schedule.release import passed_over
from bubbot.schedule.store import ScheduleStore
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, timestamp
from bubbot.tape.store import Batch
from bubbot.views.quarantine import RestoreFact
from bubbot.wiring.app import new_id, now
from bubbot.wiring.channels import STDIN

OUTCOME = "restored"
"""What became of messages that were open when the backup was made."""
UNSENT = "not sent: restored"


@dataclass(frozen=True, slots=True)
class ReleaseHome:
    """`deliver`: what was left open stays so, and is sent and answered by the next run."""

    deliver: bool


@dataclass
class _ReleaseSummary:
    """The facts that end what was left open, and how much that was."""

    batches: list[Batch]
    intents: int = 0
    inbounds: int = 0
    jobs: int = 0

    def add(self, tape: str, facts: Sequence[TapeEntry], at: datetime) -> None:
        """Facts for a tape."""
        if facts:
            self.batches.append(
                Batch(tape, tuple(one.stamped(EMPTY_OBJECT, timestamp(at)) for one in facts), keep_first=True)
            )


async def release(desk: CommandContext, given: ReleaseHome) -> CommandResult:
    """Ends the quarantine and, where not everything is to be delivered, what was left open: in one transaction."""
    restored = await Quarantine(service(desk.store, HOME_TAPE)).standing()
    if restored is None:
        raise ConfigError("this home is in no quarantine: there is nothing to release")
    at, endings = now(), _ReleaseSummary([])
    if not given.deliver:
        await _end_channels(desk, restored, endings, at)
        await _end_firings(desk, endings, at)
    fact = released(deliver=given.deliver, intents=endings.intents, inbounds=endings.inbounds, jobs=endings.jobs)
    endings.add(HOME_TAPE, [fact], at)
    await desk.store.append(endings.batches)
    return CommandResult(_words(desk, given, endings))


async def _end_channels(desk: CommandContext, restored: RestoreFact, endings: _ReleaseSummary, at: datetime) -> None:
    """Every channel but the terminal: turns that were cut off are merged, and what they were for is not done again."""
    names = {one.name for one in await desk.store.tapes()}
    channels = sorted({name.split("/", 2)[2] for name in names if name.startswith(("bubbot/inbox/", "bubbot/outbox/"))})
    inboxes = {name: Inbox(service(desk.store, inbox_tape(name)), new_id) for name in channels if name != STDIN}
    await recover(desk.store, list(inboxes.values()), lambda name: service(desk.store, name))
    for name, inbox in inboxes.items():
        left = await inbox.open()
        facts = [done([one.id for one in left], outcome=OUTCOME)] if left else []
        endings.add(inbox.name, [*facts, began_anew(timestamp(at), restored.id)], at)
        outbox = Outbox(service(desk.store, outbox_tape(name)))
        owed, live = await outbox.open(), await outbox.unanswered_live()
        facts = [*(ended(one.id, UNSENT) for one in owed), *(live_end(one.inbound) for one in live)]
        endings.add(outbox.name, facts, at)
        endings.inbounds += len(left)
        endings.intents += len(owed)


async def _end_firings(desk: CommandContext, endings: _ReleaseSummary, at: datetime) -> None:
    """Times of jobs that have passed since the backup was made."""
    book = ScheduleStore(service(desk.store, SCHEDULE_TAPE), now=now, new_id=new_id, zone=desk.settings.bot.timezone)
    await book.load()
    for standing in book.state.jobs.values():
        facts = passed_over(standing, at)
        endings.jobs += bool(facts)
        endings.add(SCHEDULE_TAPE, facts, at)


def _words(desk: CommandContext, given: ReleaseHome, endings: _ReleaseSummary) -> str:
    if given.deliver:
        what = "What was left open when the backup was made is sent and answered by the next bubbot run."
    else:
        what = (
            f"Ended as {UNSENT!r}: {endings.intents} messages to people; ended without an answer: {endings.inbounds} "
            f"messages of theirs; jobs whose time had passed: {endings.jobs}."
        )
    then = (
        "The bot that runs now has to be started anew to have its channels."
        if desk.schedules
        else "bubbot run starts it."
    )
    return f"Released. {what}\n{then}\n"
