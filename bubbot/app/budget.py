"""The facts about configured models for budgets."""

from __future__ import annotations

from bubbot.features.budget.limits import ModelFacts
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
    )
