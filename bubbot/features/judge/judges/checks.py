"""Judges that are code: the text of an answer, what it cites, the tools that were used, cost and time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase

from msgspec import Struct

from bubbot.expressions import compile_search
from bubbot.features.judge.judges.judging import (
    COUNTED_UP,
    FAIL,
    PASS,
    PASS_OR_FAIL,
    JudgedRun,
    JudgeFailed,
    JudgeResult,
    ScoreScale,
    find_citations,
    pass_unless,
)
from bubbot.features.judge.judges.settings import (
    CitedSettings,
    CostSettings,
    ExactSettings,
    JsonSchemaSettings,
    JudgeSettings,
    PythonSettings,
    RegexSettings,
    TimeSettings,
    UsedToolsSettings,
    read_schema,
)
from bubbot.formatting import show_value
from bubbot.json_schema import find_fences, find_misfits, refuse_constant

NOTHING_FITS = ": nothing fits it"
"""The end of what `find_misfits` says of a JSON Schema that cannot be used."""


class ExactJudge(Struct, frozen=True):
    """Compares the answer with a text."""

    name: str
    settings: ExactSettings
    scale: ScoreScale = PASS_OR_FAIL

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Pass an answer that is the text."""
        _check_expectation(self.name, self.settings, run)
        wanted = str(run.expected) if self.settings.text is None else self.settings.text
        if self._fold(run.answer) == self._fold(wanted):
            return pass_unless([])
        return pass_unless([f"the answer is {show_value(run.answer)}, and should be {show_value(wanted)}"])

    def _fold(self, text: str) -> str:
        text = " ".join(text.split()) if self.settings.ignore_space else text
        return text.casefold() if self.settings.ignore_case else text


class RegexJudge(Struct, frozen=True):
    """Looks for a regular expression in the answer."""

    name: str
    settings: RegexSettings
    scale: ScoreScale = PASS_OR_FAIL

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Pass an answer in which it is found, or not found if it has to be absent."""
        _check_expectation(self.name, self.settings, run)
        settings = self.settings
        pattern = str(run.expected) if settings.pattern is None else settings.pattern
        try:
            found = compile_search(pattern, ignore_case=settings.ignore_case, whole=settings.whole)(run.answer)
        except TimeoutError:
            problem = f"to search {show_value(pattern)} in the answer takes too long: write a simpler expression"
            raise JudgeFailed(self.name, problem) from None
        if settings.absent:
            return pass_unless(
                [] if found is None else [f"the answer has {show_value(found)}, which matches {pattern!r}"]
            )
        return pass_unless([f"nothing in the answer matches {pattern!r}"] if found is None else [])


class JsonSchemaJudge(Struct, frozen=True):
    """Reads the answer as JSON and checks it against a JSON Schema."""

    name: str
    settings: JsonSchemaSettings
    scale: ScoreScale = PASS_OR_FAIL

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Pass an answer that is JSON and fits."""
        _check_expectation(self.name, self.settings, run)
        schema = read_schema(run.expected) if self.settings.schema is None else self.settings.schema
        fences = find_fences(run.answer) if self.settings.fenced else []
        try:
            value = json.loads(fences[0] if len(fences) == 1 else run.answer, parse_constant=refuse_constant)
        except ValueError as error:
            return pass_unless([f"the answer is not JSON: {error}"])
        except RecursionError:
            return pass_unless(["the JSON is nested too deep"])
        try:
            misfits = find_misfits(value, schema)
        except TimeoutError as error:
            raise JudgeFailed(self.name, f"{error}: write simpler ones") from None
        if misfits and misfits[0].endswith(NOTHING_FITS):  # the schema is wrong, not the answer
            raise JudgeFailed(self.name, misfits[0].removesuffix(NOTHING_FITS))
        return pass_unless(misfits)


class PythonJudge(Struct, frozen=True):
    """Asks a function of a package."""

    name: str
    settings: PythonSettings
    function: Callable[[JudgedRun], JudgeResult | Awaitable[JudgeResult]]

    @property
    def scale(self) -> ScoreScale:
        """The scale that the settings declare."""
        settings = self.settings
        return ScoreScale(settings.low, settings.high, settings.pass_at, settings.lower_is_better)

    def judge(self, run: JudgedRun) -> JudgeResult | Awaitable[JudgeResult]:
        """Return what the function returns."""
        return self.function(run)


class CitedJudge(Struct, frozen=True):
    """Looks whether the entries that the answer names are there."""

    name: str
    settings: CitedSettings
    scale: ScoreScale = PASS_OR_FAIL

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Pass an answer that names enough entries, all of which exist."""
        cited = find_citations(run.answer)
        problems = [f"#{entry} is cited and does not exist" for entry in cited if entry not in run.existing]
        if len(cited) < self.settings.least:
            problems.append(f"the answer cites {len(cited)} entries, and should cite {self.settings.least} at least")
        return pass_unless(problems)


class UsedToolsJudge(Struct, frozen=True):
    """Looks which tools were called."""

    name: str
    settings: UsedToolsSettings
    scale: ScoreScale = PASS_OR_FAIL

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Pass a run with the calls of the settings."""
        every = [call.tool for call in run.calls]
        counted = [call.tool for call in run.calls if self.settings.failed_count or not call.is_failed]
        problems = self._check_order(every, counted)
        for pattern, least in self.settings.least.items():
            if (count := _count(pattern, counted)) < least:
                problems.append(f"{pattern} was called {count} times, and should be {least} times at least")
        for pattern, most in self.settings.most.items():
            if (count := _count(pattern, every)) > most:
                problems.append(f"{pattern} was called {count} times, and may be {most} times at most")
        return pass_unless(problems)

    def _check_order(self, every: list[str], counted: list[str]) -> list[str]:
        wanted = self.settings.calls
        if self.settings.order == "exactly":
            # A failed call is a call, too: by default it is one that should not be there.
            fits = len(every) == len(counted) == len(wanted) and all(map(fnmatchcase, every, wanted))
            return [] if fits else [f"the calls are {_list(every)}, and should be {_list(wanted)}"]
        if self.settings.order == "sequence":
            rest = iter(counted)
            missing = [pattern for pattern in wanted if not any(fnmatchcase(tool, pattern) for tool in rest)]
            return [f"the calls are {_list(counted)}, without {missing[0]} in its place"] if missing else []
        return [
            f"{pattern} was called {count} times, and should be {times} times at least"
            for pattern, times in Counter(wanted).items()
            if (count := _count(pattern, counted)) < times
        ]


class CostJudge(Struct, frozen=True):
    """Scores what a run cost."""

    name: str
    settings: CostSettings

    @property
    def scale(self) -> ScoreScale:
        """From nothing upwards."""
        return _count_up_to(self.settings.most)

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Return the amount. Raise `JudgeFailed` if the cost is not known."""
        if self.settings.unit == "tokens":
            return _score_amount(run.tokens, self.settings.most, "tokens")
        if run.usd is None:
            raise JudgeFailed(self.name, 'the cost is unknown: give the model a price, or write unit = "tokens"')
        return _score_amount(run.usd, self.settings.most, "US dollars")


class TimeJudge(Struct, frozen=True):
    """Scores how long a run took."""

    name: str
    settings: TimeSettings

    @property
    def scale(self) -> ScoreScale:
        """From nothing upwards."""
        return _count_up_to(self.settings.most)

    def judge(self, run: JudgedRun) -> JudgeResult:
        """Return the seconds."""
        return _score_amount(run.seconds, self.settings.most, "seconds")


def _check_expectation(judge: str, settings: JudgeSettings, run: JudgedRun) -> None:
    if problem := settings.find_expectation_problem(run.expected):
        raise JudgeFailed(judge, problem)


def _count_up_to(most: float | None) -> ScoreScale:
    return COUNTED_UP if most is None else ScoreScale(COUNTED_UP.low, COUNTED_UP.high, most, is_lower_better=True)


def _score_amount(amount: float, most: float | None, unit: str) -> JudgeResult:
    if most is None or amount <= most:
        return JudgeResult(amount, "" if most is None else PASS, f"{amount:,.6g} {unit}")
    return JudgeResult(amount, FAIL, f"{amount:,.6g} {unit}, which is more than {most:,.6g}")


def _count(pattern: str, tools: list[str]) -> int:
    return sum(fnmatchcase(tool, pattern) for tool in tools)


def _list(tools: list[str] | tuple[str, ...]) -> str:
    return ", ".join(tools) or "none"
