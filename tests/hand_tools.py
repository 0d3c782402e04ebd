"""The tools that are off by default, for the tests that go through all tools."""

from __future__ import annotations

from typing import Any

from bubbot.features.files.commands import file_tools
from bubbot.features.shell.commands import shell_tools
from bubbot.features.shell.settings import ShellSettings
from bubbot.features.web.commands import web_tools
from bubbot.tool import Tool

UNUSED: Any = None


def hand_tools() -> list[Tool]:
    """Build them without what they act on."""
    return [*file_tools(UNUSED), *web_tools(UNUSED, UNUSED, ()), *shell_tools(UNUSED, ShellSettings())]
