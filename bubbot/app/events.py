"""The references that the facts of bubbot and of its features declare."""

from __future__ import annotations

from bubbot.app.config_view import ConfigLoaded, ConfigRefused
from bubbot.app.own_features import own_events
from bubbot.gateway.facts import GATEWAY_REFERENCES
from bubbot.tape.fact import models_of

OWN_REFERENCES = GATEWAY_REFERENCES.with_events({**models_of(ConfigLoaded, ConfigRefused), **own_events()})
"""The references of bubbot's own entries, features included."""
