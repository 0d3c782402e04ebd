"""The feature: judgements of answers."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.judge.commands import JudgeCommands
from bubbot.features.judge.settings import JudgeSettings
from bubbot.settings.loader import Settings

FOR_PEOPLE = {"is_for_people": True}


def create(_kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    section = settings.section(JudgeSettings)
    commands = JudgeCommands(lambda: section)
    tools = make_tools(JudgeCommands, lambda: commands, judge_rate=FOR_PEOPLE, judge_list=FOR_PEOPLE)
    return Feature(name="judge", tools=tools)
