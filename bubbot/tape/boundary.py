"""The boundary of reading: the tapes that one viewer may see, and no way to write.

It is a `TapeStore` in front of the real one, so views, projections and search read through it unchanged, and nothing
counts, ranks or draws what the viewer may not see.

The owner sees every tape. An auditor sees the tapes of the granted sessions and their archives. Of a tape that holds
facts of all sessions (deliveries, schedules) an auditor sees only the facts about granted sessions. All other tapes are
refused, whether they exist or not: the memory of people belongs to no session, and checkpoints hold sums over all
sessions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NoReturn

from msgspec import Struct, structs

from bubbot.errors import AccessError
from bubbot.tape.blobs import cited_blobs
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import IdRanges, Span, TapeQuery, WholeTape, cut_spans
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.service import TapeService, session_tape
from bubbot.tape.shards import count_shards
from bubbot.tape.store import Batch, ForkedSession, ForkRecord, ResetBatch, TapeStore, TapeSummary

SHARED_PAGE_ENTRIES = 500
"""Facts of a shared tape to read at a time."""
MAX_REFERENCE_DEPTH = 3
"""How many references may lead from a fact to the one that names its session: a receipt names the delivery."""


class SharedTape(Struct, frozen=True):
    """A tape with facts about many sessions; a viewer may see those about granted ones.

    A fact is about the sessions that it names; if it names none, about the subject or the entries that it names. A
    checkpoint is about all sessions.

    Attributes:
        name: the tape, which may have shards; if it ends with a slash, a prefix of tapes.
        subject: the field that names the subject of a fact, such as `job`; empty if facts name entries.
        introduced_by: the facts that name the session of a subject.
        facts: the names of the facts that a viewer may see; empty for all.
    """

    name: str
    subject: str = ""
    introduced_by: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()

    def covers(self, tape: str) -> bool:
        """Return true for this tape and its shards."""
        prefix = self.name.removesuffix("/")
        return tape.startswith(f"{prefix}/") or (tape == prefix and prefix == self.name)


class Viewer(Struct, frozen=True):
    """Somebody who looks at tapes.

    Attributes:
        name: for errors.
        sessions: the granted sessions; None for the owner, who sees every session.
        account: the account as channel and id; empty for the user of this process.
    """

    name: str
    sessions: frozenset[str] | None = frozenset()
    account: str = ""

    @property
    def sees_all(self) -> bool:
        return self.sessions is None

    def may_see(self, session: str) -> bool:
        """Return true if the viewer may see a session."""
        return self.sessions is None or session in self.sessions


OWNER = Viewer("the owner", None)


class TapeBoundary:
    """A store as one viewer may read it. See `TapeStore`; methods that write raise `AccessError`.

    Attributes:
        workspace: the label in the names of tapes.
    """

    def __init__(
        self,
        store: TapeStore,
        viewer: Viewer,
        *,
        workspace: str,
        references: ReferenceRegistry,
        shared: Collection[SharedTape] = (),
    ) -> None:
        """Put the boundary in front of a store. Open the store read-only if you can.

        Args:
            references: which fields of facts name sessions and entries.
            shared: the tapes that the viewer may see in part.
        """
        self.viewer = viewer
        self.workspace = workspace
        self._store = store
        self._references = references
        self._shared = tuple(shared)
        self._names = frozenset(session_tape(workspace, session) for session in viewer.sessions or ())
        self.tape_shards = count_shards(store)

    def may_read(self, tape: str) -> bool:
        """Return true if the viewer may see all of the tape or, if it is shared, facts about granted sessions."""
        return self._may_see_all(tape) or self._find_shared(tape) is not None

    def open_tape(self, name: str, session: str = "") -> TapeService:
        """Open a tape for reading. Raise `AccessError` if the viewer may not see it."""
        self._require(name)
        return TapeService(self, name, now=_no_clock, new_id=_no_id, session=session, references=self._references)

    def open_session(self, session: str) -> TapeService:
        """Open the tape of a session for reading. Raise `AccessError` if the viewer may not see it."""
        return self.open_tape(session_tape(self.workspace, session), session)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Raise `AccessError` if a query names a tape that the viewer may not see."""
        for query in queries:
            self._require(query.tape)
        plain = [query for query in queries if self._may_see_all(query.tape)]
        answers = iter(await self._store.fetch(plain) if plain else ())
        return [
            next(answers) if self._may_see_all(query.tape) else await self._fetch_shared(query) for query in queries
        ]

    async def head(self, tape: str) -> int:
        self._require(tape)
        return await self._store.head(tape)

    async def tapes(self) -> list[TapeSummary]:
        """List the tapes that the viewer may see whole."""
        return [tape for tape in await self._store.tapes() if self._may_see_all(tape.name)]

    def list_blobs(self, entry: TapeEntry) -> list[str]:
        """List the digests of the blobs that an entry names."""
        declared = (each for each in self._references.find_blobs(entry) if isinstance(each, str))
        return sorted({*cited_blobs(entry), *declared})

    async def get_blob(self, tape: str, digest: str) -> bytes:
        if not self._may_see_all(tape):
            self._refuse(tape)
        return await self._store.get_blob(tape, digest)

    async def forks(self, tape: str | None = None) -> list[ForkRecord]:
        """List the open forks without their batches for tapes that the viewer may not see."""
        forks = [fork for fork in await self._store.forks(tape) if self._may_see_all(fork.tape)]
        return [
            structs.replace(fork, staged=tuple(batch for batch in fork.staged if self._may_see_all(batch.tape)))
            for fork in forks
        ]

    async def forked_sessions(self) -> list[ForkedSession]:
        return [fork for fork in await self._store.forked_sessions() if self._may_see_all(fork.tape)]

    async def append(self, batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:  # noqa: ARG002
        self._refuse_writing()

    def append_deferred(self, batches: Sequence[Batch]) -> Awaitable[list[tuple[TapeEntry, ...]]]:  # noqa: ARG002
        self._refuse_writing()

    async def put_blob(self, tape: str, data: bytes) -> str:  # noqa: ARG002
        self._refuse_writing()

    async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:  # noqa: ARG002
        self._refuse_writing()

    async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:  # noqa: ARG002
        self._refuse_writing()

    async def merge_fork(
        self,
        fork: str,  # noqa: ARG002
        batches: Sequence[Batch],  # noqa: ARG002
        reset: tuple[str, ResetBatch] | None = None,  # noqa: ARG002
    ) -> list[tuple[TapeEntry, ...]]:
        self._refuse_writing()

    async def drop_fork(self, fork: str) -> None:  # noqa: ARG002
        self._refuse_writing()

    async def raise_epoch(self, tape: str) -> int:  # noqa: ARG002
        self._refuse_writing()

    async def reset(self, tape: str, reset_batch: ResetBatch, first: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:  # noqa: ARG002
        self._refuse_writing()

    async def erase(
        self,
        batches: Sequence[Batch],  # noqa: ARG002
        entries: Sequence[tuple[str, tuple[int, ...]]],  # noqa: ARG002
        blobs: Sequence[tuple[str, tuple[str, ...]]] = (),  # noqa: ARG002
    ) -> list[tuple[TapeEntry, ...]]:
        self._refuse_writing()

    async def aclose(self) -> None:
        """Do nothing: the code that opened the store closes it, and several viewers may share it."""

    def _may_see_all(self, tape: str) -> bool:
        """Return true for the tape of a granted session and for its archives: a reset does not end an audit."""
        return self.viewer.sees_all or tape.partition("@")[0] in self._names

    def _find_shared(self, tape: str) -> SharedTape | None:
        return next((shared for shared in self._shared if shared.covers(tape)), None)

    def _require(self, tape: str) -> None:
        if not self.may_read(tape):
            self._refuse(tape)

    def _refuse(self, tape: str) -> NoReturn:
        raise AccessError(f"{self.viewer.name} may not see the tape {tape}: bubbot access audits shows what is granted")

    def _refuse_writing(self) -> NoReturn:
        raise AccessError(f"{self.viewer.name} looks at tapes here, and nothing is written")

    async def _fetch_shared(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        """Answer a query on a shared tape: apply its filters, then the boundary, then its limit."""
        shared = self._find_shared(query.tape)
        assert shared is not None
        spans: tuple[Span, ...]
        if isinstance(query.part, WholeTape):
            spans = ((1, None),)
        elif isinstance(query.part, IdRanges):
            spans = query.part.spans
        else:  # no slice that depends on other entries is large there; its whole answer is filtered
            found = (await self._store.fetch([replace(query, limit=None)]))[0]
            return tuple((await self._filter(shared, query.tape, found))[: query.limit])
        visible: list[TapeEntry] = []
        while query.limit is None or len(visible) < query.limit:
            page = replace(query, part=IdRanges(tuple(spans)), limit=SHARED_PAGE_ENTRIES)
            found = (await self._store.fetch([page]))[0]
            visible += await self._filter(shared, query.tape, found)
            if len(found) < SHARED_PAGE_ENTRIES:
                break
            spans = cut_spans(spans, found[-1].id - 1) if query.newest else _cut_below(spans, found[-1].id)
        return tuple(visible[: query.limit])

    async def _filter(
        self, shared: SharedTape, tape: str, entries: Sequence[TapeEntry], depth: int = 0
    ) -> list[TapeEntry]:
        subjects: frozenset[str] | None = None
        verdicts: dict[int, bool] = {}
        named: dict[int, set[int]] = {}
        for entry in entries:
            data, name = entry.data, entry.name or ""
            is_fact = entry.kind == Kind.EVENT and not entry.erased and not name.endswith("/checkpoint")
            if not is_fact or (shared.facts and name not in shared.facts):
                verdicts[entry.id] = False
            elif sessions := list(self._references.find_sessions(entry)):
                verdicts[entry.id] = all(isinstance(name, str) and self.viewer.may_see(name) for name in sessions)
            elif shared.subject and shared.subject in data:
                subjects = await self._find_subjects(shared, tape) if subjects is None else subjects
                verdicts[entry.id] = data[shared.subject] in subjects
            else:
                named[entry.id] = set(self._references.find_entries(entry))
        ids = set().union(*named.values())
        if ids and depth < MAX_REFERENCE_DEPTH:
            others = TapeQuery(tape, IdRanges(tuple((each, each) for each in sorted(ids))))
            found = await self._filter(shared, tape, (await self._store.fetch([others]))[0], depth + 1)
            seen = {entry.id for entry in found}
            verdicts |= {entry_id: bool(names) and names <= seen for entry_id, names in named.items()}
        return [entry for entry in entries if verdicts.get(entry.id)]

    async def _find_subjects(self, shared: SharedTape, tape: str) -> frozenset[str]:
        """Return the subjects all of whose introductions are about granted sessions."""
        query = TapeQuery(tape, kinds=(Kind.EVENT,), names=shared.introduced_by)
        verdicts: dict[str, bool] = {}
        for entry in (await self._store.fetch([query]))[0]:
            if not entry.erased:
                subject = str(entry.data.get(shared.subject))
                sessions = list(self._references.find_sessions(entry))
                about = bool(sessions) and all(isinstance(name, str) and self.viewer.may_see(name) for name in sessions)
                verdicts[subject] = verdicts.get(subject, True) and about
        return frozenset(subject for subject, is_granted in verdicts.items() if is_granted)


def _cut_below(spans: Iterable[Span], last: int) -> tuple[Span, ...]:
    return tuple((max(low, last + 1), high) for low, high in spans if high is None or high > last)


def _no_clock() -> datetime:
    raise AccessError("nothing is written through a boundary of reading")


def _no_id() -> str:
    raise AccessError("nothing is written through a boundary of reading")
