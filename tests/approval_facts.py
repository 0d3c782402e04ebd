"""Facts about approvals, for tests: each with defaults for what a test is not about."""

from __future__ import annotations

from typing import Any

from bubbot.features.approvals.facts import ApprovalAsked, ApprovalOpened, StoredCall, ToolGranted
from bubbot.ports.tool import GrantKind, GrantTarget

EXPIRES = "2026-11-24T20:00:00+00:00"


def make_call(**changes: Any) -> StoredCall:
    """A call that reads a page, and for which a grant may stand."""
    data: dict[str, Any] = {
        "id": "approved0", "tool": "page.read", "name": "page_read", "arguments": "{}", "digest": "d",
        "details": "read it", "state": "", "target": GrantTarget(GrantKind.DOMAIN, "example.org"),
    }  # fmt: skip
    return StoredCall(**{**data, **changes})


def make_asked(*calls: StoredCall, **changes: Any) -> ApprovalAsked:
    """A card for these calls, or for one."""
    data: dict[str, Any] = {
        "id": "7KQ2M", "calls": calls or (make_call(),), "verdict": "ask", "why": ("outside",),
        "tainted_by": (("chat", 12),), "scopes": ("once", "chat", "always"), "expires": EXPIRES, "asker": "42",
        "channel": "telegram", "chat": "42", "window": 1,
    }  # fmt: skip
    return ApprovalAsked(**{**data, **changes})


def make_opened(**changes: Any) -> ApprovalOpened:
    """A card that waits for an answer."""
    data: dict[str, Any] = {
        "id": "7KQ2M", "session": "telegram:42", "tape": "chat", "verdict": "ask", "tools": ("post.send",),
        "targets": (("recipient", "bob"),), "scopes": ("once", "chat", "always"), "expires": EXPIRES,
        "channel": "telegram", "chat": "42", "thread": "", "direct": False, "space": "", "asker": "42",
        "asker_name": "", "asker_roles": (), "card": "telegram:42", "window": ("chat", 1), "digests": ("d",),
    }  # fmt: skip
    return ApprovalOpened(**{**data, **changes})


def make_grant(**changes: Any) -> ToolGranted:
    """A grant, everywhere and always."""
    data = {
        "tool": "post.send", "kind": "recipient", "value": "bob", "approval": "AAAAA", "by": "1", "channel": "telegram",
    }  # fmt: skip
    return ToolGranted(**{**data, **changes})
