"""Making judges of their settings."""

from __future__ import annotations

from bubbot import plugins
from bubbot.features.judge.judges.checks import (
    CitedJudge,
    CostJudge,
    ExactJudge,
    JsonSchemaJudge,
    PythonJudge,
    RegexJudge,
    TimeJudge,
    UsedToolsJudge,
)
from bubbot.features.judge.judges.judging import Judge
from bubbot.features.judge.judges.rubric import Ask, PairRubricJudge, RubricJudge
from bubbot.features.judge.judges.settings import (
    JUDGE_GROUP,
    CitedSettings,
    CostSettings,
    ExactSettings,
    JsonSchemaSettings,
    JudgeSettings,
    PythonSettings,
    RegexSettings,
    RubricSettings,
    TimeSettings,
    UsedToolsSettings,
)


def create_judge(name: str, settings: JudgeSettings, ask: Ask) -> Judge | PairRubricJudge:
    """Make a judge; a `PairRubricJudge` only for a rubric that is pairwise.

    Args:
        name: of the judge.
        settings: as `read_judge` returns them.
        ask: asks a model, for `RubricSettings` the one that they name.

    Raises:
        ConfigError: no package offers the function, or it cannot be loaded.
    """
    match settings:
        case ExactSettings():
            return ExactJudge(name, settings)
        case RegexSettings():
            return RegexJudge(name, settings)
        case JsonSchemaSettings():
            return JsonSchemaJudge(name, settings)
        case PythonSettings():
            return PythonJudge(name, settings, plugins.load(JUDGE_GROUP, settings.function))
        case CitedSettings():
            return CitedJudge(name, settings)
        case UsedToolsSettings():
            return UsedToolsJudge(name, settings)
        case CostSettings():
            return CostJudge(name, settings)
        case TimeSettings():
            return TimeJudge(name, settings)
        case RubricSettings():
            return PairRubricJudge(name, settings, ask) if settings.pairwise else RubricJudge(name, settings, ask)
