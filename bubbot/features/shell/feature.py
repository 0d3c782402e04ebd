"""The feature: tools that run programs, off by default."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bubbot.arguments.fields import dump_args
from bubbot.feature import Apply, Around, Feature, Lifecycle
from bubbot.features.shell.settings import ShellSettings
from bubbot.middleware import CallNext, ToolInvocation
from bubbot.ports.folders import ListFolders, list_no_folders
from bubbot.settings.loader import Settings
from bubbot.tool import ToolOutput

if TYPE_CHECKING:
    from bubbot.features.shell.service import ShellService


class ShellFeature:
    """The programs of one bot: they outlive a change of the settings, and end with it."""

    def __init__(self, home: Path, settings: Settings, list_folders: ListFolders = list_no_folders) -> None:
        """Build it without reading anything. `list_folders` returns the folders that a command may read besides."""
        self._home, self._list_folders = home, list_folders
        self._service: ShellService | None = None
        self._settings = settings.section(ShellSettings)

    def feature(self) -> Feature:
        """Build the record under the settings in force."""
        settings = self._settings
        if not settings.enabled:
            return Feature(
                name="shell", lifecycle=Lifecycle(lifespan=self._lifespan, prepare=self._prepare, renew=self.feature)
            )
        from bubbot.features.shell.commands import shell_tools

        self._service = self._service or self._make_service(settings)
        return Feature(
            name="shell",
            tools=shell_tools(self._service, settings),
            around=Around(tool=(self._end_at_reset,)),
            lifecycle=Lifecycle(lifespan=self._lifespan, prepare=self._prepare, renew=self.feature),
        )

    def _make_service(self, settings: ShellSettings) -> ShellService:
        # Imported here: bots without these tools load nothing of them.
        from bubbot.features.shell.service import ShellService

        return ShellService(settings, self._home, time.monotonic, self._list_folders)

    async def _prepare(self, settings: Settings) -> Apply:
        section = settings.section(ShellSettings)

        def apply() -> None:
            self._settings = section
            if self._service is not None:
                self._service.apply(section)

        return apply

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        """Try the sandbox at the start, so that the log says at once why nothing runs; end every program at the end."""
        if self._service is not None:
            from bubbot.sandbox.sandbox import SandboxUnusable

            with suppress(SandboxUnusable):
                await self._service.find_sandbox()
        try:
            yield
        finally:
            if self._service is not None:
                await self._service.close()

    async def _end_at_reset(
        self, invocation: ToolInvocation, call_next: CallNext[ToolInvocation, ToolOutput]
    ) -> ToolOutput:
        """End the programs of a chat before it begins anew: they write to files that may be erased."""
        has_reset = invocation.tool.name == "session.reset" and dump_args(invocation.args).get("how")
        if has_reset and self._service is not None:
            await self._service.end_jobs(invocation.turn.session)
        return await call_next(invocation)
