"""AReaL's side of the proof: run by the interpreter of `make areal`, with AReaL's own proxy, client and agent worker.

Only its package files are skipped that load trainers. The engine and the tokenizer are tiny, and made here; everything else that is asked
is AReaL's. Arguments: SOURCE serve PORT GATEWAY_PORT | SOURCE export URL KEY, with lines of JSON `[session, style, discount]` on standard
input | SOURCE read FILE... | SOURCE work PORT FOLDER..., where the folders hold bubbot and what it needs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGES = (
    "areal", "areal.experimental", "areal.experimental.openai", "areal.experimental.openai.proxy", "areal.infra", "areal.infra.rpc",
    "areal.infra.utils", "areal.engine", "areal.engine.fsdp_utils", "areal.v2",
)  # fmt: skip
"""The packages whose own files would load trainers."""
END = "<|im_end|>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}</call>{% endfor %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = "<tool_call>\n<function=memory_recall>\n<parameter=query>\nship\n</parameter>\n</function>\n</tool_call>"
KEY = "the-admin-key"


def open_source(source: Path) -> None:
    """Make AReaL's modules importable."""
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(source / name.replace(".", "/"))]
        sys.modules[name] = package


def make_tokenizer() -> Any:
    """Make a tokenizer of bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token="<|pad|>")
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    made.chat_template = TEMPLATE
    return made


class Engine:
    """Answers by what it was asked last."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    async def agenerate(self, request: Any) -> Any:
        """Write an answer to the tokens of a request."""
        from areal.api import ModelResponse

        prompt = self._tokenizer.decode(request.input_ids)
        newest = prompt.split("<|im_start|>")[-2]
        asked = prompt.count("<|im_start|>user")
        text = CALL if newest.startswith("user") and "use the tool" in newest else f"answer {asked}"
        tokens = [*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id]
        return ModelResponse(
            input_tokens=list(request.input_ids),
            output_tokens=tokens,
            output_logprobs=[-0.5] * len(tokens),
            output_versions=[1] * len(tokens),
            stop_reason="stop",
            tokenizer=self._tokenizer,
        )


async def serve(port: int, gateway_port: int) -> None:
    """Run AReaL's rollout server, and its gateway before it."""
    import uvicorn
    from areal.experimental.openai.client import ArealOpenAI
    from areal.experimental.openai.proxy import proxy_rollout_server as server
    from areal.experimental.openai.proxy.proxy_gateway import create_proxy_gateway_app

    tokenizer = make_tokenizer()
    server._openai_client = ArealOpenAI(
        engine=Engine(tokenizer),
        tokenizer=tokenizer,
        tool_call_parser="qwen3_coder",
        reasoning_parser="qwen3",
        chat_template_type="concat",
    )
    server._admin_api_key = KEY

    @server.app.get("/sessions")  # type: ignore[untyped-decorator, unused-ignore]
    def list_sessions() -> list[dict[str, Any]]:
        return [
            {
                "id": name,
                "calls": len(session.completions),
                "leaves": len(session.completions.export_interactions(style="concat")),
                "mismatches": session.completions._match_fail_count,
                "has_ended": session.is_completed,
                "rewards": [each.reward for each in session.completions.values()],
            }
            for name, session in server._session_cache.items()
        ]

    gateway = create_proxy_gateway_app([f"http://127.0.0.1:{port}"], admin_api_key=KEY)
    apps = ((server.app, port), (gateway, gateway_port))
    configs = [uvicorn.Config(app, host="127.0.0.1", port=number, log_level="warning") for app, number in apps]
    await asyncio.gather(*(uvicorn.Server(config).serve() for config in configs))


async def export(url: str, key: str) -> None:
    """Export sessions with AReaL's client, and say what it read."""
    import aiohttp
    from areal.experimental.openai.proxy.client_session import OpenAIProxyClient

    async with aiohttp.ClientSession() as http:
        for line in sys.stdin:
            session, style, discount = json.loads(line)
            client = OpenAIProxyClient(http, url, "proof", key)
            client.session_id = session
            found = await client.export_interactions(discount=discount, style=style)
            said = []
            for each in found.values():
                tensors = each.to_tensor_dict()
                mask, turns = tensors["loss_mask"][0].tolist(), tensors["turn_ids"][0].tolist()
                said.append(
                    {
                        "id": each.interaction_id,
                        "reward": each.reward,
                        "rewards": tensors["rewards"].tolist(),
                        "tokens": len(mask),
                        "trained": sum(mask),
                        "turns": max(turns) + 1,
                    }
                )
            print(json.dumps(said), flush=True)


def read(paths: list[str]) -> None:
    """Read exported files as AReaL's client reads an export, write them again, and say what came of each."""
    from areal.experimental.openai.proxy.server import deserialize_interactions, serialize_interactions

    for path in paths:
        exported = json.loads(Path(path).read_bytes())["interactions"]
        found = deserialize_interactions(exported)
        rewards = {name: each.reward for name, each in found.items()}
        print(json.dumps({"rewards": rewards, "is_same": serialize_interactions(found) == exported}), flush=True)


async def work(port: int, folders: list[str]) -> None:
    """Run AReaL's agent worker with bubbot in it."""
    sys.path += folders
    import uvicorn
    from areal.v2.agent_service.types import AgentRunnable
    from areal.v2.agent_service.worker.app import create_worker_app

    from bubbot import BubbotAgent

    assert isinstance(BubbotAgent(), AgentRunnable)
    app = create_worker_app("bubbot.BubbotAgent")
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning")).serve()


if __name__ == "__main__":
    place, what, *arguments = sys.argv[1:]
    open_source(Path(place))
    if what == "serve":
        asyncio.run(serve(*map(int, arguments)))
    elif what == "export":
        asyncio.run(export(*arguments))
    elif what == "read":
        read(arguments)
    else:
        asyncio.run(work(int(arguments[0]), arguments[1:]))
