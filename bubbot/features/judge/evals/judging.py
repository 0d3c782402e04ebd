"""What judges are shown of the run of a case, and how what they say becomes a score from 0 to 1."""

from __future__ import annotations

from math import isfinite

from bubbot.errors import ConfigError
from bubbot.features.judge.evals.facts import JudgeScore
from bubbot.features.judge.evals.spec import EvalJudge
from bubbot.features.judge.judges.creation import create_judge
from bubbot.features.judge.judges.judging import Judge, JudgedRun, JudgeFailed, ScoreScale, judge_pair, judge_run
from bubbot.features.judge.judges.rubric import Ask, PairRubricJudge
from bubbot.features.judge.judges.settings import read_judge
from bubbot.formatting import clean
from bubbot.toml_tables import TableReader, TablesInvalid

MAX_RATIONALE_CHARS = 2_000


async def judge_answer(settings: EvalJudge, run: JudgedRun, ask: Ask, rival: JudgedRun | None = None) -> JudgeScore:
    """Let a judge judge; a judge that fails gives no score.

    Args:
        ask: asks the model of the judge, if it has one.
        rival: the run with which a judge that compares compares this one; it gives a score but no points.
    """
    name, kind, weight = settings.name, settings.kind, settings.weight
    try:
        judge = build_judge(settings, ask)
        if isinstance(judge, PairRubricJudge):
            assert rival is not None
            result = await judge_pair(judge, rival, run)
        else:
            result = await judge_run(judge, run)
    except (JudgeFailed, ConfigError) as error:
        problem = error.problem if isinstance(error, JudgeFailed) else str(error)
        return JudgeScore(name, kind, weight, None, failure=clean(problem)[:MAX_RATIONALE_CHARS])
    scale, score = judge.scale, result.score
    has_passed = None if score is None or rival is not None else passes(scale, score, settings.pass_at)
    points = None if score is None or has_passed is None else find_points(scale, score, has_passed=has_passed)
    label, rationale = clean(result.label), clean(result.rationale)[:MAX_RATIONALE_CHARS]
    return JudgeScore(name, kind, weight, score, label, rationale, has_passed, points=points)


def passes(scale: ScoreScale, score: float, pass_at: float | None) -> bool | None:
    """Return true if a score passes: by the evaluation, else by the judge, else in the better half of the scale.

    None if a scale has no end, and nobody says what passes.
    """
    limit = scale.pass_at if pass_at is None else pass_at
    if limit is None and isfinite(scale.high) and isfinite(scale.low):
        limit = (scale.low + scale.high) / 2
    if limit is None:
        return None
    return score <= limit if scale.is_lower_better else score >= limit


def find_points(scale: ScoreScale, score: float, *, has_passed: bool) -> float:
    """Return a score as points from 0 to 1, of which more are better; on a scale without an end only passing counts."""
    if not (isfinite(scale.low) and isfinite(scale.high)) or scale.high <= scale.low:
        return float(has_passed)
    points = (score - scale.low) / (scale.high - scale.low)
    return 1 - points if scale.is_lower_better else points


def build_judge(settings: EvalJudge, ask: Ask) -> Judge | PairRubricJudge:
    """Make a judge. Raise `ConfigError` if a setting is wrong, or a package does not offer its function, or it cannot be loaded."""
    reader = TableReader()
    read = read_judge({"kind": settings.kind, **settings.settings}, settings.name, reader)
    if read is None:
        raise TablesInvalid(reader.problems)
    return create_judge(settings.name, read, ask)
