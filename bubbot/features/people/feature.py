"""The feature: what people allow, everything about them, and that they are forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from bubbot.command import make_tools
from bubbot.feature import Apply, Feature, Kernel, Lifecycle
from bubbot.features.people.consent import ConsentService
from bubbot.features.people.export import EXPORT_TIMEOUT_SECONDS, ExportCommands
from bubbot.features.people.facts import PersonForgetting
from bubbot.features.people.forget import ForgetCommands
from bubbot.features.people.notices import ForgettingNotices
from bubbot.gateway.requests import NotifyOwner
from bubbot.ports.forgetting import PEOPLE_TAPE
from bubbot.ports.people import FindAccounts, FindOwners
from bubbot.tape.fork import MergeResult

# What is exported may hold judgements.
EXPORT_OPTIONS: Mapping[str, Any] = MappingProxyType({"timeout": EXPORT_TIMEOUT_SECONDS, "is_for_people": True})


class PeopleFeature:
    """The feature about people of a bot. Its commands of a shell reach the running bot, so it lasts across reloads."""

    def __init__(
        self,
        kernel: Kernel,
        consents: ConsentService,
        settings: Any,
        *,
        build_exports: Callable[[Any], ExportCommands],
        notify_owner: NotifyOwner,
        find_accounts: FindAccounts,
        find_owners: FindOwners,
    ) -> None:
        """Build it.

        Args:
            settings: all settings.
            build_exports: builds the exports under these settings.
            notify_owner: notifies an owner in a direct chat.
            find_accounts: knows which accounts belong to one person.
            find_owners: names those who decide about the chats of a channel.
        """
        self._kernel, self._consents = kernel, consents
        self._build_exports, self._exports = build_exports, build_exports(settings)
        self._notices = ForgettingNotices(kernel.open_tape(PEOPLE_TAPE), notify_owner)
        self._commands = ForgetCommands(kernel.open_tape, find_accounts, kernel.restart, find_owners)

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="people",
            tools=[
                *make_tools(ConsentService, lambda: self._consents),
                *make_tools(ExportCommands, lambda: self._exports, people_export=EXPORT_OPTIONS),
                *make_tools(ForgetCommands, lambda: self._commands),
            ],
            services=(self._commands,),
            on_merged=(self._follow,),
            lifecycle=Lifecycle(
                lifespan=self._lifespan,
                background_everywhere={"notices of forgotten people": self._notices.run},
                prepare=self._prepare,
            ),
        )

    async def _follow(self, merged: MergeResult) -> None:
        """Start again if a turn asked to forget somebody."""
        if any(entry.name in PersonForgetting.EVENTS for entry in merged.staged.get(PEOPLE_TAPE, ())):
            self._kernel.restart()
        self._notices.retry()

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        await self._notices.load()
        yield

    async def _prepare(self, settings: Any) -> Apply:
        exports = self._build_exports(settings)

        def apply() -> None:
            self._exports = exports

        return apply
