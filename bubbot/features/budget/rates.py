"""Rates: the messages of a person or a chat that may call a model within a minute and an hour."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from bubbot.errors import RateLimitExceeded
from bubbot.features.budget.settings import PersonLimitSettings
from bubbot.features.budget.state import MAX_RECENT_TURNS, RATES_PROJECTION
from bubbot.ports.usage import CHAT_SCOPE, USER_SCOPE, BudgetSubject
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import parse_moment
from bubbot.tape.service import TapeService

EACH_KEY = "each"
"""The name of a rate for everybody without their own."""
MAX_RATE_WAIT = timedelta(minutes=1)
"""The longest wait of a message over a rate; one that would have to wait longer is refused."""
ONE_MINUTE, ONE_HOUR = timedelta(minutes=1), timedelta(hours=1)


@dataclass
class RateLimiter:
    """Gives each message the moment at which it may call a model.

    Attributes:
        rates: by scope (`chat`, `user`) and name.
        now: the clock.
        zone: the time zone of the times shown to people.
        always_notify: the channels that notify everybody every time.
        current_session: see `BudgetLimits`.
    """

    rates: Mapping[tuple[str, str], PersonLimitSettings]
    now: Clock
    zone: tzinfo
    always_notify: frozenset[str] = frozenset()
    current_session: Callable[[str], str] = lambda session: session
    _starts: dict[tuple[str, str], deque[datetime]] = field(default_factory=dict)
    _others: dict[str, None] = field(default_factory=dict)
    _notified_until: dict[BudgetSubject, datetime] = field(default_factory=dict)

    async def load(self, tape: TapeService, projections: ProjectionRunner | None = None) -> None:
        """Count the calls of earlier processes within the last hour, by the newest reservations on the budget tape."""
        now, runner = self.now(), projections or ProjectionRunner()
        shards = [await runner.project(RATES_PROJECTION, shard).catch_up() for shard in tape.shards()]
        turns = RATES_PROJECTION.combine_states(shards)
        for each in turns.turns:
            at = parse_moment(each.date)
            if at is not None and now - ONE_HOUR < at <= now + MAX_RATE_WAIT:
                self._book(self._rates(each.payer), at)

    def book(self, subject: BudgetSubject) -> float:
        """Book the next place for a message. Return the seconds until then, mostly 0.

        Raises:
            RateLimitExceeded: the place is too far away to wait for; none was booked.
        """
        start = now = self.now()
        rates = self._rates(subject)
        for key, rate in rates:
            starts = self._recent_starts(key, now)
            for limit, span in ((rate.per_minute, ONE_MINUTE), (rate.per_hour, ONE_HOUR)):
                if limit is None or len(starts) < limit:
                    continue
                free = starts[-limit] + span
                if free - now > MAX_RATE_WAIT:
                    raise self._build_refusal(subject, key, (limit, "hour" if span is ONE_HOUR else "minute"), free)
                start = max(start, free)
        self._book(rates, start)
        return (start - now).total_seconds()

    def note(self, payer: BudgetSubject, date: str) -> None:
        """Count a call of another process, once for each turn."""
        at = parse_moment(date)
        if at is None or at <= self.now() - ONE_HOUR or payer.turn in self._others:
            return
        self._others[payer.turn] = None
        if len(self._others) > MAX_RECENT_TURNS:
            del self._others[next(iter(self._others))]
        for key, _ in self._rates(payer):
            insort(self._starts.setdefault(key, deque()), at)

    def _rates(self, payer: BudgetSubject) -> list[tuple[tuple[str, str], PersonLimitSettings]]:
        keys = [(scope, name) for scope, name in ((USER_SCOPE, payer.user), (CHAT_SCOPE, payer.chat)) if name]
        candidates = [(key, self._find_rate(*key)) for key in keys]
        return [(key, rate) for key, rate in candidates if rate is not None]

    def _find_rate(self, scope: str, name: str) -> PersonLimitSettings | None:
        rate = self.rates.get((scope, name))
        if rate is None and scope == CHAT_SCOPE:
            rate = self.rates.get((scope, self.current_session(name)))
        return rate or self.rates.get((scope, EACH_KEY))

    def _recent_starts(self, key: tuple[str, str], now: datetime) -> deque[datetime]:
        """Return the starts of the last hour and the future ones.

        Drop any further ahead: they are from a clock that was set back.
        """
        starts = self._starts.get(key, deque())
        while starts and starts[-1] > now + MAX_RATE_WAIT:
            starts.pop()
        while starts and starts[0] <= now - ONE_HOUR:
            starts.popleft()
        return starts

    def _book(self, rates: Sequence[tuple[tuple[str, str], PersonLimitSettings]], at: datetime) -> None:
        for key, _ in rates:
            self._starts.setdefault(key, deque()).append(at)
        if len(self._starts) > 1000:  # people who have not written for an hour
            self._starts = {
                key: starts for key, starts in self._starts.items() if starts and starts[-1] > at - ONE_HOUR
            }

    def _build_refusal(
        self, payer: BudgetSubject, key: tuple[str, str], limit: tuple[int, str], free: datetime
    ) -> RateLimitExceeded:
        """Build the error; it says `told` until the rate allows the person's next message."""
        person = BudgetSubject(payer.session, payer.user)
        until = self._notified_until.get(person)
        is_notified = (
            until is not None
            and self.now() < until <= self.now() + ONE_HOUR
            and payer.channel not in self.always_notify
        )
        if not is_notified:
            self._notified_until = {
                other: until for other, until in self._notified_until.items() if until > self.now()
            } | {person: free}
        renews = free.astimezone(self.zone).strftime("%H:%M")
        count, within = limit
        return RateLimitExceeded(scope=key[0], name=key[1], count=count, span=within, renews=renews, told=is_notified)
