"""Judge the times that people say by the published corpora of Duckling, Chrono and dateparser.

`python -m tests.times.corpora PATH` reads their files below PATH, where checkouts of the three lie, and prints how many of
their future instants are read rightly. Nothing of them is part of this repository. `--list OUTCOME` prints the phrases.
The suite reads them in its long version if `BUBBOT_TIME_CORPORA` names the path.

Counted is what a reminder can be set to: one instant to come, of the grain of a day or finer. Intervals, whole weeks and
months, holidays by name and what has passed are left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Literal, TypeAlias

from bubbot.times.instants import wall_time
from bubbot.times.phrases import read_time
from bubbot.times.reading import ReadingContext
from bubbot.times.refusal import TimeRefused
from tests.times.differences import DIFFERENCES

Grain: TypeAlias = Literal["day", "hour", "second"]
Outcome: TypeAlias = Literal["right", "offered", "refused", "wrong"]
OUTCOMES: tuple[Outcome, ...] = ("right", "offered", "refused", "wrong")
ON_PURPOSE = "on purpose"
_CLOCK_WORDS = re.compile(
    r"\d\s*[ap]\.?m|\d[:h时時點点]\d|\d\.\d\d(?![\d.])|\d\s*(?:h|uhr)\b|o'?clock|noon|midnight|midday|hour|minute|second|\b(?:min|sec|hr)s?\b"
    r"|\bat\s+\w|half|quarter|past|stunde|mittag|mitternacht|[点點时時鐘钟秒]|\b\d{1,2}\s+(?:in|tonight|tomorrow|this)\b|\d\s*[hms]\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class TimeExample:
    """A phrase of a corpus and what it means there.

    Attributes:
        corpus: its name.
        language: `en`, `zh` or `de`.
        phrase: the words.
        now: the reference time.
        zone: of the reference time.
        expected: the instant, as the clock of `zone` shows it.
        grain: how exact it is.
    """

    corpus: str
    language: str
    phrase: str
    now: datetime
    zone: tzinfo
    expected: datetime
    grain: Grain

    @property
    def is_future(self) -> bool:
        """True if the instant is to come."""
        return self._rounded(self.expected) > wall_time(self.now, self.zone)

    def judge(self) -> tuple[Outcome, str]:
        """Return what becomes of the phrase, and how it was read or why it was refused."""
        context = ReadingContext(self.now, self.zone)
        try:
            reading = read_time(self.phrase, context)
        except TimeRefused as error:
            return "refused", str(error)
        said = " | ".join(rule.text for rule in (reading.when, *reading.others))
        if self._means(reading.when.next_after(self.now, self.zone)):
            return "right", said
        is_offered = any(self._means(rule.next_after(self.now, self.zone)) for rule in reading.others)
        return ("offered" if is_offered else "wrong"), said

    def _means(self, instant: datetime | None) -> bool:
        if instant is None:
            return False
        return self._rounded(wall_time(instant, self.zone)) == self._rounded(self.expected)

    def _rounded(self, wall: datetime) -> datetime:
        wall = wall.replace(microsecond=0)
        if self.grain == "second":
            return wall
        return wall.replace(hour=0 if self.grain == "day" else wall.hour, minute=0, second=0)


def read_corpora(folder: Path) -> Iterator[TimeExample]:
    """Yield the future instants of all corpora below a folder, each phrase of a corpus once."""
    found: set[tuple[str, str, datetime]] = set()
    for example in (*_duckling(folder), *_chrono(folder), *_dateparser(folder)):
        key = (example.corpus, example.phrase, example.expected)
        if example.is_future and key not in found:
            found.add(key)
            yield example


def _integers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def _wall(numbers: Sequence[int]) -> datetime:
    """Return the time of a clock from its year, month, day and the rest, as far as it is there."""
    year, month, day, *clock = numbers
    units = zip(("hours", "minutes", "seconds"), clock, strict=False)
    return datetime(year, month, day) + timedelta(**dict(units))  # noqa: DTZ001 - a wall-clock time


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.rglob(pattern))


_DUCKLING_ZONE = timezone(timedelta(hours=-2))
_DUCKLING_NOW = datetime(2013, 2, 12, 4, 30, tzinfo=_DUCKLING_ZONE)
_GRAINS: dict[str, Grain] = {"Day": "day", "Hour": "hour"}
_GROUP = re.compile(
    r"examples\s*\(datetime\s*\(([\d, ]+)\)\s*(Second|Minute|Hour|Day)\)\s*\[((?:\s*,?\s*\"(?:[^\"\\]|\\.)*\")*)\s*\]"
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _duckling(folder: Path) -> Iterator[TimeExample]:
    for language in ("en", "zh", "de"):
        for path in _files(folder, f"Duckling/Time/{language.upper()}/Corpus.hs"):
            source = path.read_text()
            before, _, source = source.partition("\nallExamples =")
            if language == "en":
                source = before[before.find("defaultCorpus =") : before.find("negativeCorpus =")] + source
            for numbers, grain, strings in _GROUP.findall(source):
                expected = _wall(_integers(numbers))
                for string in _STRING.findall(strings):
                    phrase = string.replace('\\"', '"')
                    rounded = _GRAINS.get(grain, "second")
                    yield TimeExample("duckling", language, phrase, _DUCKLING_NOW, _DUCKLING_ZONE, expected, rounded)


_CASE = re.compile(
    r"testSingleCase\(\s*(chrono[.\w]*),\s*(?:\"([^\"\n]*)\"|'([^'\n]*)'|`([^`\n]*)`),(.*?)(?=\n\s*testSingle|\n\s*testUnexp|\n\}\))",
    re.DOTALL,
)
_DATE = re.compile(r"new Date\(([-\d, +]+)\)")


def _js_date(text: str) -> datetime | None:
    parts = [sum(int(term) for term in re.findall(r"[+-]?\d+", part.replace(" ", ""))) for part in text.split(",")]
    if len(parts) < 2:
        return None
    month, rest = parts[1] + 1, parts[2:]
    day = datetime(parts[0], 1, 1).replace(month=month) if 1 <= month <= 12 and parts[0] > 0 else None  # noqa: DTZ001
    if day is None:
        return None
    values = [*rest, *[1, 0, 0, 0, 0][len(rest) :]]
    return day + timedelta(
        days=values[0] - 1, hours=values[1], minutes=values[2], seconds=values[3], milliseconds=values[4]
    )


def _chrono(folder: Path) -> Iterator[TimeExample]:
    for path in _files(folder, "*.test.ts"):
        language = next((name for name in ("en", "zh", "de") if f"/test/{name}/" in path.as_posix()), "")
        if path.name.endswith(("_month.test.ts", "_year.test.ts")):  # whole months and years
            continue
        source = path.read_text()
        for match in _CASE.finditer(source) if language else ():
            example = _chrono_example(language, match, source[: match.start()])
            if example is not None:
                yield example


def _chrono_example(language: str, match: re.Match[str], before: str) -> TimeExample | None:
    options, _, body = match[5].partition("=>")
    typed = next(text for text in match.groups()[1:4] if text is not None)
    if (
        "result.end" in body.replace("result.end).toBeNull", "")
        or "forwardDate: false" in options
        or "timezones" in options
    ):
        return None
    is_whole_unit = 'isCertain("day")).toBe(false' in body and 'isCertain("weekday")).toBe(true' not in body
    if "timezone:" in options or "GMT" in options or is_whole_unit:
        return None
    for name in re.findall(r"^\s*(\w+)", options):
        constants = re.findall(rf"const {name} = (.*);", before)
        options = constants[-1] if constants else options
    said = re.search(r"result\.text\)\.toBe\((?:\"([^\"]*)\"|'([^']*)'|(\w+))\)", body)
    if said is None:
        return None
    phrase = typed if said[3] else said[1] if said[1] is not None else said[2]
    if re.search(r"\s[-–]\s", phrase):  # an interval
        return None
    values = {
        name: int(number) for name, number in re.findall(r"result\.start\.get\(\"(\w+)\"\)\)\.toBe\((-?\d+)\)", body)
    }
    for name, number in re.findall(r"result\.start\.get\(\"(\w+)\"\)\)\.toBe\((-?[\d +*()-]+)\)", body):
        if name not in values:
            values[name] = _product(number)
    dates = [date for text in _DATE.findall(body.partition("result.start).toBeDate")[2]) if (date := _js_date(text))]
    dates += [date for text in re.findall(r"expectDate = new Date\(([-\d, +]+)\)", body) if (date := _js_date(text))]
    reference = next((date for text in _DATE.findall(options) if (date := _js_date(text))), None)
    if dates:
        expected = dates[0]
    elif {"year", "month", "day"} <= set(values) and values["year"] > 0:
        clock = (values.get("hour", 12), values.get("minute", 0), values.get("second", 0))
        expected = _wall([values["year"], values["month"], values["day"], *clock])
    else:
        return None
    if reference is None:
        if re.search(r"(?:19|20)\d\d", phrase) is None:
            return None
        reference = expected.replace(hour=12, minute=0, second=0) - timedelta(days=3)
    zone: tzinfo = UTC
    if "timezoneOffset" in values and abs(values["timezoneOffset"]) < 1000:
        offset = timedelta(minutes=values["timezoneOffset"])
        if not dates:
            expected = expected - offset
    is_day = not _CLOCK_WORDS.search(phrase)
    return TimeExample(
        "chrono", language, phrase, reference.replace(tzinfo=UTC), zone, expected, "day" if is_day else "second"
    )


def _product(text: str) -> int:
    """Return the value of numbers that are multiplied and added, such as `-(8 * 60 + 45)`."""
    sign = -1 if text.strip().startswith("-") else 1
    return sign * sum(int(first) * int(second or 1) for first, second in re.findall(r"(\d+)(?:\s*\*\s*(\d+))?", text))


_DATEPARSER_NOW = {"test_relative_future_dates": _wall([2014, 9, 1, 10, 30])}
_HEADING = re.compile(r"#\s*(English|Chinese|German|en|zh|zh-Hans|zh-Hant|de)\b(?:\s+dates)?\s*$")
_OTHER_HEADING = re.compile(r"^\s*#\s*[\w-]+(?:\s+\w+)?\s*$")


def _dateparser(folder: Path) -> Iterator[TimeExample]:
    for name in ("test_date_parser.py", "test_freshness_date_parser.py"):
        for path in _files(folder, name):
            source = path.read_text()
            lines = source.splitlines()
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.FunctionDef) and node.decorator_list:
                    yield from _dateparser_test(node, lines)


def _dateparser_test(test: ast.FunctionDef, lines: list[str]) -> Iterator[TimeExample]:
    body = "\n".join(lines[test.lineno : test.end_lineno])
    base = re.search(r"(?:RELATIVE_BASE\"?: |base_date = )datetime\(([\d, ]+)\)", body)
    now = _DATEPARSER_NOW.get(test.name)
    if base is not None:
        now = _wall(_integers(base[1]))
    if now is None or '"past"' in body or "time_zones" in test.name or "skip" in test.name:
        return
    if (
        test.name not in ("test_dates_parsing", "test_relative_future_dates")
        and "future" not in body
        and "word_numbers" not in test.name
    ):
        return
    for decorator in test.decorator_list:
        for call in ast.walk(decorator):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "param"):
                continue
            example = _dateparser_example(call, now, _language(call, lines))
            if example is not None:
                yield example


def _language(call: ast.Call, lines: list[str]) -> str:
    """Return the language of the comment above an example; English if there is none."""
    for line in reversed(lines[: call.lineno - 1]):
        if "parameterized" in line:
            break
        if found := _HEADING.search(line):
            return {"English": "en", "Chinese": "zh", "German": "de"}.get(found[1], found[1][:2])
        if _OTHER_HEADING.match(line):
            return ""
    return "en"


def _dateparser_example(call: ast.Call, now: datetime, language: str) -> TimeExample | None:
    if not (call.args and isinstance(call.args[0], ast.Constant) and language):
        return None
    phrase = str(call.args[0].value)
    if any("\u3040" <= char <= "\u30ff" for char in phrase):
        return None
    expected, is_day = None, False
    for value in (*call.args[1:], *(keyword.value for keyword in call.keywords)):
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "datetime":
            numbers = [int(ast.literal_eval(number)) for number in value.args]
            expected, is_day = _wall(numbers), not any(numbers[3:])
        elif isinstance(value, ast.Call) and getattr(value.func, "id", "") == "timedelta":
            expected = now + timedelta(**{one.arg: ast.literal_eval(one.value) for one in value.keywords if one.arg})
        elif isinstance(value, ast.Dict):
            expected = _shifted(now, ast.literal_eval(value))
    if expected is None or (call.args and len(call.args) > 2 and "approx" in str(ast.unparse(call.args[2]))):
        return None
    is_day = is_day or (expected.time() == now.time() and not _CLOCK_WORDS.search(phrase))
    return TimeExample(
        "dateparser", language, phrase, now.replace(tzinfo=UTC), UTC, expected, "day" if is_day else "second"
    )


def _shifted(now: datetime, amounts: dict[str, float]) -> datetime | None:
    months = int(amounts.pop("months", 0) + 12 * amounts.pop("years", 0))
    years, month = divmod(now.month - 1 + months, 12)
    if now.year + years > 9999:
        return None
    return now.replace(year=now.year + years, month=month + 1) + timedelta(**amounts)


def judge_corpora(folder: Path, listed: str = "") -> dict[tuple[str, str], Counter[str]]:
    """Count the outcomes by language and corpus; print the phrases with the outcome that is `listed`."""
    table: dict[tuple[str, str], Counter[str]] = {}
    for example in read_corpora(folder):
        outcome, said = example.judge()
        is_on_purpose = outcome != "right" and example.phrase.lower() in DIFFERENCES
        name = ON_PURPOSE if is_on_purpose else outcome
        table.setdefault((example.language, example.corpus), Counter())[name] += 1
        if listed == name:
            reference = wall_time(example.now, example.zone)
            print(
                f"{example.corpus} {example.language} {example.phrase!r}: {example.expected}, now {reference:%a %F %R}: {said}"
            )
    return table


def count_by_language(table: dict[tuple[str, str], Counter[str]]) -> dict[str, Counter[str]]:
    """Add up the corpora of each language."""
    total: dict[str, Counter[str]] = {}
    for (language, _), row in table.items():
        total.setdefault(language, Counter()).update(row)
    return total


def right_share(row: Counter[str]) -> float:
    """Return the share that is read rightly, of what is not different on purpose."""
    return row["right"] / (row.total() - row[ON_PURPOSE])


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a phrase is silently read wrong."""
    listed = arguments[arguments.index("--list") + 1] if "--list" in arguments else ""
    table = judge_corpora(Path(arguments[0]), listed)
    names = (*OUTCOMES, ON_PURPOSE)
    print(f"{'':17}{'all':>6}" + "".join(f"{name:>12}" for name in names) + f"{'of all':>10}{'of the rest':>13}")
    rows = {f"{language} {corpus}": row for (language, corpus), row in sorted(table.items())}
    rows |= {f"{language} together": row for language, row in sorted(count_by_language(table).items())}
    for title, row in rows.items():
        shares = f"{row['right'] / row.total():10.1%}{right_share(row):13.1%}"
        print(f"{title:17}{row.total():6}" + "".join(f"{row[name]:12}" for name in names) + shares)
    return int(any(row["wrong"] for row in table.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
