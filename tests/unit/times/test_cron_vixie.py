"""Cron lines at every clock change of 2026, against what Vixie's cron would run: its rules, read and written once more.

Nothing here uses the parser or the clock of the product. The reading follows `cron.c` and `entry.c` of Vixie's cron 4:

- A field is a list of numbers, ranges and steps; a minute or an hour that begins with `*` makes the line a *wildcard* line;
  a day field that begins with `*` makes both day fields count, else either is enough.
- Each minute the daemon compares the minute that the clock shows with the one that it has got to. One further: everything
  for that minute. Forward by up to three hours: wildcard lines for the minute shown, then the fixed lines of all minutes
  that were jumped over. Not forward: wildcard lines for the minute shown, and nothing else until the clock has caught up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest

from bubbot.times.cron import parse_cron

ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",  # by half an hour
    "America/Santiago",  # at midnight, back into the day before
    "Africa/Cairo",  # at midnight, past the beginning of the day
    "Africa/Casablanca",  # back in February, forward in March
)
SEED = 20261122
MINUTE = timedelta(minutes=1)
AROUND = timedelta(hours=3, minutes=30)
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@dataclass(frozen=True)
class Line:
    """A crontab line as Vixie's cron keeps it."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    wildcard: bool
    both_days: bool

    def matches(self, wall: datetime) -> bool:
        """Whether the line is for this minute."""
        if wall.minute not in self.minutes or wall.hour not in self.hours or wall.month not in self.months:
            return False
        by_date, by_name = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        return (by_date and by_name) if self.both_days else (by_date or by_name)


def read_line(text: str) -> Line:
    """The line of five fields."""
    fields = text.split()
    minutes, hours, days, months = (
        field_numbers(part, low, high, names)
        for part, low, high, names in zip(fields, (0, 0, 1, 1), (59, 23, 31, 12), ([], [], [], MONTHS), strict=False)
    )
    weekdays = field_numbers(fields[4], 0, 7, DAYS)
    if weekdays & {0, 7}:
        weekdays |= {0, 7}
    wildcard = fields[0][0] == "*" or fields[1][0] == "*"
    both_days = fields[2][0] == "*" or fields[4][0] == "*"
    return Line(minutes, hours, days, months, weekdays, wildcard, both_days)


def field_numbers(text: str, low: int, high: int, names: list[str]) -> frozenset[int]:
    """The numbers of one field."""

    def number(word: str) -> int:
        return names.index(word) + (1 if names is MONTHS else 0) if word in names else int(word)

    found: set[int] = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        begin, end = (low, high) if span == "*" else (number(first), number(last or first))
        found.update(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def vixie_runs(line: Line, minutes: list[tuple[datetime, datetime]]) -> list[datetime]:
    """When the daemon runs the line, of these minutes as instants and as the clock shows them."""
    runs: list[datetime] = []
    reached = minutes[0][1]
    for instant, shown in minutes[1:]:
        jumped = (shown - reached) // MINUTE
        if jumped == 1:
            reached = shown
            due = line.matches(shown)
        elif jumped > 1:
            assert jumped <= 180
            due = line.wildcard and line.matches(shown)
            while reached < shown:
                reached += MINUTE
                due = due or (not line.wildcard and line.matches(reached))
        else:
            assert jumped > -180
            due = line.wildcard and line.matches(shown)
        if due:
            runs.append(instant)
    return runs


def clock_changes(zone: ZoneInfo) -> Iterator[datetime]:
    """The first instants of a new offset in 2026."""
    moment, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    while moment < end:
        later = moment + timedelta(minutes=30)
        if moment.astimezone(zone).utcoffset() != later.astimezone(zone).utcoffset():
            yield later
        moment = later


def lines(number: int) -> Iterator[str]:
    """Lines of every form, many of them near the hours at which clocks are changed."""
    chance = Random(SEED)

    def field(low: int, high: int, names: list[str] | None = None) -> str:
        def one() -> str:
            drawn = chance.randint(low, high)
            return names[drawn - (names is MONTHS)] if names and drawn < 7 and chance.random() < 0.5 else str(drawn)

        match chance.randint(0, 5):
            case 0:
                return f"*/{chance.randint(2, max(2, (high - low) // 2))}"
            case 1:
                first = chance.randint(low, high - 1)
                return f"{first}-{chance.randint(first, high)}"
            case 2:
                first = chance.randint(low, high - 1)
                return f"{first}-{chance.randint(first, high)}/{chance.randint(1, 5)}"
            case _:
                return ",".join(one() for _ in range(chance.choice((1, 1, 2, 3))))

    left = number
    while left:
        minute = "*" if chance.random() < 0.1 else field(0, 59)
        hour = chance.choice(("*", "*", "0-23", "*/2", field(0, 23), field(0, 4), field(0, 4), field(21, 23)))
        day = "*" if chance.random() < 0.75 else field(1, 31)
        month = "*" if chance.random() < 0.85 else field(1, 12, MONTHS)
        weekday = "*" if chance.random() < 0.7 else field(0, 6, DAYS)
        text = f"{minute} {hour} {day} {month} {weekday}"
        if comes_ever(read_line(text)):  # bubbot refuses the others, such as 31 April
            left -= 1
            yield text


def comes_ever(line: Line) -> bool:
    """Whether there is a day for the line within 28 years, after which the calendar begins again."""
    wall = datetime(2026, 1, 1, min(line.hours), min(line.minutes))  # noqa: DTZ001 - a time on a wall
    return any(line.matches(wall + timedelta(days=day)) for day in range(28 * 366))


def ours(text: str, zone: ZoneInfo, start: datetime, end: datetime) -> list[datetime]:
    """When bubbot would run it."""
    cron, found = parse_cron(text), list[datetime]()
    one = cron.next_after(start, zone)
    while one is not None and one <= end:
        found.append(one)
        one = cron.next_after(one, zone)
    return found


def compare(number: int) -> Counter[str]:
    """Counts of what was compared. Every difference is explained, or the test fails.

    There is one explanation: who counts as naming no time of day. For Vixie that is a line whose minute or hour begins
    with `*`; for us one that is for all 24 hours. So `30 */2 * * *` and `*/15 2 * * *` are times of day to us: they are
    not lost in spring and not repeated in autumn. `5 0-23 * * *` follows the hours. With that one word changed in
    Vixie's rules, both agree.
    """
    counts: Counter[str] = Counter()
    changes = [(ZoneInfo(name), change) for name in ZONES for change in clock_changes(ZoneInfo(name))]
    assert len(changes) == 2 * len(ZONES)
    clocks = []
    for zone, change in changes:
        start = change - AROUND
        instants = [start + MINUTE * place for place in range(2 * AROUND // MINUTE + 1)]
        clocks.append((zone, [(one, one.astimezone(zone).replace(tzinfo=None, fold=0)) for one in instants]))
    for text in lines(number):
        line = read_line(text)
        hourly = len(line.hours) == 24
        for zone, minutes in clocks:
            expected, found = vixie_runs(line, minutes), ours(text, zone, minutes[0][0], minutes[-1][0])
            counts["compared"] += 1
            counts["firings"] += len(found)
            if found == expected:
                continue
            assert line.wildcard != hourly, (text, zone, expected, found)
            assert found == vixie_runs(replace(line, wildcard=hourly), minutes), (text, zone, expected, found)
            if hourly:
                counts["all 24 hours without an asterisk"] += 1
            elif text.split()[1].startswith("*"):
                counts["steps of hours"] += 1
            else:
                counts["every minute of named hours"] += 1
    return counts


def test_cron_lines_run_at_clock_changes_as_vixies_cron_would() -> None:
    counts = compare(25)
    assert counts["compared"] == 25 * 12
    assert counts["firings"] > 1_000


@pytest.mark.proof
def test_two_thousand_cron_lines_run_at_clock_changes_as_vixies_cron_would() -> None:
    counts = compare(2_000)
    print(dict(counts))
    assert counts["compared"] == 24_000
    assert counts["steps of hours"]
    assert counts["every minute of named hours"]
    assert counts["all 24 hours without an asterisk"]


@pytest.mark.parametrize("zone", ZONES)
def test_an_hourly_job_never_comes_at_a_time_that_its_line_does_not_name(zone: str) -> None:
    where = ZoneInfo(zone)
    for change in clock_changes(where):
        for text in ("0 * * * *", "30 * * * *", "15 * * * *", "5-55/10 * * * *", "*/7 * * * *"):
            line = read_line(text)
            for one in ours(text, where, change - AROUND, change + AROUND):
                assert one.astimezone(where).minute in line.minutes
