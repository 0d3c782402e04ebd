"""A connection to a server of others: transports, versions of the protocol, tools, calls, and the questions of servers.

One task holds the transport and the session of the SDK: if the connection breaks, the running calls fail with a reason, and no
caller is cancelled. Sampling and roots are not offered, and refused if a server wants them. No call waits for a person: it returns
the questions of the server (elicitation), and the caller repeats it with the answers. A server of a protocol before 2026-07-28 holds
its call open meanwhile, and the repeated call resumes it. If the connection was closed, or the server stopped waiting or got another
call, the repeated call starts from the beginning.

What a server returns is not compared with the output schema that it gives: nothing relies on that, and the patterns in it could
keep this process busy for ever.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context, ContextVar
from hashlib import sha256
from typing import Any, Self, TypeVar

import anyio
import httpx2
import mcp_types as types
from mcp import Client, ClientSession, MCPError
from mcp.client import Transport
from mcp.client.auth import OAuthFlowError
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, INVALID_PARAMS, REQUEST_TIMEOUT, URL_ELICITATION_REQUIRED
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from bubbot.features.mcp.child.limits import (
    MAX_DEPTH,
    MAX_FORM_BYTES,
    MAX_LIST_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_NAME_CHARS,
    MAX_PAGES,
    MAX_QUESTIONS,
    MAX_ROUNDS,
    MAX_TEXT_BYTES,
    MAX_TOOLS,
    MAX_UNASKED_MESSAGES,
    MAX_URL_CHARS,
    cut_text,
    is_deep,
    shorten,
)
from bubbot.features.mcp.child.messages import write_line
from bubbot.features.mcp.child.oauth import use_login
from bubbot.features.mcp.child.stdio import start_server
from bubbot.features.mcp.child.values import ElicitedInput, JsonObject, McpFailed, OfferedTool, ServerPlace, ToolReply
from bubbot.features.mcp.child.web_client import BoundedTransport
from bubbot.formatting import clean, clean_json, clean_label, format_bytes

END_SECONDS = 4.0
"""Time for a connection to close in order; then it is cut."""
GRACE_SECONDS = 2.0
"""More than the timeout of a request: the SDK ends it first, and tells the server."""
LIST_SECONDS = 30.0
WAIT_SECONDS = 0.2
"""Between requests that a server wants again without input."""
HOLD_SECONDS = 600.0
"""How long an older server waits for the answer to a question, while nobody waits here; then it gets none."""
RELEASE_SECONDS = 2.0
"""Time for a server to end a call that got no answer, before it gets another one."""
HELD = "held "
"""The prefix of the state of a held call. A connection that does not know the state makes the call again."""
CANCELLED: JsonObject = {"action": "cancel"}
KEEP_OPEN_SECONDS = 10 * 365 * 86_400.0
KNOWS_OLDER_TRANSPORT = frozenset({400, 404, 405, 406, 415, 501})
"""Answers of servers that may know the transport of the first versions alone."""
UNAUTHORIZED, NOT_FOUND = 401, 404
MAX_MESSAGE_CHARS = 4_000
"""Characters of the words of a question."""

_CALL_RESULT: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)
_Result = TypeVar("_Result")


class _RunningCall:
    """One call: what the server asks and how it answers meanwhile.

    Attributes:
        request: name, arguments and metadata.
        status: of the HTTP answer; 0 for none yet.
        asked: set while questions wait for answers.
    """

    def __init__(self, request: JsonObject, answers: Mapping[str, JsonObject]) -> None:
        self.request = request
        self.status = 0
        self.asked = asyncio.Event()
        self._answers = dict(answers)
        self._waiting: dict[str, tuple[ElicitedInput, asyncio.Future[JsonObject]]] = {}

    @property
    def questions(self) -> tuple[ElicitedInput, ...]:
        """Return the questions that wait."""
        return tuple(question for question, _ in self._waiting.values())

    @property
    def answers(self) -> JsonObject:
        """Return all answers given so far."""
        return self._answers

    async def ask(self, question: ElicitedInput) -> JsonObject:
        """Return the answer to a question of the server: one that was given, or comes within `HOLD_SECONDS`, else none."""
        if question.key in self._answers:
            return self._answers[question.key]
        if len(self._waiting) == MAX_QUESTIONS or question.key in self._waiting:
            return CANCELLED
        waiting: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._waiting[question.key] = question, waiting
        self.asked.set()
        try:
            async with asyncio.timeout(HOLD_SECONDS):
                return await waiting
        except TimeoutError:
            return CANCELLED
        finally:
            self._forget(question.key)

    def give(self, answers: Mapping[str, JsonObject]) -> None:
        """Give answers to the questions that wait; the server goes on."""
        self._answers |= answers
        for key, (_, waiting) in list(self._waiting.items()):
            if key in self._answers and not waiting.done():
                waiting.set_result(self._answers[key])
                self._forget(key)

    def release(self) -> None:
        """Give no answer to the questions that wait."""
        for _, waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(CANCELLED)

    def _forget(self, key: str) -> None:
        self._waiting.pop(key, None)
        if not self._waiting:
            self.asked.clear()


_CALL: ContextVar[_RunningCall | None] = ContextVar("mcp_call", default=None)
"""The call that a task serves. The SDK handles messages within the answer to a request in the context of the task that sent it."""


@asynccontextmanager
async def connect(
    place: ServerPlace, *, client_info: types.Implementation, timeout: float, auth: httpx2.Auth | None = None
) -> AsyncIterator[Connection]:
    """Connect to a server. The connection may be used from any task, and nothing of it is left at the end of the block.

    Args:
        timeout: seconds to start it, if it is ours, and to agree on a version.
        auth: that of `place.tokens_file` by default.

    Raises:
        McpFailed: nothing is left then, either.
    """
    connection = await _open(place, client_info, timeout, auth)
    try:
        yield connection
    finally:
        await connection.close()


async def _open(
    place: ServerPlace, client_info: types.Implementation, timeout: float, auth: httpx2.Auth | None
) -> Connection:
    """Connect in the ways that the server may know, the newest first, within one timeout."""
    deadline = _now() + timeout
    if auth is None and place.tokens_file:
        auth = use_login(place)
    ways: tuple[tuple[str, str], ...]
    if place.argv:
        ways = (("stdio", "auto"), ("stdio", "legacy"))
    elif place.transport == "auto":
        ways = (("http", "auto"), ("sse", "legacy"))
    else:
        ways = ((place.transport, "legacy" if place.transport == "sse" else "auto"),)
    failure: McpFailed | None = None
    for transport, mode in ways:
        connection = Connection(place, client_info, transport=transport, mode=mode, auth=auth)
        try:
            await connection.open(max(deadline - _now(), 0.1))
            return connection
        except McpFailed as error:
            failure = failure or error
            if not connection.may_know_older:
                break
    assert failure is not None
    raise failure


class Connection:
    """An open connection.

    Attributes:
        protocol_version: the one that both speak.
        server_name: what the server calls itself, with its version; empty if it does not say.
    """

    def __init__(
        self,
        place: ServerPlace,
        client_info: types.Implementation,
        *,
        transport: str,
        mode: str,
        auth: httpx2.Auth | None,
    ) -> None:
        self._place = place
        self._client_info = client_info
        self._transport = transport
        self._mode = mode
        self._auth = auth
        self._client: Client | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._lost: McpFailed | None = None
        self._status = 0
        self._unasked = 0
        self._running: set[_RunningCall] = set()
        self._held: dict[str, tuple[_RunningCall, asyncio.Task[ToolReply]]] = {}
        self._lists_tools = False
        self._asks = False
        self._turn = asyncio.Lock()
        self.may_know_older = False
        self.protocol_version = ""
        self.server_name = ""

    @property
    def is_lost(self) -> bool:
        """Return true if no call can be made any more; another connection is needed."""
        return self._lost is not None or self._ending.is_set()

    async def open(self, timeout: float) -> None:
        """Connect. Raise `McpFailed`, and leave nothing then."""
        opened = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._run(opened, timeout))
        try:
            await asyncio.wait({opened, self._runner}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.close()
            raise
        if opened.done() and self._lost is None:
            return
        if not self._runner.done():
            self._lose(McpFailed("it did not answer in time", is_gone=True))
        await self.close()
        raise self._lost or McpFailed("it closed the connection", is_gone=True)

    async def close(self) -> None:
        """End the connection, and the server if we started it; in bounded time, whatever the server does."""
        self._ending.set()
        for _, task in list(self._held.values()):
            task.cancel()
        if self._runner is None:
            return
        if not self.protocol_version:
            self._runner.cancel()  # it has not agreed on anything yet
        waiting = asyncio.ensure_future(self._wait_for_end(self._runner))
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.wait({waiting})
            raise

    async def _wait_for_end(self, runner: asyncio.Task[None]) -> None:
        await asyncio.wait({runner}, timeout=END_SECONDS)
        if not runner.done():
            runner.cancel()
            await asyncio.wait({runner}, timeout=END_SECONDS)

    async def list_tools(self, *, timeout: float = LIST_SECONDS) -> tuple[OfferedTool, ...]:
        """Ask for all tools, in the order of the server. Raise `McpFailed`."""
        deadline = _now() + timeout
        offered: dict[str, OfferedTool] = {}
        cursors: set[str] = set()
        cursor: str | None = None
        size = 0
        self._unasked = 0
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._answer(self._session.list_tools(params=params), deadline - _now(), "list of tools")
            for tool in page.tools:
                described = _describe_tool(tool)
                size += len(write_line(described))
                if described.name in offered:
                    raise McpFailed(f"it offers two tools with the name {shorten(described.name)}")
                offered[described.name] = described
            if len(offered) > MAX_TOOLS:
                raise McpFailed(f"it offers more than {MAX_TOOLS} tools")
            if size > MAX_LIST_BYTES:
                raise McpFailed(f"its list of tools is longer than {format_bytes(MAX_LIST_BYTES)}")
            cursor = page.next_cursor
            if cursor is None:
                self._lists_tools = True
                return tuple(offered.values())
            if cursor in cursors:
                raise McpFailed("its list of tools never ends: a page leads to an earlier one")
            cursors.add(cursor)
        raise McpFailed(f"its list of tools has more than {MAX_PAGES} pages")

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout: float,
        meta: Mapping[str, Any],
        answers: Mapping[str, JsonObject] | None = None,
        state: str = "",
    ) -> ToolReply:
        """Call a tool.

        Args:
            timeout: seconds for all of it.
            meta: the `_meta` of the request.
            answers: all answers given so far, by the keys of their questions; each is the result of `accept`, `ACCEPTED` or
                `DECLINED`.
            state: that of the reply with the questions. Give the same tool and arguments.

        Raises:
            McpFailed: it may have happened nevertheless, unless the connection could not be opened.
        """
        deadline = _now() + timeout
        if self._transport == "http" and not self._lists_tools and self._is_modern:
            await self.list_tools(timeout=timeout)  # says which arguments are headers as well
        for answer in (answers or {}).values():
            _check_answer(answer)
        request: JsonObject = {"name": tool, "arguments": dict(arguments), "_meta": dict(meta)}
        async with self._take_turn(deadline):
            await self._release(state)
            call, task = self._take_up(request, answers or {}, state, timeout)
            self._running.add(call)
            self._unasked = 0
            try:
                return await self._watch(call, task, deadline)
            finally:
                self._running.discard(call)

    async def _release(self, state: str) -> None:
        """Cancel the questions of all held calls except the one to resume, over stdio: the server may answer no other call meanwhile."""
        held = [each for name, each in self._held.items() if name != state] if self._transport == "stdio" else []
        for call, _ in held:
            call.release()
        if held:
            await asyncio.wait({task for _, task in held}, timeout=RELEASE_SECONDS)

    def _take_up(
        self, request: JsonObject, answers: Mapping[str, JsonObject], state: str, timeout: float
    ) -> tuple[_RunningCall, asyncio.Task[ToolReply]]:
        """Go on with a call that waits for answers, or begin one."""
        if state.startswith(HELD):
            held = self._held.pop(state, None)
            state = ""  # is ours, not the server's
            if held is not None:
                call, task = held
                if _is_same_call(call.request, request):
                    call.give(answers)
                    return call, task
                task.cancel()
        call = _RunningCall(request, answers)
        task = asyncio.create_task(self._call(call, state, timeout))
        task.add_done_callback(_ignore)
        return call, task

    async def _watch(self, call: _RunningCall, task: asyncio.Task[ToolReply], deadline: float) -> ToolReply:
        """Wait until a call ends or asks a question; in the second case hold it, and return its questions with the state to resume it."""
        asked = asyncio.create_task(call.asked.wait())
        try:
            until = deadline + (GRACE_SECONDS if self._is_modern else 0)
            await asyncio.wait({task, asked}, timeout=max(until - _now(), 0), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            asked.cancel()
        if task.done():
            return task.result()
        if call.asked.is_set():
            state = HELD + secrets.token_hex(8)
            self._held[state] = call, task
            task.add_done_callback(lambda _: self._held.pop(state, None))
            return ToolReply(questions=call.questions, state=state)
        task.cancel()
        raise McpFailed(f"tool {call.request['name']}: no answer in time")

    async def _call(self, call: _RunningCall, state: str, timeout: float) -> ToolReply:
        """Make a call, as often as the server wants it again."""
        _CALL.set(call)
        deadline = _now() + timeout + (0 if self._is_modern else HOLD_SECONDS)
        name = call.request["name"]
        given = call.answers if self._is_modern else {}
        is_listed_again = False
        for _ in range(MAX_ROUNDS):
            params = types.CallToolRequestParams.model_validate(
                {**call.request, "inputResponses": given or None, "requestState": state or None}
            )
            sending = self._session.send_request(
                types.CallToolRequest(params=params),
                _CALL_RESULT,
                request_read_timeout_seconds=max(deadline - _now(), 0.01),
            )
            try:
                result = await self._answer(sending, deadline - _now(), f"tool {name}", call)
            except _Elicits as error:
                return ToolReply(questions=error.questions)
            except _HeadersDiffer as error:
                if is_listed_again:
                    raise McpFailed(error.reason) from None
                is_listed_again = True
                await self.list_tools(timeout=deadline - _now())
                continue
            if isinstance(result, types.CallToolResult):
                return _read_reply(result)
            if len((result.request_state or "").encode(errors="replace")) > MAX_FORM_BYTES:
                raise McpFailed(f"the state of its question is longer than {format_bytes(MAX_FORM_BYTES)}")
            if result.input_requests:
                return ToolReply(questions=_read_questions(result.input_requests), state=result.request_state or "")
            given, state = {}, result.request_state or ""
            await asyncio.sleep(WAIT_SECONDS)
        raise McpFailed(f"it wanted the call of {name} again {MAX_ROUNDS} times")

    @property
    def _is_modern(self) -> bool:
        """Return true if questions come in results, not as requests of the server."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def _session(self) -> ClientSession:
        if self._lost is not None:
            raise self._lost
        if self._client is None or self._ending.is_set():
            raise McpFailed("the connection is closed", is_gone=True)
        return self._client.session

    @asynccontextmanager
    async def _take_turn(self, deadline: float) -> AsyncGenerator[None]:
        """Run calls one at a time once the server has asked in requests of its own, which do not name their call."""
        if not self._asks:
            yield
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._turn.acquire()
        except TimeoutError:
            raise McpFailed("it was busy with another call") from None
        try:
            yield
        finally:
            self._turn.release()

    async def _run(self, opened: asyncio.Future[None], timeout: float) -> None:
        """Hold the connection until it is closed or lost."""
        try:
            async with AsyncExitStack() as stack:
                client = Client(
                    _complete_results(await self._open_transport(stack, timeout)),
                    mode=self._mode,
                    cache=None,
                    client_info=self._client_info,
                    elicitation_callback=self._elicit,
                    message_handler=self._count_message,
                )
                self._client = await stack.enter_async_context(client)
                info = client.server_info
                self.server_name = shorten(f"{info.name} {info.version}") if info is not None else ""
                self.protocol_version = client.protocol_version
                opened.set_result(None)
                await self._ending.wait()
        except Exception as error:  # noqa: BLE001 - boundary: whatever the SDK raises, it costs this connection alone
            has_ended = self._transport == "stdio" and _find(error, MCPError) is not None
            self.may_know_older = not opened.done() and (has_ended or self._status in KNOWS_OLDER_TRANSPORT)
            self._lose(self._explain(error, self._status, is_gone=True))

    async def _open_transport(self, stack: AsyncExitStack, seconds: float) -> Transport:
        if self._transport == "stdio":
            return start_server(self._place, lambda reason: self._lose(McpFailed(reason, is_gone=True)))
        if self._transport == "sse":
            return sse_client(
                self._place.url,
                timeout=seconds,
                sse_read_timeout=KEEP_OPEN_SECONDS,
                httpx_client_factory=lambda headers=None, timeout=None, auth=None: self._make_client(seconds),  # noqa: ARG005
            )
        client = await stack.enter_async_context(self._make_client(seconds))
        return streamable_http_client(self._place.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES)

    def _make_client(self, seconds: float) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            transport=BoundedTransport(self._place.url, self._place.headers),
            auth=self._auth,
            timeout=httpx2.Timeout(seconds, read=None),  # calls have timeouts of their own
            event_hooks={"response": [self._note_status]},
        )

    async def _note_status(self, response: httpx2.Response) -> None:
        """Keep what the SDK does not say."""
        if response.request.url == httpx2.URL(self._place.url):
            self._status = response.status_code
            if (call := _CALL.get()) is not None:
                call.status = response.status_code

    async def _count_message(self, message: IncomingMessage) -> None:
        """Lose a server that floods us with what nobody asked for."""
        del message
        self._unasked += 1
        if self._unasked > MAX_UNASKED_MESSAGES:
            self._lose(McpFailed(f"it sent {MAX_UNASKED_MESSAGES} messages that nobody asked for", is_gone=True))

    async def _elicit(
        self,
        context: ClientRequestContext,
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        """Put the question of an older server to the call that it belongs to."""
        del context
        self._asks = True
        call = _CALL.get()
        if call is None:
            unasked = [running for running in self._running if not running.asked.is_set()]
            call = unasked[0] if len(unasked) == 1 else None
        if call is None:  # of several calls, or of none
            return types.ElicitResult(action="cancel")
        try:
            question = _read_question("", params)
        except McpFailed as failure:
            return types.ErrorData(code=INVALID_PARAMS, message=failure.reason)
        return types.ElicitResult.model_validate(await call.ask(question))

    async def _answer(
        self, sending: Awaitable[_Result], seconds: float, subject: str, call: _RunningCall | None = None
    ) -> _Result:
        """Wait for an answer, and say in words why there is none."""
        try:
            async with asyncio.timeout(max(seconds, 0) + GRACE_SECONDS):
                return await sending
        except McpFailed:
            raise
        except TimeoutError:
            raise McpFailed(f"{subject}: no answer in time") from None
        except MCPError as error:
            if error.code == CONNECTION_CLOSED and self._runner is not None:
                await asyncio.wait({self._runner}, timeout=WAIT_SECONDS)  # it knows why
                if self._lost is not None or self._runner.done():
                    raise self._lost or McpFailed("it closed the connection", is_gone=True) from None
            if error.code == REQUEST_TIMEOUT:
                raise McpFailed(f"{subject}: no answer in time") from None
            if error.code == HEADER_MISMATCH and self._is_modern:
                raise _HeadersDiffer(f"{subject}: {shorten(error.message)}") from None
            if error.code == URL_ELICITATION_REQUIRED and (questions := _read_required_urls(error.data)):
                raise _Elicits(questions) from None
            raise self._explain(error, call.status if call is not None else self._status, is_gone=False) from error
        except Exception as error:  # boundary: the SDK's checks of what a server sends
            raise self._explain(error, 0, is_gone=False) from error

    def _explain(self, error: BaseException, status: int, *, is_gone: bool) -> McpFailed:
        """Say an error of the SDK in words."""
        if (failure := _find(error, McpFailed)) is not None:
            return McpFailed(failure.reason, is_gone=is_gone or failure.is_gone, needs_login=failure.needs_login)
        if status == UNAUTHORIZED:
            return McpFailed("it wants a login (HTTP 401)", is_gone=is_gone, needs_login=True)
        if status == NOT_FOUND and self.protocol_version and not self._is_modern:
            return McpFailed("it has forgotten this connection (HTTP 404)", is_gone=True)
        if (refusal := _find(error, MCPError)) is not None:
            if status >= 400:
                return McpFailed(f"it answered with HTTP {status}: {shorten(refusal.message)}", is_gone=is_gone)
            return McpFailed(shorten(refusal.message) or f"error {refusal.code}", is_gone=is_gone)
        if (broken := _find(error, httpx2.HTTPError)) is not None:
            return McpFailed(f"it cannot be reached: {shorten(str(broken)) or type(broken).__name__}", is_gone=is_gone)
        if _find(error, ValidationError) is not None:
            return McpFailed("its answer is not as the protocol says", is_gone=is_gone)
        if (flow := _find(error, OAuthFlowError)) is not None:
            return McpFailed(f"its login failed: {shorten(str(flow))}", is_gone=is_gone, needs_login=True)
        leaf = _find(error, Exception) or error
        return McpFailed(f"its answer cannot be used: {shorten(str(leaf)) or type(leaf).__name__}", is_gone=is_gone)

    def _lose(self, failure: McpFailed) -> None:
        self._lost = self._lost or failure
        self._ending.set()


class _CompletedResults:
    """The messages of a server. A result without `resultType` counts as complete, as the protocol says; the SDK (2.3.0) refuses it."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    @property
    def last_context(self) -> Context | None:
        """Return the context of who sent the last message, if the transport knows it."""
        context: Context | None = getattr(self._messages, "last_context", None)
        return context

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or what could not be read as one."""
        item: SessionMessage | Exception = await self._messages.receive()
        if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
            item.message.result.setdefault("resultType", "complete")
        return item

    def __aiter__(self) -> _CompletedResults:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._messages.aclose()


@asynccontextmanager
async def _complete_results(transport: Transport) -> AsyncGenerator[tuple[_CompletedResults, Any]]:
    async with transport as (messages, sending):
        yield _CompletedResults(messages), sending


class _HeadersDiffer(McpFailed):
    """The server knows another schema of a tool than we: we do not send the headers that it wants."""


class _Elicits(Exception):
    """A server of 2025-11-25 wants addresses to be opened first, and says so as an error."""

    def __init__(self, questions: tuple[ElicitedInput, ...]) -> None:
        super().__init__()
        self.questions = questions


_Error = TypeVar("_Error", bound=BaseException)


def _find(error: BaseException, kind: type[_Error]) -> _Error | None:
    """Return the first error of a kind, also in a group."""
    if isinstance(error, BaseExceptionGroup):
        return next((found for inner in error.exceptions if (found := _find(inner, kind)) is not None), None)
    return error if isinstance(error, kind) else None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _describe_tool(tool: types.Tool) -> OfferedTool:
    annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations is not None else {}
    if not tool.name or len(tool.name) > MAX_NAME_CHARS:
        raise McpFailed(f"the name of a tool has 1 to {MAX_NAME_CHARS} characters, not {len(tool.name)}")
    if is_deep(tool.input_schema) or is_deep(tool.output_schema):
        raise McpFailed(f"a schema of its tool {shorten(tool.name)} is more than {MAX_DEPTH} values deep")
    return OfferedTool(
        name=clean(tool.name),
        title=clean(tool.title or annotations.get("title") or ""),
        description=clean(tool.description or ""),
        schema=clean_json(tool.input_schema),
        output_schema=clean_json(tool.output_schema),
        annotations=clean_json(annotations),
    )


def _read_question(key: str, params: types.ElicitRequestParams) -> ElicitedInput:
    message = clean(params.message)[:MAX_MESSAGE_CHARS]
    if isinstance(params, types.ElicitRequestURLParams):
        schema, url = {}, clean(params.url)
    else:
        schema, url = clean_json(params.requested_schema), ""
    if len(url) > MAX_URL_CHARS:
        raise McpFailed(f"the address that it wants to be opened has more than {MAX_URL_CHARS} characters")
    if is_deep(schema):
        raise McpFailed(f"the form that it asks for is more than {MAX_DEPTH} values deep")
    if len(json.dumps(schema)) > MAX_FORM_BYTES:
        raise McpFailed(f"the form that it asks for is longer than {format_bytes(MAX_FORM_BYTES)}")
    if not key:  # the older protocol has none: the same question has the same key
        key = sha256(json.dumps([message, schema, url], sort_keys=True).encode()).hexdigest()[:16]
    return ElicitedInput(key=key, message=message, schema=schema, url=url)


def _read_questions(requests: Mapping[str, types.InputRequest]) -> tuple[ElicitedInput, ...]:
    """Return the questions of a result. Raise `McpFailed` if the server wants what we refuse."""
    if len(requests) > MAX_QUESTIONS:
        raise McpFailed(f"it asks more than {MAX_QUESTIONS} questions at once")
    questions = []
    for key, request in requests.items():
        if not isinstance(request, types.ElicitRequest):
            raise McpFailed(f"it wants {request.method}, which is refused")
        if not key or len(key) > MAX_NAME_CHARS:
            raise McpFailed(f"the key of a question has 1 to {MAX_NAME_CHARS} characters, not {len(key)}")
        questions.append(_read_question(key, request.params))
    return tuple(questions)


def _read_required_urls(data: Any) -> tuple[ElicitedInput, ...]:
    try:
        required = types.ElicitationRequiredErrorData.model_validate(data)
    except ValidationError:
        return ()
    return tuple(_read_question("", params) for params in required.elicitations[:MAX_QUESTIONS])


def _check_answer(answer: JsonObject) -> None:
    try:
        types.ElicitResult.model_validate(answer)
    except ValidationError:
        raise McpFailed(
            "an answer has an action (accept, decline or cancel), and a content of texts, numbers, yes or no, and lists of texts"
        ) from None


def _is_same_call(first: JsonObject, second: JsonObject) -> bool:
    return all(first[name] == second[name] for name in ("name", "arguments"))


def _ignore(task: asyncio.Task[ToolReply]) -> None:
    """Take the end of a call that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def _read_reply(result: types.CallToolResult) -> ToolReply:
    parts = [_describe_part(part) for part in result.content]
    structured = result.structured_content
    if is_deep(structured):
        raise McpFailed(f"its result is more than {MAX_DEPTH} values deep")
    encoded = json.dumps(clean_json(structured), ensure_ascii=False) if structured is not None else ""
    if not parts and encoded:
        parts = [encoded]
    is_kept = isinstance(structured, dict) and len(encoded.encode()) <= MAX_TEXT_BYTES
    return ToolReply(
        text=cut_text("\n".join(parts)),
        is_error=bool(result.is_error),
        structured=json.loads(encoded) if is_kept else None,
        images=sum(isinstance(part, types.ImageContent) for part in result.content),
    )


def _describe_part(part: types.ContentBlock) -> str:
    """Return the text of a part; name one that is none."""
    match part:
        case types.TextContent():
            return part.text
        case types.ImageContent() | types.AudioContent():
            return f"[{part.type} {clean_label(part.mime_type, 100)}, {_count_bytes(part.data)} bytes]"
        case types.ResourceLink():
            return f"[link {clean_label(part.name, 200)}: {clean_label(str(part.uri), 2_000)}]"
    resource = part.resource
    address = clean_label(str(resource.uri), 2_000)
    if isinstance(resource, types.TextResourceContents):
        return f"[{address}]\n{resource.text}"
    return f"[{address} {clean_label(resource.mime_type or 'unknown type', 100)}, {_count_bytes(resource.blob)} bytes]"


def _count_bytes(data: str) -> int:
    """Return the number of bytes that base64 stands for."""
    return len(data.rstrip("=")) * 3 // 4
