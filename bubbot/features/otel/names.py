"""The names of spans and attributes: the one table of what receivers read.

`gen_ai.*` and `error.type` are those of the OpenTelemetry GenAI semantic conventions 1.41.1; the names of OpenInference
stand beside them where viewers read those: kinds of spans, input and output, session and user. A viewer such as Phoenix
understands a model span by its `gen_ai` names alone. `bubbot.*` are ours: they lead back to the tape.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.1"
SCOPE = "bubbot"


class Name(StrEnum):
    """The attributes of spans."""

    # OpenTelemetry GenAI
    OPERATION = "gen_ai.operation.name"
    PROVIDER = "gen_ai.provider.name"
    AGENT = "gen_ai.agent.name"
    CONVERSATION = "gen_ai.conversation.id"
    REQUEST_MODEL = "gen_ai.request.model"
    RESPONSE_MODEL = "gen_ai.response.model"
    RESPONSE_ID = "gen_ai.response.id"
    FINISH_REASONS = "gen_ai.response.finish_reasons"
    FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
    SYSTEM = "gen_ai.system_instructions"
    TOOLS = "gen_ai.tool.definitions"
    INPUT_MESSAGES = "gen_ai.input.messages"
    OUTPUT_MESSAGES = "gen_ai.output.messages"
    TOOL = "gen_ai.tool.name"
    TOOL_TYPE = "gen_ai.tool.type"
    TOOL_CALL = "gen_ai.tool.call.id"
    TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
    TOOL_RESULT = "gen_ai.tool.call.result"
    ERROR = "error.type"
    # OpenInference
    KIND = "openinference.span.kind"
    SESSION = "session.id"
    USER = "user.id"
    INPUT = "input.value"
    INPUT_TYPE = "input.mime_type"
    OUTPUT = "output.value"
    OUTPUT_TYPE = "output.mime_type"
    COST = "llm.cost.total"
    PARAMETERS = "llm.invocation_parameters"
    # Ours
    TURN = "bubbot.turn.id"
    STATUS = "bubbot.turn.status"
    ORIGIN = "bubbot.turn.origin"
    ATTEMPT = "bubbot.turn.attempt"
    ENTRY = "bubbot.entry.id"
    STEP_STATUS = "bubbot.step.status"
    PURPOSE = "bubbot.step.purpose"
    REQUEST_EXACT = "bubbot.request.is_exact"


INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
"""The operations."""
AGENT_KIND, STEP_KIND, TOOL_KIND = "AGENT", "CHAIN", "TOOL"
"""The kinds of OpenInference; a model span has none of its own, since its operation says it."""
FINISH_REASONS: Mapping[str, str] = MappingProxyType({"tool_calls": "tool_call"})
"""Our words for why a model stopped, where they differ."""
REQUEST_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        name: f"gen_ai.request.{name}"
        for name in ("temperature", "top_p", "top_k", "max_tokens", "frequency_penalty", "presence_penalty", "seed")
    }
    | {"max_completion_tokens": "gen_ai.request.max_tokens"}
)
"""The parameters of requests that have a name in the conventions; all are numbers."""
PROVIDERS: Mapping[str, str] = MappingProxyType(
    {
        "azure": "azure.ai.openai",
        "azure_ai": "azure.ai.inference",
        "bedrock": "aws.bedrock",
        "gemini": "gcp.gemini",
        "vertex_ai": "gcp.vertex_ai",
        "mistral": "mistral_ai",
        "watsonx": "ibm.watsonx.ai",
        "xai": "x_ai",
    }
)
"""Our names of providers, where they differ."""


def split_model(name: str) -> tuple[str, str]:
    """Return the provider of a model as receivers know it, and the model's name there."""
    provider, slash, model = name.partition("/")
    return PROVIDERS.get(provider, provider), model if slash else name
