"""What the direct client does beyond what both ways to the OpenAI protocol share: real HTTP and TLS on loopback."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import ModelError, ModelOverflow, ModelRateLimited, ModelRefused, ModelUnavailable
from bubbot.models.catalogue.sizes import find_price, find_second_price
from bubbot.models.openai.model import make_model
from bubbot.models.provider import ProviderModel
from bubbot.ports.model import ModelOptions, ModelReply, ModelRequest
from bubbot.runtime.context.tokens import estimate_tokens
from tests.e2e.bot import environment
from tests.e2e.openai_server import says
from tests.e2e.openai_server import serving as serving_steps
from tests.e2e.provider_server import Answer, Asked, Held, listening, serving
from tests.e2e.speech_server import listening as listening_to

ROOT = Path(__file__).parents[2]
REQUEST = ModelRequest("Be brief.", ({"role": "user", "content": "hi"},))


def chunk(delta: Mapping[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"id": "r", "choices": choices, **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
HELLO = (chunk({"content": "hello"}), chunk({}, "stop"), DONE)


@dataclass
class Plays:
    """Plays its answers one after the other; the last one stands for all later ones."""

    answers: tuple[Answer, ...]
    address: str = ""
    requests: list[Asked] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        return self.answers[min(len(self.requests), len(self.answers)) - 1]


@asynccontextmanager
async def asking(
    address: str, name: str = "openai/test", variables: Mapping[str, str] | None = None, **settings: Any
) -> AsyncIterator[ProviderModel]:
    values = {"api_base": address, "api_key": "sk-canary-3", "retries": 0, "retry_wait": 0.01, **settings}
    model = make_model(ModelOptions(name, Path("unused"), values), os.environ if variables is None else variables)
    try:
        yield model
    finally:
        await model.aclose()


async def answered(model: ProviderModel) -> ModelReply:
    async with asyncio.timeout(20):
        events = [event async for event in model.stream(REQUEST)]
    assert isinstance(events[-1], ModelReply)
    return events[-1]


async def heard(*pieces: bytes, name: str = "openai/test", **options: Any) -> ModelReply:
    """The reply of a stream of these pieces."""
    async with serving(Plays((Answer(pieces, **options),))) as server, asking(server.address, name) as model:
        return await answered(model)


async def failure(answer: Answer, **settings: Any) -> ModelError:
    async with serving(Plays((answer,))) as server, asking(server.address, **settings) as model:
        with pytest.raises(ModelError) as caught:
            await answered(model)
    assert "sk-canary-3" not in str(caught.value)
    return caught.value


class TestTheStream:
    async def test_comments_and_torn_pieces_change_nothing(self) -> None:
        stream = b": waiting\n\n" + b"".join(HELLO)
        reply = await heard(*(stream[place : place + 7] for place in range(0, len(stream), 7)))
        assert (reply.text, reply.finish) == ("hello", "stop")

    @pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
    async def test_both_names_of_reasoning_are_known(self, key: str) -> None:
        reply = await heard(chunk({key: "hm"}), *HELLO)
        assert (reply.text, reply.reasoning) == ("hello", "hm")

    async def test_reasoning_in_an_unknown_form_costs_no_answer(self) -> None:
        reply = await heard(chunk({"reasoning": [{"text": "hm"}], "content": "oh "}), *HELLO)
        assert (reply.text, reply.reasoning) == ("oh hello", None)

    async def test_reasoning_as_a_part_of_the_content_is_known(self) -> None:
        parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "oh "}]
        reply = await heard(chunk({"content": parts}), *HELLO)
        assert (reply.text, reply.reasoning) == ("oh hello", "hm")

    @pytest.mark.parametrize("numbers", [{}, {"index": None}, {"index": 0}, {"index": 0, "id": ""}])
    async def test_calls_without_number_and_id_are_told_apart(self, numbers: dict[str, Any]) -> None:
        calls = [{**numbers, "function": {"name": name, "arguments": '{"x": 1}'}} for name in "fg"]
        reply = await heard(chunk({"tool_calls": calls}, "tool_calls"), DONE)
        assert [(call.name, call.arguments) for call in reply.calls] == [("f", '{"x": 1}'), ("g", '{"x": 1}')]
        assert len({call.id for call in reply.calls} - {""}) == 2

    async def test_ids_may_be_numbers(self) -> None:
        call = {"id": 7, "function": {"name": "f", "arguments": "{}"}}
        stream = chunk({"tool_calls": [call]}, "tool_calls").replace(b'"r"', b"8")
        reply = await heard(stream, DONE)
        assert (reply.response_id, [call.id for call in reply.calls]) == ("8", ["7"])

    async def test_arguments_may_come_as_an_object(self) -> None:
        call = {"id": "c", "function": {"name": "f", "arguments": {"x": 1}}}
        reply = await heard(chunk({"tool_calls": [call]}, "tool_calls"), DONE)
        assert [(each.id, each.name, each.arguments) for each in reply.calls] == [("c", "f", '{"x": 1}')]

    @pytest.mark.parametrize(
        ("usage", "counts"),
        [
            ({"prompt_tokens": 9, "completion_tokens": 2}, (9, 2, 0)),
            ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}, (9, 2, 0)),
            ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}, (9, 2, 4)),
            ({"prompt_tokens": 9.0, "completion_tokens": 2.0, "prompt_cache_hit_tokens": 4.0}, (9, 2, 4)),
            ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": "4"}, (9, 2, 0)),
            ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": float("nan")}, (9, 2, 0)),
            ({"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": [4]}, (9, 2, 0)),
            ({"prompt_tokens": 9, "completion_tokens": 0}, (9, 0, 0)),
            ({"prompt_tokens": 0, "completion_tokens": 2}, (0, 2, 0)),
            ({"prompt_tokens": 9}, (9, 0, 0)),
            (  # xAI: reasoning beside the answer
                {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 16,
                 "completion_tokens_details": {"reasoning_tokens": 5}}, (9, 7, 0),
            ),
            (  # the others: reasoning in the answer
                {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16,
                 "completion_tokens_details": {"reasoning_tokens": 5}}, (9, 7, 0),
            ),
        ],
    )  # fmt: skip
    async def test_counts_are_read_as_their_provider_means_them(
        self, usage: dict[str, Any], counts: tuple[int, int, int]
    ) -> None:
        found = (await heard(*HELLO[:2], chunk(None, usage=usage), DONE)).usage
        assert repr((found.input_tokens, found.output_tokens, found.cached_tokens)) == repr(counts)

    @pytest.mark.parametrize(
        "usage",
        [
            None, [], [9], 9, "9", {}, {"prompt_tokens": "9", "completion_tokens": "2"},
            {"prompt_tokens": 9.5, "completion_tokens": 2}, {"prompt_tokens": 9, "completion_tokens": True},
            {"prompt_tokens": None, "completion_tokens": None}, {"prompt_tokens": 0, "completion_tokens": 0},
        ],
    )  # fmt: skip
    async def test_counts_that_say_nothing_are_estimated_and_cost_no_answer(self, usage: object) -> None:
        reply = await heard(chunk({"content": "oh "}, usage=usage, x_groq=usage), *HELLO)
        estimate = estimate_tokens(REQUEST.as_bytes().decode())
        assert (reply.text, reply.usage.input_tokens, reply.usage.output_tokens) == ("oh hello", estimate, 3)

    async def test_the_last_counts_stand_and_empty_ones_change_nothing(self) -> None:
        first, last = ({"prompt_tokens": 9, "completion_tokens": count} for count in (1, 2))
        stream = (chunk({"content": "oh "}, usage=first), *HELLO[:2], chunk(None, usage=last), chunk(None, usage=None))
        assert (await heard(*stream, DONE)).usage.output_tokens == 2

    async def test_counts_of_groq_stand_in_their_own_place(self) -> None:
        usage = {"prompt_tokens": 9, "completion_tokens": 2}
        found = (await heard(HELLO[0], chunk({}, "stop", x_groq={"usage": usage}), DONE)).usage
        assert (found.input_tokens, found.output_tokens) == (9, 2)

    async def test_a_known_provider_has_its_price(self) -> None:
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 0}}
        name, price = "deepseek/deepseek-chat", find_price("deepseek/deepseek-chat")
        assert price is not None
        found = (await heard(*HELLO[:2], chunk(None, usage=usage), DONE, name=name)).usage
        assert found.cost == pytest.approx((1000 * price.input + 100 * price.output) / 1e6)

    @pytest.mark.parametrize(("reason", "finish"), [("eos", "stop"), ("max_tokens", "length"), ("odd", "unknown")])
    async def test_ends_in_the_words_of_single_providers_are_known(self, reason: str, finish: str) -> None:
        assert (await heard(HELLO[0], chunk({}, reason), DONE)).finish == finish

    async def test_a_cut_after_the_end_of_the_answer_is_none(self) -> None:
        assert (await heard(*HELLO[:2], cut=True)).text == "hello"

    async def test_what_follows_the_last_event_changes_nothing(self) -> None:
        late = b'data: {"error": {"message": "late"}}\n\n'
        assert (await heard(*HELLO[:2], DONE + late)).text == "hello"

    async def test_a_server_that_forgets_to_end_the_stream_is_not_waited_for(self) -> None:
        async with serving(Plays((Answer(HELLO, held=Held()),))) as server, asking(server.address) as model:
            assert (await answered(model)).text == "hello"

    async def test_a_compressed_stream_is_read(self) -> None:
        body = gzip.compress(b"".join(HELLO))
        assert (await heard(body, headers=(("content-encoding", "gzip"),))).text == "hello"

    async def test_a_redirect_is_followed(self) -> None:
        moved = Answer((), status=307, headers=(("location", "/elsewhere"),))
        async with serving(Plays((moved, Answer(HELLO)))) as server, asking(server.address) as model:
            assert (await answered(model)).text == "hello"
        assert [asked.path for asked in server.requests] == ["/chat/completions", "/elsewhere"]

    async def test_a_redirect_takes_no_key_to_another_host(self) -> None:
        async with serving(Plays((Answer(HELLO),))) as other:
            moved = Answer((), status=307, headers=(("location", f"{other.address}/elsewhere"),))
            async with serving(Plays((moved,))) as server, asking(server.address) as model:
                assert (await answered(model)).text == "hello"
            async with serving(Plays((moved,))) as server, asking(server.address + "/openai/v1", "azure/x") as model:
                with pytest.raises(ModelUnavailable):
                    await answered(model)
        assert ["sk-canary-3" in repr(asked.headers) for asked in other.requests] == [False]
        assert server.requests[0].headers["api-key"] == "sk-canary-3"


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({"duration": 30.0, "usage": {"seconds": 7}}, 30),
        ({"usage": {"type": "duration", "seconds": 30}}, 30),
        ({"duration": "long"}, None),
        ({"duration": float("nan"), "usage": [7]}, None),
        ({}, None),
    ],
)
async def test_a_recording_costs_what_its_length_costs(body: dict[str, Any], seconds: int | None) -> None:
    name = "groq/whisper-large-v3"
    async with listening_to({"text": "hello", **body}) as ears, asking(ears.address, name) as model:
        transcript = await model.transcribe(b"OggS", "a.ogg", "audio/ogg")
    price = find_second_price(name)
    assert price
    assert (transcript.text, transcript.usage.cost) == ("hello", seconds and pytest.approx(seconds * price))


@pytest.mark.parametrize(
    ("name", "form"), [("groq/whisper-large-v3", "verbose_json"), ("openai/gpt-4o-transcribe", "")]
)
async def test_the_length_of_a_recording_is_asked_for_if_it_is_paid_by_it(name: str, form: str) -> None:
    async with listening_to({"text": "hello"}) as ears, asking(ears.address, name) as model:
        await model.transcribe(b"OggS", "a.ogg", "audio/ogg")
    assert [heard.form for heard in ears.heard] == [form]


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "kind", "told"),
        [
            ({"message": "busy", "code": 502}, ModelUnavailable, "could not be reached or failed: busy"),
            ({"message": "slow down", "code": 429}, ModelRateLimited, "asks for fewer requests: slow down"),
            ({"message": "prompt is too long"}, ModelOverflow, "too long for openai/test: prompt is too long"),
            ({"message": "no", "code": 403}, ModelRefused, "refused the credentials ([model] api_key): no"),
            ({"message": "no", "code": "401"}, ModelRefused, "refused the credentials ([model] api_key): no"),
            ({"message": "no", "code": None, "status_code": 404}, ModelRefused, "refused the request: no"),
            ({"message": "no", "code": 200}, ModelUnavailable, "could not be reached or failed: no"),
            ({"message": "no", "code": "1302"}, ModelUnavailable, "could not be reached or failed: no"),
            ({"message": "so \ud83d"}, ModelUnavailable, "failed: so \N{REPLACEMENT CHARACTER}"),
            ("broken", ModelUnavailable, "could not be reached or failed: broken"),
        ],
    )
    async def test_an_error_in_the_stream_is_one(self, error: object, kind: type[ModelError], told: str) -> None:
        caught = await failure(Answer((b"data: " + json.dumps({"error": error}).encode() + b"\n\n",)))
        assert isinstance(caught, kind)
        assert told in str(caught)

    @pytest.mark.parametrize(
        "body",
        [
            b"data: {half\n\n", b"data: 7\n\n", b'data: {"choices": [7]}\n\n', b'data: {"choices": 7}\n\n',
            b"data: " + b"[" * 5_000 + b"\n\n", b"<html>Log in, please.</html>", b'{"choices": []}', b"[" * 5_000,
        ],
    )  # fmt: skip
    async def test_what_is_not_of_the_protocol_is_told_in_our_words(self, body: bytes) -> None:
        caught = await failure(Answer((body,)))
        assert isinstance(caught, ModelUnavailable)
        assert str(caught) == "openai/test sent something that is not an answer"

    async def test_an_error_that_comes_as_a_success_without_a_stream_is_one(self) -> None:
        caught = await failure(
            Answer(
                (
                    b'{"error": {"message": "slow',
                    b' down", "code": 429}}\n',
                )
            )
        )
        assert isinstance(caught, ModelRateLimited)
        assert "asks for fewer requests: slow down" in str(caught)

    @pytest.mark.parametrize(
        ("pieces", "place"),
        [
            (HELLO[:1], "in the middle of"),
            ((b": waiting\n\n",), "before"),
            ((HELLO[0][:-9],), "before"),
            ((), "before"),
            ((DONE,), "before"),
        ],
    )
    async def test_a_stream_that_ends_without_a_finish_was_cut(self, pieces: tuple[bytes, ...], place: str) -> None:
        assert str(await failure(Answer(pieces))) == f"openai/test broke off {place} its answer"

    @pytest.mark.parametrize(
        ("answer", "tokens"),
        [
            (Answer(HELLO[:1], cut=True), 2),
            (Answer((HELLO[0], b'data: {"error": "broken"}\n\n')), 2),
            (Answer((), cut=True), 0),
            (Answer((b"no",), status=503), 0),
        ],
    )
    async def test_what_had_arrived_before_a_failure_is_counted(self, answer: Answer, tokens: int) -> None:
        assert (await failure(answer)).heard == tokens

    @pytest.mark.parametrize(
        ("headers", "details", "seconds"),
        [
            ((("retry-after", "7"),), "", 7.0),
            ((("retry-after", "7"),), '{"retryDelay": "9s"}', 7.0),
            ((), '{"retryDelay": "9s"}', 9.0),
            ((), "", None),
        ],
    )
    async def test_the_wait_is_that_of_the_header_or_of_the_body(
        self, headers: tuple[tuple[str, str], ...], details: str, seconds: float | None
    ) -> None:
        caught = await failure(Answer((f"slower {details}".encode(),), status=429, headers=headers))
        assert isinstance(caught, ModelRateLimited)
        assert caught.retry_after == seconds

    @pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
    async def test_an_end_that_is_a_failure_is_one(self, reason: str) -> None:
        assert isinstance(await failure(Answer((chunk({}, reason), DONE))), ModelUnavailable)

    @pytest.mark.parametrize(
        ("body", "told"),
        [
            (b'{"error": {"message": "no such\\nmodel"}}', "no such model"),
            (b'{"error": "no such model"}', "no such model"),
            (b'[{"error": {"message": "no such model"}}]', "no such model"),
            (b'{"message": "no such model", "type": "x"}', "no such model"),
            (b'{"detail": [{"msg": "no such model"}]}', '[{"msg": "no such model"}]'),
            (b"<html>no such model</html>", "<html>no such model</html>"),
            (b"", "HTTP status 404"),
            (b'{"error": ' + b"[" * 5_000, '{"error": ' + "[" * 290),
            (b"x" * 1_000_000, "x" * 300),
        ],
    )
    async def test_error_bodies_of_any_form_are_told(self, body: bytes, told: str) -> None:
        caught = await failure(Answer((body,), status=404, media="application/json"))
        assert isinstance(caught, ModelRefused)
        assert str(caught) == f"openai/test refused the request: {told}"
        assert caught.status == 404

    async def test_a_key_that_the_server_repeats_is_not(self) -> None:
        body = b'{"error": {"message": "Incorrect API key: sk-canary-3"}}'
        caught = await failure(Answer((body,), status=401))
        assert "[redacted]" in str(caught)

    async def test_an_address_without_a_server_is_told_in_our_words(self) -> None:
        async with asking("http://127.0.0.1:1/v1") as model:
            with pytest.raises(ModelUnavailable) as caught:
                await answered(model)
        assert str(caught.value) == "openai/test could not be reached or failed: nothing listens at its address"

    async def test_an_answer_that_never_begins_is_told_in_our_words(self) -> None:
        """The server takes the request and closes the connection."""

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.close()

        async with listening(hang_up) as address, asking(address) as model:
            with pytest.raises(ModelUnavailable) as caught:
                await answered(model)
        assert str(caught.value) == "openai/test could not be reached or failed: the connection broke"


async def test_a_model_of_this_way_never_loads_litellm(tmp_path: Path) -> None:
    """Nor what counts tokens: prices and sizes are read from files."""
    program = (
        "import sys\nfrom bubbot.cli.main import main\ntry: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "assert 'aiohttp' in sys.modules\n"
        "assert not {'litellm', 'openai', 'tiktoken', 'httpx'} & sys.modules.keys()\nsys.exit(code)"
    )
    home = tmp_path / "home"
    home.mkdir()
    async with serving_steps(says("hello there")) as server:
        env = environment(
            home,
            BUBBOT_MODEL__NAME="deepseek/deepseek-chat",
            BUBBOT_MODEL__API_BASE=server.address,
            BUBBOT_MODEL__API_KEY="sk-1",
            BUBBOT_MODEL__FALLBACK="anthropic/claude-sonnet-4-5",
            ANTHROPIC_API_KEY="sk-2",
            BUBBOT_BUDGET__DAY="5",
        )
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program, "ask", "hi"],
            capture_output=True, timeout=60, check=False, cwd=ROOT, env=env,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, b"hello there\n"), done.stderr.decode()
