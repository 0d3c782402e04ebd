"""The two ways to a provider that speaks the OpenAI protocol: the direct client and litellm. A test file takes both:

    from tests.e2e.model_paths import model_path  # noqa: F401 - a fixture
    pytestmark = pytest.mark.usefixtures("model_path")

`make_model` and `via` then follow the way of the test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Literal

import pytest
from msgspec import structs

from bubbot.models.catalogue.sizes import find_mode
from bubbot.models.fallback import FallbackModel
from bubbot.models.openai.providers import is_direct
from bubbot.models.provider import ProviderModel
from bubbot.ports.model import ModelOptions

PATHS = ("direct", "litellm")


class Way:
    """The way of the running test."""

    path = "litellm"


@pytest.fixture(params=PATHS)
def model_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way in turn."""
    if request.param == "litellm":
        request.getfixturevalue("loaded_litellm")
    monkeypatch.setattr(Way, "path", request.param)
    return str(request.param)


def via() -> Literal["auto", "litellm"]:
    """What `[model] via` is for the way of the test."""
    return "litellm" if Way.path == "litellm" else "auto"


def make_model(
    options: ModelOptions, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> ProviderModel | FallbackModel:
    """The model, with its fallbacks as a bot has them."""
    first, *others = (
        _make_one(structs.replace(options, name=name), sleep)
        for name in (options.name, *options.settings.get("fallback", ()))
    )
    return FallbackModel(options.name, first.traits, (first, *others)) if others else first


def _make_one(options: ModelOptions, sleep: Callable[[float], Awaitable[None]]) -> ProviderModel:
    api_base = options.settings.get("api_base")
    if Way.path == "direct" and is_direct(options.name, mode=find_mode(options.name), api_base=api_base):
        from bubbot.models.openai.model import make_model as make_direct

        return make_direct(options, os.environ, sleep=sleep)
    from bubbot.models.litellm.model import make_model as make_litellm

    return make_litellm(options, sleep=sleep)
