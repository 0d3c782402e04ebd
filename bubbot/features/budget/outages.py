"""Models that do not answer, and why, in our own words."""

from __future__ import annotations

from msgspec import Struct

from bubbot.errors import (
    ModelEmptyAnswer,
    ModelKeyMissing,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    ModelUnconfigured,
)
from bubbot.texts import Texts

LASTING_STATUSES = (401, 402, 403, 404, 410, 429)
"""HTTP statuses with which a provider refuses every call, until somebody changes a setting, a key or an account."""


class ModelOutage(Struct, frozen=True):
    """A model that was called and has not answered since.

    Attributes:
        name: that of the model.
        since: when it first did not answer, ISO 8601 in UTC.
        newest: when it was last asked, ISO 8601 in UTC.
        kind: that of the error.
        status: the HTTP status that its provider sent; None if there was none.
    """

    name: str
    since: str
    newest: str
    kind: str
    status: int | None = None


def explain_outage(texts: Texts, outage: ModelOutage) -> str:
    """Say why a model does not answer, in our own words: a provider's may repeat what somebody wrote."""
    match outage.kind, outage.status:
        case ModelUnconfigured.kind, _:
            return texts.say("failing_unconfigured")
        case ModelKeyMissing.kind, _:
            return texts.say("failing_no_key")
        case ModelRefused.kind, 401 | 403:
            return texts.say("failing_key")
        case ModelRefused.kind, 402 | 429:
            return texts.say("failing_no_credit")
        case ModelRefused.kind, 404 | 410:
            return texts.say("failing_no_model")
        case ModelRefused.kind, None:
            return texts.say("failing_refused")
        case ModelRefused.kind, status:
            return texts.say("failing_refused_status", status=status)
        case ModelRateLimited.kind, _:
            return texts.say("failing_rate")
        case ModelEmptyAnswer.kind, _:
            return texts.say("failing_empty")
        case ModelUnavailable.kind, int(status):
            return texts.say("failing_status", status=status)
        case ModelUnavailable.kind, _:
            return texts.say("failing_unavailable")
    return texts.say("failing_otherwise", kind=outage.kind)


def needs_operator(outage: ModelOutage) -> bool:
    """Return true if waiting does not help: a key, an account or a setting has to change."""
    if outage.kind in (ModelUnconfigured.kind, ModelKeyMissing.kind):
        return True
    return outage.kind == ModelRefused.kind and outage.status in LASTING_STATUSES
