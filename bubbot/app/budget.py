"""The facts about configured models for budgets."""

from __future__ import annotations

from bubbot.features.agents.settings import AgentSettings, AgentsSettings
from bubbot.features.budget.limits import ModelFacts
from bubbot.features.budget.settings import LimitSettings
from bubbot.models.catalogue import sizes
from bubbot.settings.loader import Settings


def model_facts(settings: Settings) -> ModelFacts:
    """Return the facts about models in these settings; prices come from litellm's list."""
    return ModelFacts(
        lambda name: sizes.find_price(name, own_address=settings.model.has_own_address(name)),
        sizes.find_output_limit,
        settings.model.fallback,
        settings.model.max_tokens,
        settings.model.name,
        {name: _limits_of(agent) for name, agent in settings.section(AgentsSettings).named.items()},
    )


def _limits_of(agent: AgentSettings) -> LimitSettings:
    """Return the limits of an agent: the keys of the same names."""
    return LimitSettings(**{key: getattr(agent, key) for key in LimitSettings.model_fields})
