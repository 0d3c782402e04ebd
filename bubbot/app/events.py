"""The payload models of the facts of all features, and the references that they declare."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bubbot.features.access.state import ACCESS_EVENTS
from bubbot.features.agents.facts import AgentEnded, AgentStarted
from bubbot.features.approvals.state import APPROVAL_EVENTS
from bubbot.features.attachments.facts import AttachmentFailed, AttachmentTranscribed
from bubbot.features.budget.state import BUDGET_EVENTS
from bubbot.features.explain.facts import EXPLAIN_FACTS
from bubbot.features.files.facts import FILE_FACTS
from bubbot.features.memory.facts import MEMORY_FACTS
from bubbot.features.otel.facts import OTEL_FACTS
from bubbot.features.replay.facts import REPLAY_FACTS, REPLAY_TAPE, REPLAYED
from bubbot.features.schedule.events import SCHEDULE_EVENTS
from bubbot.features.strategies.facts import STRATEGY_FACTS
from bubbot.features.topics.facts import TopicBound
from bubbot.features.web.facts import WEB_FACTS
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.fact import models_of

FEATURE_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        **models_of(*MEMORY_FACTS),
        **models_of(AttachmentFailed, AttachmentTranscribed),
        **models_of(*FILE_FACTS),
        **SCHEDULE_EVENTS,
        **BUDGET_EVENTS,
        **ACCESS_EVENTS,
        **models_of(*STRATEGY_FACTS),
        **models_of(TopicBound),
        **models_of(AgentStarted, AgentEnded),
        **APPROVAL_EVENTS,
        **models_of(*WEB_FACTS),
        **models_of(*EXPLAIN_FACTS, *REPLAY_FACTS, *OTEL_FACTS),
    }
)
"""The payload models of our own features, by the name of the event."""

OWN_REFERENCES = KERNEL_REFERENCES.with_events(FEATURE_EVENTS)
"""What bubbot's own entries name, those of its features included."""
QUOTING_EVENTS: Mapping[str, tuple[str, ...]] = MappingProxyType({REPLAY_TAPE: (REPLAYED,)})
"""Facts that quote a tape, with its name in `tape` and its session in `session`, by the tape on which they stand."""
