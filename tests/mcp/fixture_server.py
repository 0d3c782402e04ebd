"""A server with the tools, prompts and resources that the conformance tool asks for, over the transport of `bubbot mcp serve`.

`python -m tests.mcp.fixture_server` prints its address and ends with SIGTERM. It is the same application on the same listener, with other
handlers, and needs no token: the tool sends none.
"""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    EmptyResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel

from bubbot.features.mcp.serve.server import open_application
from bubbot.server.asgi import serve_asgi
from mcp.server import Server
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import PromptsListChanged, ServerEvent, ToolsListChanged

Context = ServerRequestContext[Any, Any]
Answer = CallToolResult | InputRequiredResult
PNG = b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082"
    )
).decode()
WAV = b64encode(
    b"RIFF" + (36).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little") + b"\x01\x00\x01\x00"
    + (8_000).to_bytes(4, "little") + (8_000).to_bytes(4, "little") + b"\x01\x00\x08\x00data" + bytes(4)
).decode()  # fmt: skip
PAUSE_SECONDS = 0.05
NO_ARGUMENTS: Mapping[str, Any] = {"type": "object", "properties": {}}
TEMPLATE = re.compile(r"test://template/([^/]+)/data")


def text(words: str, *, is_error: bool = False) -> CallToolResult:
    """Return an answer of one text."""
    return CallToolResult(content=[TextContent(text=words)], is_error=is_error)


def content(*items: Mapping[str, Any]) -> CallToolResult:
    """Return an answer of several parts."""
    return CallToolResult.model_validate({"content": [*items]})


def resource(uri: str, mime: str, words: str) -> dict[str, Any]:
    """Return a part that embeds a resource."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}


# Tools that answer at once, or tell how far they are


async def progress(context: Context, _: CallToolRequestParams) -> Answer:
    for done in (0, 50, 100):
        await context.session.report_progress(done, 100)
        await asyncio.sleep(PAUSE_SECONDS)
    return text("done")


async def logs(context: Context, _: CallToolRequestParams) -> Answer:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.session.send_log_message("info", words, related_request_id=context.request_id)
        await asyncio.sleep(PAUSE_SECONDS)
    return text("done")


async def fail(_: Context, __: CallToolRequestParams) -> Answer:
    return text("This tool intentionally returns an error for testing", is_error=True)


async def need_sampling(context: Context, _: CallToolRequestParams) -> Answer:
    if not context.session.check_client_capability(ClientCapabilities.model_validate({"sampling": {}})):
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY, "the client does not sample", {"requiredCapabilities": {"sampling": {}}}
        )
    return text("the client samples")


# Tools that ask the client within a call, as older versions do


async def sample(context: Context, params: CallToolRequestParams) -> Answer:
    prompt = str((params.arguments or {}).get("prompt", ""))
    message = SamplingMessage(role="user", content=TextContent(text=prompt))
    replied = await context.session.create_message([message], max_tokens=100, related_request_id=context.request_id)
    said = replied.content.text if isinstance(replied.content, TextContent) else ""
    return text(f"LLM response: {said}")


async def elicit(properties: Mapping[str, Any], words: str, context: Context, params: CallToolRequestParams) -> Answer:
    message = str((params.arguments or {}).get("message", words))
    schema = {"type": "object", "properties": dict(properties), "required": []}
    replied = await context.session.elicit_form(message, schema, related_request_id=context.request_id)
    return text(f"{words}: action={replied.action}, content={json.dumps(replied.content)}")


USER = {
    "username": {"type": "string", "description": "User's response"},
    "email": {"type": "string", "description": "User's email address"},
}
DEFAULTS = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
ONE, OPTIONS = ["option1", "option2", "option3"], ["opt1", "opt2", "opt3"]
TITLED = [{"const": f"value{number}", "title": f"Choice {number}"} for number in (1, 2, 3)]
ENUMS = {
    "untitledSingle": {"type": "string", "enum": ONE},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {"type": "string", "enum": OPTIONS, "enumNames": ["Option One", "Option Two", "Option Three"]},
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ONE}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


# Tools that need input before they can answer, as the newest version has it


def question(words: str, field: str, kind: str = "string") -> dict[str, Any]:
    """Return a request of one field."""
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return {"method": "elicitation/create", "params": {"message": words, "requestedSchema": schema}}


def sampling(words: str) -> dict[str, Any]:
    """Return a request of a completion."""
    message = {"role": "user", "content": {"type": "text", "text": words}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 100}}


ROOTS = {"method": "roots/list", "params": {}}


def require(state: str | None = None, /, **requests: Mapping[str, Any]) -> InputRequiredResult:
    """Ask for input."""
    asked = {"inputRequests": requests, **({} if state is None else {"requestState": state})}
    return InputRequiredResult.model_validate(asked)


def responses(params: BaseModel) -> dict[str, Any]:
    """Return what the client sent to a question, as JSON, by key."""
    sent = params.model_dump(by_alias=True, mode="json", exclude_none=True).get("inputResponses")
    return sent if isinstance(sent, dict) else {}


async def ask(
    requests: Mapping[str, Mapping[str, Any]], state: str | None, words: str, _: Context, params: CallToolRequestParams
) -> Answer:
    sent = responses(params)
    if not requests.keys() <= sent.keys() or params.request_state != state:
        return require(state, **requests)
    return text(f"{words} {json.dumps({key: sent[key] for key in requests})}")


async def ask_in_rounds(_: Context, params: CallToolRequestParams) -> Answer:
    sent = responses(params)
    if params.request_state == "two" and "step2" in sent:
        return text("both steps are done")
    if params.request_state == "one" and "step1" in sent:
        return require("two", step2=question("Step 2: What is your favorite color?", "color"))
    return require("one", step1=question("Step 1: What is your name?", "name"))


async def ask_what_it_can(context: Context, params: CallToolRequestParams) -> Answer:
    can = context.session.client_capabilities or ClientCapabilities()
    requests: dict[str, Any] = {}
    if can.elicitation is not None:
        requests["name"] = question("What is your name?", "name")
    if can.sampling is not None:
        requests["answer"] = sampling("What is the capital of France?")
    if not requests or requests.keys() <= responses(params).keys():
        return text("nothing to ask")
    return require(**requests)


def answered(*items: Mapping[str, Any]) -> Callable[[Context, CallToolRequestParams], Awaitable[Answer]]:
    async def answer(_: Context, __: CallToolRequestParams) -> Answer:
        return content(*items)

    return answer


USER_NAME = {"user_name": question("What is your name?", "name")}
CONFIRM = {"confirm": question("Please confirm", "ok", "boolean")}
TOOLS: Mapping[str, Callable[[Context, CallToolRequestParams], Awaitable[Answer]]] = {
    "test_simple_text": answered({"type": "text", "text": "This is a simple text response for testing."}),
    "test_image_content": answered(IMAGE),
    "test_audio_content": answered({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": answered(
        resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": answered(
        {"type": "text", "text": "Multiple content types test:"},
        IMAGE,
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_tool_with_logging": logs,
    "test_logging_tool": logs,
    "test_error_handling": fail,
    "test_tool_with_progress": progress,
    "test_missing_capability": need_sampling,
    "test_sampling": sample,
    "test_elicitation": partial(elicit, USER, "User response"),
    "test_elicitation_sep1034_defaults": partial(elicit, DEFAULTS, "Elicitation completed"),
    "test_elicitation_sep1330_enums": partial(elicit, ENUMS, "Elicitation completed"),
    "test_input_required_result_elicitation": partial(ask, USER_NAME, None, "Hello,"),
    "test_streaming_elicitation": partial(ask, USER_NAME, None, "Hello,"),
    "test_input_required_result_sampling": partial(
        ask, {"capital_question": sampling("What is the capital of France?")}, None, "The capital:"
    ),
    "test_input_required_result_list_roots": partial(ask, {"client_roots": ROOTS}, None, "The roots:"),
    "test_input_required_result_request_state": partial(ask, CONFIRM, "confirming", "state-ok"),
    "test_input_required_result_tampered_state": partial(ask, CONFIRM, "confirming", "state-ok"),
    "test_input_required_result_multiple_inputs": partial(
        ask, {**USER_NAME, "greeting": sampling("Generate a greeting"), "client_roots": ROOTS}, "all", "Everything:"
    ),
    "test_input_required_result_multi_round": ask_in_rounds,
    "test_input_required_result_capabilities": ask_what_it_can,
}
ARGUMENTS: Mapping[str, str] = {"test_sampling": "prompt", "test_elicitation": "message"}


BUS = InMemorySubscriptionBus()
TRIGGERS: Mapping[str, ServerEvent] = {
    "test_trigger_tool_change": ToolsListChanged(),
    "test_trigger_prompt_change": PromptsListChanged(),
}


async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
    tools = []
    for name in (*TOOLS, *TRIGGERS):
        schema = NO_ARGUMENTS
        if argument := ARGUMENTS.get(name):
            schema = {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}
        tools.append({"name": name, "description": f"The tool {name}", "inputSchema": schema})
    return ListToolsResult.model_validate({"tools": tools})


async def call_tool(context: Context, params: CallToolRequestParams) -> Answer:
    if params.name in TRIGGERS:
        await BUS.publish(TRIGGERS[params.name])
        return text("the list changed")
    if params.name not in TOOLS:
        raise MCPError(INVALID_PARAMS, f"unknown tool {params.name!r}")
    return await TOOLS[params.name](context, params)


# Prompts


def prompt(*items: Mapping[str, Any]) -> GetPromptResult:
    return GetPromptResult.model_validate({"messages": [{"role": "user", "content": each} for each in items]})


async def list_prompts(_: Context, __: PaginatedRequestParams | None) -> ListPromptsResult:
    takes = {
        "test_simple_prompt": (),
        "test_prompt_with_arguments": ("arg1", "arg2"),
        "test_prompt_with_embedded_resource": ("resourceUri",),
        "test_prompt_with_image": (),
        "test_input_required_result_prompt": (),
    }
    prompts = [
        {
            "name": name,
            "description": f"The prompt {name}",
            "arguments": [
                {"name": each, "description": f"The argument {each}", "required": True} for each in arguments
            ],
        }
        for name, arguments in takes.items()
    ]
    return ListPromptsResult.model_validate({"prompts": prompts})


async def get_prompt(_: Context, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
    given = params.arguments or {}
    if params.name == "test_simple_prompt":
        return prompt({"type": "text", "text": "This is a simple prompt for testing."})
    if params.name == "test_prompt_with_arguments":
        words = f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        return prompt({"type": "text", "text": words})
    if params.name == "test_prompt_with_embedded_resource":
        embedded = resource(str(given.get("resourceUri")), "text/plain", "Embedded resource content for testing.")
        return prompt(embedded, {"type": "text", "text": "Please process the embedded resource above."})
    if params.name == "test_prompt_with_image":
        return prompt(IMAGE, {"type": "text", "text": "Please analyze the image above."})
    if params.name == "test_input_required_result_prompt":
        sent = responses(params)
        if "user_context" not in sent:
            return require(user_context=question("What context should the prompt use?", "context"))
        return prompt({"type": "text", "text": json.dumps(sent["user_context"])})
    raise MCPError(INVALID_PARAMS, f"unknown prompt {params.name!r}")


# Resources


async def list_resources(_: Context, __: PaginatedRequestParams | None) -> ListResourcesResult:
    kinds = {"static-text": "text/plain", "static-binary": "image/png", "watched-resource": "text/plain"}
    found = [
        {"uri": f"test://{name}", "name": name, "description": f"The resource {name}", "mimeType": mime}
        for name, mime in kinds.items()
    ]
    return ListResourcesResult.model_validate({"resources": found})


async def list_templates(_: Context, __: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "description": "A resource by its id"}
    return ListResourceTemplatesResult.model_validate({"resourceTemplates": [template]})


async def read_resource(_: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
    uri = str(params.uri)
    if uri == "test://static-binary":
        item = {"uri": uri, "mimeType": "image/png", "blob": PNG}
    elif uri in ("test://static-text", "test://watched-resource"):
        item = {"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."}
    elif found := TEMPLATE.fullmatch(uri):
        data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
        item = {"uri": uri, "mimeType": "application/json", "text": json.dumps(data)}
    else:
        raise MCPError(INVALID_PARAMS, "Resource not found", {"uri": uri})
    return ReadResourceResult.model_validate({"contents": [item]})


async def subscribe(_: Context, __: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def unsubscribe(_: Context, __: UnsubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def set_level(_: Context, __: SetLevelRequestParams) -> EmptyResult:
    return EmptyResult()


async def complete(_: Context, __: CompleteRequestParams) -> CompleteResult:
    return CompleteResult(completion=Completion(values=["paris", "park"], total=2, has_more=False))


def build() -> Server[Any]:
    """Build the server."""
    hint = CacheHint(1_000, "private")
    hints: dict[CacheableMethod, CacheHint] = {
        "tools/list": hint, "prompts/list": hint, "resources/list": hint, "resources/templates/list": hint,
        "resources/read": hint, "server/discover": hint,
    }  # fmt: skip
    server: Server[Any] = Server(
        "bubbot-fixture",
        version="1",
        cache_hints=hints,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(BUS),
        on_set_logging_level=set_level,
        on_completion=complete,
    )
    server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="bubbot-fixture"))
    return server


async def serve() -> None:
    """Serve until the process is ended."""
    async with (
        open_application(build(), max_sessions=100, is_streaming=True) as app,
        serve_asgi(app, "127.0.0.1", 0, None) as port,
    ):
        print(f"http://127.0.0.1:{port}/mcp", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(serve())
