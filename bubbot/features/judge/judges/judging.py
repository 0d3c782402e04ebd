"""What a judge is: it gets a run of a case and returns a result, or fails. A judge that fails gives no score."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from math import inf, isfinite
from typing import Any, Protocol

from msgspec import Struct

from bubbot.concurrency import is_being_cancelled
from bubbot.errors import BubbotError
from bubbot.runtime.context.selectors import text_of

TIMEOUT_SECONDS = 600.0
"""How long one judgement may take, with all repeats."""
PASS, FAIL = "pass", "fail"
"""The labels of judges that only tell these two apart, with the scores 1 and 0."""
_CODE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_CITATION = re.compile(
    # ASCII: Chinese has no space before a citation.
    r"(?<![A-Za-z0-9_&/#＃])[#＃](?P<one>\d{1,12})(?![A-Za-z0-9_])|(?<![A-Za-z0-9_])[\[［](?P<list>[^\[\]［］]{1,400})[\]］](?!\()"
)
_CITED_ITEM = re.compile(r"[#＃]?(\d{1,12})(?:\s*[-–—]\s*[#＃]?(\d{1,12}))?")


class JudgeFailed(BubbotError):
    """A judge could not judge, or returned what is no result: there is no score, and the run counts as not judged.

    Attributes:
        judge: its name.
        problem: what is wrong, without the name and the full stop.
    """

    kind = "judge_failed"
    judge: str = ""
    problem: str = ""

    def __init__(self, judge: str, problem: str) -> None:
        super().__init__(f"The judge {judge} failed: {problem}.")
        self.judge = judge
        self.problem = problem


class JudgedCall(Struct, frozen=True):
    """A tool call of a judged run.

    Attributes:
        arguments: as JSON values; the text as it is if it is not JSON.
        result: what the model was shown of it.
        is_failed: the result is an error.
    """

    tool: str
    arguments: Any
    result: str = ""
    is_failed: bool = False


class JudgedRun(Struct, frozen=True, kw_only=True):
    """A run of a case, as judges see it.

    Attributes:
        expected: the expectation of the case, a JSON value; None without one.
        answer: the final text.
        calls: in the order in which they began.
        existing: of the entries that the answer cites (`find_citations`) those that are on the tape.
        messages: the request of the last step as the model was shown it, the system prompt included.
        tokens: read and written by all steps.
        usd: the cost of all steps in US dollars; None if unknown.
        seconds: from the first step to the final text.
    """

    answer: str
    expected: Any = None
    calls: tuple[JudgedCall, ...] = ()
    existing: frozenset[int] = frozenset()
    messages: tuple[Mapping[str, Any], ...] = ()
    tokens: int = 0
    usd: float | None = None
    seconds: float = 0.0

    @property
    def question(self) -> str:
        """The text of the newest message of a person; empty without one."""
        asked = [message.get("content") for message in self.messages if message.get("role") == "user"]
        content = asked[-1] if asked else ""
        return text_of(tuple(content) if isinstance(content, list) else content)


class JudgeResult(Struct, frozen=True):
    """What a judge says of a run.

    Attributes:
        score: within the scale of the judge; None if it gives a label only.
        label: a word such as `pass`; empty without one.
        rationale: why.
    """

    score: float | None
    label: str = ""
    rationale: str = ""


class ScoreScale(Struct, frozen=True):
    """The scores that a judge can give, both ends included.

    Attributes:
        high: may be infinite.
        pass_at: the score from which a run passes, or up to which, if lower is better; None if no score does.
    """

    low: float = 0.0
    high: float = 1.0
    pass_at: float | None = None
    is_lower_better: bool = False


PASS_OR_FAIL = ScoreScale(pass_at=1.0)
COUNTED_UP = ScoreScale(high=inf, is_lower_better=True)


class Judge(Protocol):
    """Gives runs a score or a label. Ask it through `judge_run`, which checks what it returns."""

    @property
    def name(self) -> str:
        """Its name in the settings, by which its judgements are told from others."""
        ...

    @property
    def scale(self) -> ScoreScale:
        """The scores it can give."""
        ...

    def judge(self, run: JudgedRun) -> JudgeResult | Awaitable[JudgeResult]:
        """Return the result for a run, at once or later. Raise anything if it cannot judge."""
        ...


class PairJudge(Protocol):
    """Compares two runs of one case. Ask it through `judge_pair`."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    @property
    def scale(self) -> ScoreScale:
        """The scores it can give: above zero if the second run is better."""
        ...

    async def judge_pair(self, first: JudgedRun, second: JudgedRun) -> JudgeResult:
        """Return how much better the second run is. Raise anything if it cannot judge."""
        ...


async def judge_run(judge: Judge, run: JudgedRun, *, timeout_seconds: float = TIMEOUT_SECONDS) -> JudgeResult:
    """Have a run judged.

    Raises:
        JudgeFailed: the judge raises, takes too long, or returns what is no result on its scale.
    """
    return await _await_result(judge.name, judge.scale, lambda: judge.judge(run), timeout_seconds)


async def judge_pair(
    judge: PairJudge, first: JudgedRun, second: JudgedRun, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> JudgeResult:
    """Have two runs compared. Raise `JudgeFailed` as `judge_run` does."""
    return await _await_result(judge.name, judge.scale, lambda: judge.judge_pair(first, second), timeout_seconds)


async def _await_result(
    name: str, scale: ScoreScale, work: Callable[[], JudgeResult | Awaitable[JudgeResult]], timeout_seconds: float
) -> JudgeResult:
    limit = asyncio.timeout(timeout_seconds)
    try:
        async with limit:
            result = work()
            result = await result if isawaitable(result) else result
    except JudgeFailed:
        raise
    except asyncio.CancelledError as error:
        if is_being_cancelled():
            raise
        raise JudgeFailed(name, "something that it waits for was cancelled") from error
    except Exception as error:  # the code of packages and the port of a model may raise anything
        problem = f"it took more than {timeout_seconds:g} seconds" if limit.expired() else _describe(error)
        raise JudgeFailed(name, problem) from error
    return check_result(name, scale, result)


def check_result(name: str, scale: ScoreScale, result: object) -> JudgeResult:
    """Return what a judge returned if it is a result on its scale; raise `JudgeFailed` otherwise."""
    if not isinstance(result, JudgeResult):
        returned = "nothing" if result is None else f"a {type(result).__name__}"
        raise JudgeFailed(name, f"it returned {returned}, and has to return a JudgeResult")
    score: object = result.score
    for field, value in (("label", result.label), ("rationale", result.rationale)):
        if not isinstance(value, str):
            raise JudgeFailed(name, f"its {field} is {value!r}, and has to be a text")
    if score is None:
        if not result.label:
            raise JudgeFailed(name, "it returned neither a score nor a label")
        return result
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise JudgeFailed(name, f"its score is {score!r}, and has to be a number or None")
    if not isfinite(score):
        raise JudgeFailed(name, f"its score is {score}, which is not a number")
    if not scale.low <= score <= scale.high:
        raise JudgeFailed(name, f"its score is {score:g}, and has to be from {scale.low:g} to {scale.high:g}")
    return JudgeResult(float(score), result.label, result.rationale)


def find_citations(text: str) -> tuple[int, ...]:
    """Return the ids of the entries that a text names, as `#12`, `[12]`, `[#12, 14]` or `[12-15]`, each once, in its order.

    Of a range the two ends count. Code names no entries, and neither do links such as `[12](page)`.
    """
    found = dict[int, None]()
    for match in _CITATION.finditer(_CODE.sub(" ", text)):
        items = [match["one"]] if match["one"] else re.split(r"[,;、，；]", match["list"])
        cited = [_CITED_ITEM.fullmatch(item.strip()) for item in items]
        if all(cited):
            found |= {int(number): None for item in cited if item for number in item.groups() if number}
    return tuple(found)


def pass_unless(problems: Sequence[str]) -> JudgeResult:
    """Return a failed result for these reasons, or a passed one without any."""
    return JudgeResult(0.0, FAIL, "; ".join(problems)) if problems else JudgeResult(1.0, PASS)


def _describe(error: Exception) -> str:
    text = str(error).rstrip(".")
    return text if isinstance(error, BubbotError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
