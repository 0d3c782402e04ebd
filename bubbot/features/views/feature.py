"""The feature: views of other chats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bubbot.command import make_tools
from bubbot.feature import Apply, Around, Feature, Kernel, Lifecycle
from bubbot.features.views.facts import VIEWS_TAPE
from bubbot.features.views.service import ViewService
from bubbot.features.views.settings import ViewSettings
from bubbot.features.views.showing import ViewShower
from bubbot.settings.loader import Settings


def create_lasting(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature; new settings reach it by `prepare`."""
    section = settings.section(ViewSettings)
    service = ViewService(
        kernel.open_tape(VIEWS_TAPE),
        kernel.may_read,
        projections=kernel.projections,
        first_session=kernel.first_session,
    )
    shower = ViewShower(service, kernel.read_session, lambda: section)

    @asynccontextmanager
    async def load_views() -> AsyncIterator[None]:
        await service.load()
        yield

    async def prepare(changed: Settings) -> Apply:
        found = changed.section(ViewSettings)

        def apply() -> None:
            nonlocal section
            section = found

        return apply

    return Feature(
        name="views",
        tools=make_tools(ViewService, lambda: service),
        services=(service,),
        around=Around(before_step=(shower.before_step,), withholds=(shower.withholds,)),
        lifecycle=Lifecycle(lifespan=load_views, prepare=prepare),
    )
