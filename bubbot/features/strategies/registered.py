"""The strategies of the feature."""

from __future__ import annotations

from bubbot.features.strategies.compact import find_floor, fold_compact, fold_compact_whole
from bubbot.features.strategies.events import CUT
from bubbot.features.strategies.first_version import fold_compact_first, fold_with_hint
from bubbot.runtime.context.strategy import ContextStrategy

STRATEGIES = (
    ContextStrategy(
        "compact",
        fold_compact,
        version=3,
        is_compacting=True,
        events=(CUT,),
        start_event=CUT,
        find_floor=find_floor,
        earlier={1: fold_compact_first, 2: fold_compact_whole},
        help="the window, and when it gets too long without its oldest part",
    ),
    ContextStrategy(
        "summary",
        fold_compact,
        version=3,
        is_compacting=True,
        events=(CUT,),
        start_event=CUT,
        find_floor=find_floor,
        earlier={1: fold_with_hint, 2: fold_compact_whole},
        help="the window, and before it gets too long a new one that begins with a summary; between them as compact",
    ),
)
"""The strategies of this feature."""
