"""A receiver of traces on the loopback interface: it decodes what it is sent, and may be slow, refuse, or answer nothing."""

from __future__ import annotations

import asyncio
import gzip
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

WAIT = 60.0
"""Seconds any wait may take."""


@dataclass(frozen=True)
class Span:
    """A span as it came. `attributes` of the span, and of the `resource` that it stands under."""

    id: str
    trace: str
    parent: str
    name: str
    kind: int
    start: int
    end: int
    attributes: dict[str, Any]
    status: int
    message: str
    links: tuple[tuple[str, str], ...]
    resource: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


@dataclass
class Receiver:
    """What came, in order.

    Attributes:
        url: where it listens.
        spans: those that were taken, each as often as it came.
        bodies: of the requests that were taken, unpacked.
        headers: of every request.
        answers: the status and the headers of the next answers; 200 when there are none left.
        refuses: answers 400 to a request whose bytes hold this.
        rejects: so many spans of the next request are said to be rejected.
        gate: requests wait until it is set, before anything of them is taken.
        annotations: those that were taken, each as it came last: a Phoenix knows them by span, name and identifier.
        annotation_requests: the lists that came, with the header `authorization`.
        annotation_answers: the status and the body of the next answers to lists that are not empty.
        hidden: spans that came and cannot be annotated yet.
        annotation_gate: requests with annotations wait until it is set.
        is_phoenix: false: it knows no annotations.
    """

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    refuses: bytes = b""
    rejects: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    annotations: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    annotation_requests: list[tuple[list[dict[str, Any]], str]] = field(default_factory=list)
    annotation_answers: list[tuple[int, str]] = field(default_factory=list)
    hidden: set[str] = field(default_factory=set)
    annotation_gate: asyncio.Event = field(default_factory=asyncio.Event)
    is_phoenix: bool = True
    came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        """Answer one request."""
        raw = await request.read()  # the bytes as sent: aiohttp unpacks what is declared packed
        body = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        try:
            self.headers.append({name.lower(): value for name, value in request.headers.items()})
            await self._tell()
            await self.gate.wait()
            if self.answers:
                status, headers = self.answers.pop(0)
                if status // 100 != 2 or headers.get("Content-Type") == "text/html":
                    return web.Response(status=status, headers=headers)
            if self.refuses and self.refuses in body:
                return web.Response(status=400)
            self.spans += _decode(body)
            self.bodies.append(body)
            rejected, self.rejects = self.rejects, 0
            answer = ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=rejected))
            return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")
        finally:
            await self._tell()

    async def annotate(self, request: web.Request) -> web.Response:
        """Answer one list of annotations, as Phoenix does: all of it is stored, or nothing."""
        if not self.is_phoenix:
            raise web.HTTPNotFound
        assert request.query["sync"] == "true"
        data = (await request.json())["data"]
        try:
            self.annotation_requests.append((data, request.headers.get("authorization", "")))
            await self._tell()
            await self.annotation_gate.wait()
            if data and self.annotation_answers:
                status, body = self.annotation_answers.pop(0)
                return web.Response(status=status, text=body)
            missing = {each["span_id"] for each in data} - ({span.id for span in self.spans} - self.hidden)
            if missing:
                return web.Response(status=404, text=f"Spans with IDs {', '.join(sorted(missing))} do not exist.")
            for each in data:
                self.annotations[each["span_id"], each["name"], each["identifier"]] = each
            return web.json_response({"data": [{"id": "x"} for _ in data]})
        finally:
            await self._tell()

    async def annotated(self, count: int) -> None:
        """Wait until so many annotations are there."""
        await self.until(lambda: len(self.annotations) >= count)

    @property
    def results(self) -> list[dict[str, Any]]:
        """The annotations that were taken, in order."""
        return list(self.annotations.values())

    async def _tell(self) -> None:
        async with self.came:
            self.came.notify_all()

    async def until(self, seen: Callable[[], object]) -> None:
        """Wait until something is seen after a request."""
        async with asyncio.timeout(WAIT), self.came:
            await self.came.wait_for(seen)

    async def turns(self, count: int) -> None:
        """Wait until the spans of so many turns are there."""
        await self.until(lambda: len({span.trace for span in self.roots}) >= count)

    @property
    def roots(self) -> list[Span]:
        """The spans of turns."""
        return [span for span in self.spans if not span.parent]

    @property
    def ids(self) -> Counter[str]:
        """How often each span came."""
        return Counter(span.id for span in self.spans)

    def named(self, start: str) -> list[Span]:
        """The spans whose names begin so."""
        return [span for span in self.spans if span.name.startswith(start)]

    def children(self, span: Span) -> list[Span]:
        """Those below one, by their beginnings."""
        below = {each.id: each for each in self.spans if each.parent == span.id and each.trace == span.trace}
        return sorted(below.values(), key=lambda each: (each.start, each.name))

    def tree(self, span: Span) -> list[Any]:
        """Names of what is below one, as a list in which a list stands below the name before it."""
        names: list[Any] = []
        for child in self.children(span):
            names += [child.name, *([below] if (below := self.tree(child)) else [])]
        return names


def _decode(body: bytes) -> list[Span]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        _span(span, {each.key: _value(each.value) for each in resource.resource.attributes})
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _span(span: OtlpSpan, resource: dict[str, Any]) -> Span:
    return Span(
        span.span_id.hex(),
        span.trace_id.hex(),
        span.parent_span_id.hex(),
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {each.key: _value(each.value) for each in span.attributes},
        span.status.code,
        span.status.message,
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        resource,
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, str(kind))


@asynccontextmanager
async def receiver(*, port: int = 0, opened: bool = True) -> AsyncIterator[Receiver]:
    """A receiver for the block. Without `opened` it takes requests and answers none until its gate is set."""
    made = Receiver()
    if opened:
        made.gate.set()
    app = web.Application(client_max_size=100_000_000)
    app.router.add_post("/v1/traces", made.take)
    app.router.add_post("/v1/span_annotations", made.annotate)
    made.annotation_gate.set()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
        await site.start()
        addresses: Sequence[Any] = runner.addresses
        made.url = f"http://127.0.0.1:{addresses[0][1]}"
        yield made
    finally:
        made.gate.set()
        made.annotation_gate.set()
        await runner.cleanup()
