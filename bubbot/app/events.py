"""The payload models of the facts of all features, and the references that they declare."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bubbot.app.config_view import ConfigLoaded, ConfigRefused
from bubbot.features.access.state import ACCESS_EVENTS
from bubbot.features.agents.events import AGENT_EVENTS
from bubbot.features.approvals.state import APPROVAL_EVENTS
from bubbot.features.attachments.events import ATTACHMENT_EVENTS
from bubbot.features.budget.events import BUDGET_EVENTS
from bubbot.features.explain.events import EXPLAIN_EVENTS
from bubbot.features.files.events import FILE_EVENTS
from bubbot.features.memory.facts import MEMORY_FACTS
from bubbot.features.otel.events import OTEL_EVENTS
from bubbot.features.replay.events import REPLAY_EVENTS
from bubbot.features.schedule.events import SCHEDULE_EVENTS
from bubbot.features.strategies.events import STRATEGY_EVENTS
from bubbot.features.topics.events import TOPIC_EVENTS
from bubbot.features.web.events import WEB_EVENTS
from bubbot.gateway.facts import GATEWAY_REFERENCES
from bubbot.tape.fact import models_of

FEATURE_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        **models_of(*MEMORY_FACTS),
        **ATTACHMENT_EVENTS,
        **FILE_EVENTS,
        **SCHEDULE_EVENTS,
        **BUDGET_EVENTS,
        **ACCESS_EVENTS,
        **STRATEGY_EVENTS,
        **TOPIC_EVENTS,
        **AGENT_EVENTS,
        **APPROVAL_EVENTS,
        **WEB_EVENTS,
        **EXPLAIN_EVENTS,
        **REPLAY_EVENTS,
        **OTEL_EVENTS,
    }
)
"""The payload models of our own features, by the name of the event."""

OWN_REFERENCES = GATEWAY_REFERENCES.with_events({**models_of(ConfigLoaded, ConfigRefused), **FEATURE_EVENTS})
"""What bubbot's own entries name, those of its features included."""
