"""The routes of the proxy that begin and end recorded sessions and take rewards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bubbot.errors import RlProxyFailed
from bubbot.log import redact

if TYPE_CHECKING:
    import aiohttp

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
MAX_ANSWER_BYTES = 64_000
MAX_REASON_CHARS = 200


class RlKey(NamedTuple):
    """A session of the proxy, and the key of its calls."""

    rl: str
    key: str


class RlClient:
    """Speaks to a proxy. AReaL's first one and the gateway of its second inference service have the same routes, with other answers."""

    def __init__(self) -> None:
        self._http: aiohttp.ClientSession | None = None

    async def start(self, url: str, admin_key: str, task: str, key: str = "") -> RlKey:
        """Begin a session.

        Args:
            task: a name for the proxy.
            key: that of an ended session, to be used again; empty for another one.

        Raises:
            RlProxyFailed: it did not begin; 429 if there is no room.
        """
        body = {"task_id": task} | ({"api_key": key} if key else {})
        try:
            answer = await self._post(url, "rl/start_session", admin_key, body)
        except RlProxyFailed as error:
            if not key or error.status not in (400, 409):
                raise
            answer = await self._post(url, "rl/start_session", admin_key, {"task_id": task})  # the key is still in use
        sessions = answer.get("sessions")
        found = sessions[0] if isinstance(sessions, list) and sessions and isinstance(sessions[0], dict) else answer
        rl, session_key = found.get("session_id"), found.get("session_api_key", found.get("api_key"))
        if not (isinstance(rl, str) and rl and isinstance(session_key, str) and session_key.isprintable()):
            raise RlProxyFailed("its answer has no session_id and key: it is no proxy of AReaL")
        return RlKey(rl, session_key)

    async def set_reward(self, url: str, key: str, completion: str, reward: float) -> None:
        """Set the reward of a call. Raise `RlProxyFailed`."""
        await self._post(url, "rl/set_reward", key, {"interaction_id": completion, "reward": reward})

    async def end(self, url: str, key: str) -> None:
        """End a session. Raise `RlProxyFailed`; the second service has no such route, and answers 404."""
        await self._post(url, "rl/end_session", key, {})

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _post(self, url: str, path: str, key: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        from aiohttp import ClientError, ClientSession, ClientTimeout

        if self._http is None:
            self._http = ClientSession(timeout=ClientTimeout(ANSWER_SECONDS, sock_connect=CONNECT_SECONDS))
        address = f"{url.rstrip('/')}/{path}"
        headers = {"authorization": f"Bearer {key}"}
        try:
            # Not redirected: the key is for this server.
            async with self._http.post(address, json=body, headers=headers, allow_redirects=False) as response:
                answer = b""
                while len(answer) < MAX_ANSWER_BYTES and (piece := await response.content.read(MAX_ANSWER_BYTES)):
                    answer += piece
                if response.status // 100 != 2:
                    words = redact(answer.decode(errors="replace").replace(key, "***"))[:MAX_REASON_CHARS]
                    raise RlProxyFailed(f"{path} answers {response.status}: {words}", status=response.status)
        except TimeoutError:
            raise RlProxyFailed(f"{path} gave no answer in time") from None
        except (ClientError, OSError, ValueError) as error:
            raise RlProxyFailed(f"it cannot be reached ({type(error).__name__})") from error
        try:
            found = json.loads(answer)
        except ValueError:
            found = {}
        return found if isinstance(found, dict) else {}
