"""The feature: tools of other programs, off by default. Off, it reads nothing and starts nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bubbot.feature import Apply, Feature, Kernel, Lifecycle
from bubbot.features.mcp.settings import McpSettings
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.settings.loader import Settings
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tool import Tool

if TYPE_CHECKING:
    from bubbot.features.mcp.host import McpHost
    from bubbot.features.mcp.service import McpService
    from bubbot.features.mcp.tools import McpTools

REACH_SECONDS = 300.0
"""The longest time that a command which reaches servers may take."""
REACHING = ("mcp_check", "mcp_tools", "mcp_pin")


class McpFeature:
    """The servers of one bot: what they hold outlives a change of the settings, and ends with the bot."""

    def __init__(self, kernel: Kernel, settings: McpSettings) -> None:
        self._kernel = kernel
        self._settings = settings
        self._service: McpService | None = None
        self._host: McpHost | None = None
        self._tools: McpTools | None = None
        self._is_held = False

    def feature(self) -> Feature:
        """Build the record under the settings in force."""
        if self._settings.enabled and self._service is None:
            self._make_service()
        return Feature(
            name="mcp",
            tools=[*self._list_own_tools(), *self._list_tools()] if self._settings.enabled else (),
            services=(self,),
            lifecycle=Lifecycle(lifespan=self._lifespan, prepare=self._prepare, renew=self.feature),
            health=self._report,
        )

    async def open(self) -> McpService:
        """Return the service, for commands of a shell; also if it is off."""
        if self._service is None:
            self._make_service()
            await self._load()
        assert self._service is not None
        return self._service

    @property
    def is_calling(self) -> bool:
        """True while a server is asked."""
        return self._host is not None and self._host.is_busy

    async def close_host(self) -> None:
        """End the connections; the next call opens others."""
        if self._host is not None:
            await self._host.close()

    def _make_service(self) -> None:
        # Imported here: bots without these tools load nothing of them.
        from bubbot.features.mcp.facts import MCP_TAPE
        from bubbot.features.mcp.host import McpHost
        from bubbot.features.mcp.secrets import McpSecrets
        from bubbot.features.mcp.service import McpRules, McpService
        from bubbot.features.mcp.tools import McpTools

        kernel = self._kernel
        rules = McpRules(kernel.home, lambda: self._settings, kernel.renew_tools)
        self._host = McpHost(kernel.home, lambda: self._settings, McpSecrets(kernel.home))
        self._service = McpService(kernel.open_tape, rules, host=self._host, projections=kernel.projections)
        self._tools = McpTools(kernel, self._service, self._host)
        kernel.projections.watch(MCP_TAPE, self._renew_tools)

    async def _renew_tools(self) -> None:
        """Offer what is pinned now: another process may have changed that."""
        self._kernel.renew_tools()

    def _list_own_tools(self) -> list[Tool]:
        from bubbot.command import make_tools
        from bubbot.features.mcp.service import McpService

        return make_tools(McpService, lambda: self._service, **{name: {"timeout": REACH_SECONDS} for name in REACHING})

    def _list_tools(self) -> list[Tool]:
        """Return the pinned tools; none in quarantine: the original bot may be using them."""
        return self._tools.build() if self._tools is not None and not self._is_held else []

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        await self._load()
        try:
            yield
        finally:
            await self.close_host()

    async def _load(self) -> None:
        """Read what is pinned, if it is on."""
        if self._service is None:
            return
        self._is_held = await self._kernel.open_tape(HOME_TAPE).read(QuarantineView()) is not None
        await self._service.load()

    def _report(self, context: HealthContext) -> FeatureHealth:
        from bubbot.features.mcp.health import mcp_health

        if self._service is None or self._host is None or not self._settings.enabled:
            return FeatureHealth(name="mcp")
        return mcp_health(context, self._service.state, self._host.pid)

    async def _prepare(self, settings: Settings) -> Apply:
        section = settings.section(McpSettings)
        if section.enabled:
            await self.open()

        def apply() -> None:
            self._settings = section

        return apply


def create_lasting(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature; its connections outlive a change of the settings."""
    return McpFeature(kernel, settings.section(McpSettings)).feature()
