"""Rate limits: buckets per channel and kind of request, and one limit for everything."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass, field

Window = tuple[int, float]
"""So many requests in so many seconds."""


@dataclass(frozen=True, slots=True)
class Limits:
    """About what is seen on the platform. `everything` counts all requests but those with the token of an interaction."""

    messages: Window = (5, 5.0)
    edits: Window = (5, 5.0)
    reactions: Window = (1, 0.25)
    others: Window = (50, 10.0)
    everything: Window = (50, 1.0)


@dataclass(slots=True)
class _Bucket:
    used: int = 0
    ends: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The headers of one answer, and the seconds to wait where the request is refused."""

    headers: dict[str, str]
    wait: float = 0.0
    scope: str = "user"


@dataclass(slots=True)
class Buckets:
    """Counts what was asked. Windows begin with their first request, as on the platform."""

    limits: Limits | None
    buckets: dict[str, _Bucket] = field(default_factory=dict)
    recent: deque[float] = field(default_factory=deque)

    def check(self, route: str, major: str, now: float) -> Verdict:
        """Lets a request through or says how long to wait; a refused one does not count."""
        if self.limits is None:
            return Verdict({})
        count, seconds = self.limits.everything
        while self.recent and self.recent[0] <= now - seconds:
            self.recent.popleft()
        if len(self.recent) >= count and not route.split()[1].startswith(("/interactions", "/webhooks")):
            return Verdict({"X-RateLimit-Global": "true"}, self.recent[0] + seconds - now, "global")
        limit, length = self._window(route)
        name = hashlib.sha256(self._group(route).encode()).hexdigest()[:32]
        bucket = self.buckets.setdefault(f"{name}:{major}", _Bucket())
        if bucket.ends <= now:
            bucket.used, bucket.ends = 0, now + length
        refused = bucket.used >= limit
        if not refused:
            bucket.used += 1
            self.recent.append(now)
        headers = {
            "X-RateLimit-Limit": str(limit),
            "X-RateLimit-Remaining": str(limit - bucket.used),
            "X-RateLimit-Reset": f"{bucket.ends:.3f}",
            "X-RateLimit-Reset-After": f"{bucket.ends - now:.3f}",
            "X-RateLimit-Bucket": name,
        }
        return Verdict(headers, bucket.ends - now if refused else 0.0)

    def _group(self, route: str) -> str:
        return "reactions" if "/reactions/" in route else route

    def _window(self, route: str) -> Window:
        assert self.limits is not None
        if "/reactions/" in route:
            return self.limits.reactions
        if route == "POST /channels/{}/messages":
            return self.limits.messages
        if route == "PATCH /channels/{}/messages/{}":
            return self.limits.edits
        return self.limits.others
