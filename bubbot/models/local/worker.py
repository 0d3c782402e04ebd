"""The child process of the model `local`: llama.cpp behind JSON lines on stdin and stdout.

`bubbot.models.local.model` starts it as `python -P worker.py OPTIONS`; OPTIONS is a JSON object with `weights`,
`context_tokens` and `threads`. It imports nothing of bubbot. A line in is
`{"messages", "temperature", "max_tokens", "seed"}`; the lines out are

    {"alive": true}                       loaded, or a piece of the prompt was read
    {"text": "..."}                       a delta, never a part of a character
    {"done": true, "finish", "input_tokens", "output_tokens", "cached_tokens"}
    {"error": {"kind": "overflow" | "failed", "message"}}
    {"count": 123}                        the tokens of `{"count": true, "messages"}`, which generates nothing

and each request ends with exactly one `done`, `count` or `error`. The process exits when its stdin closes, even in the
middle of a generation, so that nothing keeps running after the daemon was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any

import xllamacpp  # type: ignore[import-untyped]  # a compiled module without stubs

if TYPE_CHECKING:
    from collections.abc import Mapping

# The prompt is read in pieces of this many tokens, with a sign of life after each.
BATCH_TOKENS = 128
# Prompts of other sessions kept in memory, so that turns that alternate do not read theirs again.
PROMPT_CACHE_MIB = 64
# Above 1, words of the question count as repeated too and get avoided in the answer; 1.05 is enough against loops.
REPEAT_PENALTY = 1.05


class WorkerOutput:
    """The pipe to the parent. Other writes to file descriptor 1 go to stderr."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)

    def send(self, line: Mapping[str, object]) -> None:
        """Write one line; exit the process if the parent has closed the pipe."""
        data = (json.dumps(line) + "\n").encode()
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BrokenPipeError:
            os._exit(0)


class CompletionStream:
    """A converter from the chunks of one streamed completion to lines."""

    def __init__(self, output: WorkerOutput) -> None:
        self._output = output
        self._finish = "unknown"
        self._usage: Mapping[str, Any] = {}
        self._failed = False

    def on_chunk(self, chunk: Mapping[str, Any]) -> bool:
        """Handle one chunk; the callback of llama.cpp, for which true would stop the generation."""
        if "error" in chunk:
            error = chunk["error"]
            if error.get("type") == "exceed_context_size_error":
                sizes = f"it has {error.get('n_prompt_tokens')} tokens, the context {error.get('n_ctx')}"
                self.send_error("overflow", sizes)
            else:
                self.send_error("failed", str(error.get("message", error)))
            return True
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            self._finish = choice.get("finish_reason") or self._finish
            if text := choice.get("delta", {}).get("content"):
                self._output.send({"text": text})
        if "prompt_progress" in chunk:
            self._output.send({"alive": True})
        return False

    def send_error(self, kind: str, message: str) -> None:
        if not self._failed:
            self._failed = True
            self._output.send({"error": {"kind": kind, "message": message}})

    def send_done(self) -> None:
        """End the request, unless it has failed."""
        if self._failed:
            return
        details = self._usage.get("prompt_tokens_details") or {}
        self._output.send(
            {
                "done": True,
                "finish": self._finish,
                "input_tokens": self._usage.get("prompt_tokens", 0),
                "output_tokens": self._usage.get("completion_tokens", 0),
                "cached_tokens": details.get("cached_tokens", 0),
            }
        )


def load_server(weights: str, context_tokens: int, threads: int) -> Any:
    """Create the server object and load its model. Raise `RuntimeError` if llama.cpp cannot."""
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.n_ctx = context_tokens
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_threads_http = 1
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.warmup = params.fit_params = params.ui = params.endpoint_slots = False
    # Answer a history that ends with the assistant, instead of continuing its last sentence.
    params.prefill_assistant = False
    params.offline = True
    params.verbosity = 1
    # The server object always listens. A name that ends in .sock makes it use a unix socket. Its folder is deleted, so
    # nobody can connect, and no port is open.
    with TemporaryDirectory(prefix="bubbot-") as folder:
        params.hostnames = [str(Path(folder, "llama.sock"))]
        return xllamacpp.Server(params)


def answer_request(server: Any, counter: PromptCounter, line: bytes, output: WorkerOutput) -> None:
    completion = CompletionStream(output)
    try:
        request = json.loads(line)
        if request.get("count"):
            output.send({"count": counter.count(request["messages"])})
            return
        request |= {
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            "cache_prompt": True,
            "top_p": 0.9,
            "repeat_penalty": REPEAT_PENALTY,
        }
        server.handle_chat_completions(request, completion.on_chunk)
    except (ValueError, TypeError, RuntimeError) as error:
        completion.send_error("failed", f"{type(error).__name__}: {error}")
    completion.send_done()


class PromptCounter:
    """A counter that uses the tokenizer and the chat template of the loaded model, without evaluating the prompt.

    The server offers no call for this, but it reports the length of a prompt that exceeds its context. So the counter
    appends a message that alone exceeds it, and subtracts what that message adds: special tokens separate the messages,
    so their lengths add up.
    """

    def __init__(self, server: Any, context_tokens: int) -> None:
        self._server = server
        self._long = {"role": "user", "content": " a" * (context_tokens + 1)}
        system = {"role": "system", "content": "a"}
        self._long_tokens = self._measure([system, self._long, self._long]) - self._measure([system, self._long])

    def count(self, messages: list[Any]) -> int:
        """Count the tokens of a request with these messages. Raise `ValueError` if the server does not say."""
        return self._measure([*messages, self._long]) - self._long_tokens

    def _measure(self, messages: list[Any]) -> int:
        chunks: list[Mapping[str, Any]] = []

        def take(chunk: Mapping[str, Any]) -> bool:
            chunks.append(chunk)
            return True

        self._server.handle_chat_completions({"messages": messages, "max_tokens": 1}, take)
        lengths = [chunk.get("error", {}).get("n_prompt_tokens") for chunk in chunks]
        if not lengths or not isinstance(lengths[0], int):
            raise ValueError("the server did not say how long the prompt is")
        return lengths[0]


def read_requests(lines: SimpleQueue[bytes]) -> None:
    """Read requests until the parent closes the pipe or dies; then exit the process at once."""
    with open(0, "rb", closefd=False) as stdin:
        for line in stdin:
            lines.put(line)
    os._exit(0)


def main() -> None:
    """Load the model, then answer requests one after another until stdin closes."""
    output = WorkerOutput()
    options = json.loads(sys.argv[1])
    server = load_server(**options)
    # A supervisor signals the whole group: let the running turn end, the closed pipe ends this process.
    # Set after loading, because llama.cpp installs handlers that leave a server which answers nothing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lines: SimpleQueue[bytes] = SimpleQueue()
    # Started after loading: loading holds the interpreter's lock, so the thread could not run earlier.
    Thread(target=read_requests, args=(lines,), daemon=True).start()
    counter = PromptCounter(server, options["context_tokens"])
    output.send({"alive": True})
    while True:
        answer_request(server, counter, lines.get(), output)


if __name__ == "__main__":
    main()
