"""The context strategies of bubbot: those of the kernel and those of its features."""

from __future__ import annotations

from msgspec import structs

from bubbot.features.strategies.compact import COMPACT, SUMMARY
from bubbot.features.strategies.retrieval import RETRIEVAL
from bubbot.runtime.context.strategy import KERNEL_STRATEGIES

OWN_STRATEGIES = structs.replace(
    KERNEL_STRATEGIES, own=(*KERNEL_STRATEGIES.own, COMPACT, SUMMARY, RETRIEVAL), for_known_size="compact"
)
"""bubbot's own strategies."""
SELECTORS = OWN_STRATEGIES.selectors
"""Their selectors as written in the settings."""
