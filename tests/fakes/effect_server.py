"""A service on the loopback interface that does what it is asked over HTTP, and counts what really happened."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class EffectServer:
    """What happened. It may kill the process that asks, before or after it does what that asked for.

    Attributes:
        address: where it listens.
        done: what happened, by kind and text; a key that was seen before happens once.
        keys: the keys that it has seen, with what they were for.
        kill_at: `KIND:before` or `KIND:after`: when it kills `victim`, once.
        victim: a process that the test has started.
    """

    address: str = ""
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    kill_at: str = ""
    victim: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def act(self, kind: str, text: str, key: str) -> None:
        """Do it, unless the key says that it is done."""
        self.kill(f"{kind}:before")
        with self.lock:
            if not (kind == "key" and key in self.keys):
                self.done[kind, text] += 1
            if key:
                self.keys[key] = (kind, text)
        self.kill(f"{kind}:after")

    def kill(self, place: str) -> None:
        """Kill the process that asks if it was to happen here."""
        if place == self.kill_at and self.victim:
            self.kill_at = ""
            os.kill(self.victim, signal.SIGKILL)


@contextmanager
def effect_server() -> Iterator[EffectServer]:
    """A service for the block. `POST /` with `kind`, `text` and `key` acts; `GET /?key=` says whether a key is known."""
    service = EffectServer()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.act(body["kind"], body["text"], body["key"])
            self._reply(200)

        def do_GET(self) -> None:
            (key,) = parse_qs(urlsplit(self.path).query)["key"]
            self._reply(200 if key in service.keys else 404)

        def _reply(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.address = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()
