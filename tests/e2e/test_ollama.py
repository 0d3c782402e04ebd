"""A model of Ollama is one line of configuration: OpenAI's protocol or Ollama's own, over real HTTP on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e import inside
from tests.e2e.bot import entries
from tests.e2e.model_paths import model_path, via  # noqa: F401 - a fixture among them


class OllamaHandler(BaseHTTPRequestHandler):
    """Speaks as much of Ollama's API as a chat needs: `/v1/chat/completions`, `/api/show` and a streamed `/api/chat`."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        """Says nothing."""

    def do_POST(self) -> None:
        """Answers one request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/v1/chat/completions":
            self._answer("text/event-stream", _events())
            return
        if self.path == "/api/show":
            lines: list[dict[str, object]] = [{"template": "", "model_info": {}, "capabilities": ["tools"]}]
        else:
            words = [
                {"message": {"role": "assistant", "content": word}, "done": False} for word in ("Hello ", "there.")
            ]
            last = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
            lines = [*words, {**last, "prompt_eval_count": 11, "eval_count": 2}]
        body = b"".join(json.dumps({"model": "small", **line}).encode() + b"\n" for line in lines)
        self._answer("application/x-ndjson", body)

    def _answer(self, media: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _events() -> bytes:
    """The same answer in the form of OpenAI's protocol."""
    deltas = [
        ({"role": "assistant", "content": "Hello "}, None),
        ({"content": "there."}, None),
        ({"content": ""}, "stop"),
    ]
    events: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas
    ]
    events.append({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13}})
    texts = [*(json.dumps({"id": "chatcmpl-1", "model": "small", **event}) for event in events), "[DONE]"]
    return b"".join(f"data: {text}\n\n".encode() for text in texts)


@pytest.fixture
def ollama() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OllamaHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.usefixtures("model_path")
def test_a_model_of_ollama_answers_and_its_tokens_are_facts(tmp_path: Path, ollama: str) -> None:
    home = tmp_path / "home"
    done = inside.run(
        home,
        "ask",
        "hi",
        env={"BUBBOT_MODEL__NAME": "ollama_chat/small", "BUBBOT_MODEL__API_BASE": ollama, "BUBBOT_MODEL__VIA": via()},
    )
    assert (done.returncode, done.stdout) == (0, b"Hello there.\n"), done.stderr.decode()
    (step,) = [
        entry["payload"]["data"]  # type: ignore[index]
        for entry in entries(home)
        if entry["payload"].get("name") == "loop.step"  # type: ignore[attr-defined]
    ]
    assert (step["model"], step["usage"]["input_tokens"], step["usage"]["output_tokens"]) == (
        "ollama_chat/small",
        11,
        2,
    )
