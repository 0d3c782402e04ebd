"""Requests among processes: rows of a table, which `NOTIFY` makes quick and a slow poll makes certain."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from bubbot.errors import BubbotError
from bubbot.ports.requests import ANSWER_SECONDS, EVERYBODY, AnswerRequest
from bubbot.stores.postgres.connections import AsyncConnection, ServerAddress, adapt, session_statements
from bubbot.stores.postgres.pool import ConnectionPool
from bubbot.tape.entry import JsonObject

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Seconds after which a process looks at the table if nothing woke it."""
RECONNECT_SECONDS = 1.0
"""Seconds before the next attempt to listen."""
EVERYBODY_SECONDS = 60
"""Seconds for which a request to everybody stays: a process that was away for longer has started since."""
_CHANNEL = "bubbot_requests"
_NOTIFY = f"SELECT pg_notify('{_CHANNEL}', current_schema())"
_POST = (
    "INSERT INTO requests (session, kind, data, expires) "
    "VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s)) RETURNING request"
)
_OPEN = (
    "SELECT request, session, kind, data FROM requests WHERE answer IS NULL AND expires > clock_timestamp() "
    "AND NOT request = ANY (%s) ORDER BY request"
)
_ANSWER = "UPDATE requests SET answer = %s WHERE request = %s AND answer IS NULL AND expires > clock_timestamp()"
_TAKE = "DELETE FROM requests WHERE request = %s AND answer IS NOT NULL RETURNING answer"
_DROP = "DELETE FROM requests WHERE request = %s"
_SWEEP = "DELETE FROM requests WHERE expires < clock_timestamp() - interval '1 minute'"


class ServerRequests:
    """See `WorkerRequests`. The first use opens connections."""

    def __init__(self, address: ServerAddress, role: str) -> None:
        self._address, self._role = address, role
        self._pool = ConnectionPool(address, self._begin_session, name="bubbot requests", max_size=2)
        self._woken = asyncio.Condition()
        self._is_listening = False

    async def post(
        self, session: str, kind: str, data: JsonObject, *, seconds: float = ANSWER_SECONDS
    ) -> JsonObject | None:
        """See `WorkerRequests.post`."""
        lifetime = EVERYBODY_SECONDS if session == EVERYBODY else seconds
        ((request,),) = await self._ask(_POST, (session, kind, json.dumps(data), lifetime))
        await self._ask(_NOTIFY)
        if session == EVERYBODY:
            return None
        try:
            async with asyncio.timeout(seconds):
                while not (rows := await self._ask(_TAKE, (request,))):
                    await self._wait_for_news()
        except TimeoutError:
            # An answer that comes now is late: who asked goes on without it.
            rows = await self._ask(_TAKE, (request,)) or []
            await self._ask(_DROP, (request,))
        return json.loads(rows[0][0]) if rows else None

    async def serve(self, answer: AnswerRequest) -> None:
        """See `WorkerRequests.serve`."""
        listening = asyncio.create_task(self._listen())
        done: list[int] = []
        try:
            while True:
                for request, session, kind, data in await self._ask(_OPEN, (done[-1000:],)):
                    if await self._answer(answer, request, session, kind, json.loads(data)):
                        done.append(request)
                await self._ask(_SWEEP)
                await self._wait_for_news()
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _answer(self, answer: AnswerRequest, request: int, session: str, kind: str, data: JsonObject) -> bool:
        """Carry out a request; return false if this process does not have the session."""
        try:
            found = await answer(session, kind, data)
        except BubbotError as error:
            log.warning(
                "request not carried out: %s: %s", kind, error, extra={"action": "request.failed", "session": session}
            )
            return True
        if session != EVERYBODY and found is None:
            return False
        if session != EVERYBODY:
            await self._ask(_ANSWER, (json.dumps(found), request))
            await self._ask(_NOTIFY)
        return True

    async def _wait_for_news(self) -> None:
        """Wait until somebody posts or answers, or for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS if self._is_listening else POLL_SECONDS / 4), self._woken:
                await self._woken.wait()

    async def _listen(self) -> None:
        """Wake who waits, until cancelled; connect again whenever the connection is lost."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(autocommit=True, **self._address.parameters) as conn:
                    await conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(_CHANNEL)))
                    self._is_listening = True
                    await self._wake()  # of what came before
                    async for _ in conn.notifies():
                        await self._wake()
            except psycopg.Error as error:
                log.info("not listening for requests, looking for them: %s", error, extra={"action": "request.deaf"})
            finally:
                self._is_listening = False
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _wake(self) -> None:
        async with self._woken:
            self._woken.notify_all()

    async def _ask(self, statement: str, values: Any = None) -> list[TupleRow]:
        async with self._pool.lend() as conn:
            cursor = await conn.execute(statement, values)
            return await cursor.fetchall() if cursor.description else []

    async def _begin_session(self, conn: AsyncConnection) -> None:
        adapt(conn)
        async with conn.pipeline():
            for statement in session_statements(readonly=False, role=self._role):
                await conn.execute(statement)

    async def aclose(self) -> None:
        await self._pool.aclose()
