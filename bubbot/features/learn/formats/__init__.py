"""The formats of exports."""

from __future__ import annotations

from bubbot.features.learn.formats.areal import AREAL
from bubbot.features.learn.formats.atif import ATIF
from bubbot.features.learn.formats.inspect import INSPECT
from bubbot.features.learn.formats.openai import OPENAI_CHAT, OPENAI_PREFERENCE
from bubbot.features.learn.formats.trl import TRL_KTO, TRL_PREFERENCE, TRL_SFT
from bubbot.features.learn.formats.writer import ExportFormat

FORMATS: tuple[ExportFormat, ...] = (
    ATIF, OPENAI_CHAT, OPENAI_PREFERENCE, TRL_SFT, TRL_PREFERENCE, TRL_KTO, INSPECT, AREAL,
)  # fmt: skip
