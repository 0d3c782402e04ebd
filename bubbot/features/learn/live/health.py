"""The health of the recording, for status."""

from __future__ import annotations

from msgspec import Struct, field

from bubbot.features.learn.live.state import LIVE_PROJECTION, LiveState
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.ports.checks import HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow, Outage
from bubbot.tape.projection import read_projection


class LiveHealth(Struct):
    """The figures of a running bot.

    Attributes:
        open: sessions that have not ended.
        calls: recorded calls.
        rewards: rewards that the proxy took.
        late: judgements that came too late.
        withheld: calls of listed chats that consent kept away, since the start.
        outage: why the proxy does not record.
    """

    open: int = 0
    calls: int = 0
    rewards: int = 0
    late: int = 0
    withheld: int = 0
    outage: Outage = field(default_factory=Outage)

    def update(self, state: LiveState) -> None:
        """Take the figures of the facts."""
        self.open, self.calls = len(state.sessions), state.calls
        self.rewards, self.late = state.rewards, state.late

    def report(self, context: HealthContext, host: str) -> FeatureHealth:
        """Report it; `host` is that of the proxy, empty if nothing is recorded."""
        if not host and not self.open:
            return FeatureHealth(name="learn.live")
        say = context.texts.say
        lines = [say("st_recording_is", host=host or "-", open=self.open, calls=self.calls, rewards=self.rewards)]
        if self.withheld:
            lines.append(say("st_recording_withheld", calls=self.withheld))
        if self.late:
            lines.append(say("st_recording_late", count=self.late))
        if self.outage.error:
            since = context.format_time(self.outage.since)
            lines.append(say("st_recording_failing", since=since, reason=self.outage.error))
        row = HealthRow(say("st_recording"), tuple(lines), is_trouble=bool(self.outage.error))
        return FeatureHealth(name="learn.live", rows=(row,))


async def read_health(home: HomeReader, context: HealthContext) -> FeatureHealth:
    """Report the figures of the tape while no bot runs."""
    health = LiveHealth()
    async with home.open_tape(LEARN_TAPE) as tape:
        health.update(await read_projection(LIVE_PROJECTION, tape))
    return health.report(context, "")
