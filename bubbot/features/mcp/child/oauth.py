"""OAuth."""

from __future__ import annotations

import httpx2

from bubbot.features.mcp.child.values import ServerPlace


def use_login(place: ServerPlace) -> httpx2.Auth | None:
    """Return the login of a server."""
    return None
