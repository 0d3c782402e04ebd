"""A program that reads granted chats through MCP, and asks for others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from zoneinfo import ZoneInfo

from bubbot.app.events import OWN_REFERENCES
from bubbot.app.mcp_serve import FeatureViews
from bubbot.errors import BubbotError
from bubbot.features.mcp.serve.reading import GrantedTapes
from bubbot.features.mcp.serve.tools import TOOLS
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.tape.store import TapeStore

ASKED = "about"
"""A word of most messages."""


async def read_all(
    store: TapeStore, workspace: str, granted: Sequence[str], asked: Sequence[str]
) -> AsyncIterator[tuple[str, str]]:
    """Yield what each tool answers about each chat that is asked for, with the name of the tool.

    Args:
        granted: the chats that the program may read.
        asked: the chats that it asks for.
    """
    viewer = Viewer("the program", frozenset(granted))
    boundary = TapeBoundary(store, viewer, workspace=workspace, references=OWN_REFERENCES)
    tapes = GrantedTapes(boundary, FeatureViews(ZoneInfo("UTC")), tuple(granted))
    for tool in TOOLS:
        words = {"query": ASKED} if tool.name == "search" else {}
        for session in asked:
            limit = {} if tool.name == "why" else {"limit": 100}
            try:
                yield tool.name, json.dumps(await tool.call(tapes, {**words, **limit, "session": session}))
            except BubbotError as error:
                yield tool.name, str(error)
