"""Tasks on the trace page: their runs, and of one run its graph, its verdicts and what happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from msgspec import Struct

from bubbot.features.tasks.attempts import NODE_BEGAN, artifact_key, opened_key
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.drawing import BOX_HEIGHT, BOX_WIDTH, EMPTY_DRAWING, DrawnEdge, GraphDrawing, draw_graph
from bubbot.features.tasks.facts import (
    SESSION_EVENTS,
    TASKS_TAPE,
    ArtifactMade,
    MoveRefused,
    NodeChanged,
    RuleJudged,
    RunChanged,
    RunQueued,
    Status,
    TaskOpened,
)
from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.features.tasks.state import (
    MARKS,
    TASKS_PROJECTION,
    NodeState,
    RunState,
    TasksState,
    read_details,
    say_reason,
)
from bubbot.formatting import cell_width
from bubbot.panel import Panel, PanelQuery, PanelReader
from bubbot.tape.boundary import SharedTape
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.fact import Fact
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import read_projection
from bubbot.tape.query import IdRanges, TapeQuery, format_date
from bubbot.texts import Texts

STATES = (*RunQueued.EVENTS, *NodeChanged.EVENTS, *RunChanged.EVENTS)
TASKS = SharedTape(TASKS_TAPE, "run", SESSION_EVENTS, STATES)
MAX_DRAWN_NODES = 60
"""Nodes of a graph that is drawn; of more the table alone is readable."""
MAX_FACTS_READ = 5_000
"""Facts of all runs among which a page looks for those of one, and facts of a chat about its runs."""
LABEL_CELLS = 22
"""Cells of a title that its box has room for."""
F = TypeVar("F", bound=Fact)
_RULE_STATES = MappingProxyType({"satisfied": "panel_task_satisfied", "violated": "panel_task_violated"})


class RunLine(Struct, frozen=True):
    """A run in the list; `done` and `nodes` are numbers of nodes."""

    run: str
    task: str
    session: str
    status: str
    done: int
    nodes: int
    began: str
    changed: str


class RunNode(Struct, frozen=True):
    """A node of a run.

    Attributes:
        status: as a class of the drawing.
        state: its sign and its state, in words.
        label: its title, as far as its box has room.
        after: the titles of what it waits for.
        note: for what it waits, or why it failed.
        turn: an entry of the turn in which its last attempt ran, or its question was asked; 0 if that is not merged yet.
        artifact: the entry of its artifact; 0 for none.
        x: the left side of its box in the drawing.
        y: its upper side.
    """

    node: str
    title: str
    status: Status
    state: str
    label: str
    attempt: int
    after: str
    note: str = ""
    turn: int = 0
    artifact: int = 0
    x: int = 0
    y: int = 0


class RunRule(Struct, frozen=True):
    """A verdict about a rule, or a call that rules forbade.

    Attributes:
        entry: its own entry.
        state: the verdict in words, or the tool that was called.
        text: the step of the rule, as the harness has it.
        place: its file and line, or the node that called.
        cites: the entries on which it rests, by ranges: the first one, and how the range is written.
    """

    entry: int
    state: str
    text: str
    place: str
    cites: tuple[tuple[int, str], ...]


class RunFact(Struct, frozen=True):
    """A change of a run or of a node, on the tape of tasks.

    Attributes:
        subject: the task, or the title of the node.
        attempt: of the node; 0 for the run.
        note: why.
    """

    id: int
    date: str
    subject: str
    attempt: int
    state: str
    note: str
    tokens: int = 0
    seconds: float = 0.0


class Legend(Struct, frozen=True):
    """A state with its sign."""

    status: Status
    text: str


class RunDetails(Struct, frozen=True):
    """A run.

    Attributes:
        state: its sign and its state, in words.
        reason: why it ended so, or stands still.
        source: the run that it runs again in part; empty for none.
        description: what people want of it; empty if its chat does not have it any more.
        opened: the entry with its sources; 0 if its chat does not have it any more.
        tape: that of its chat.
        nodes: in the order of the schema.
        drawn: those of the drawing, in the order of their layers; empty if the graph is not drawn.
        rules: the verdicts, once it has ended.
        refused: the calls that did not run, newest first.
        facts: a page of its changes, newest first.
        more: the cursor of the next page.
    """

    run: str
    task: str
    title: str
    session: str
    state: str
    reason: str
    source: str
    description: str
    opened: int
    began: str
    changed: str
    tokens: int
    seconds: float
    tape: str
    nodes: tuple[RunNode, ...]
    drawn: tuple[RunNode, ...]
    edges: tuple[DrawnEdge, ...]
    width: int
    height: int
    legend: tuple[Legend, ...]
    rules: tuple[RunRule, ...]
    refused: tuple[RunRule, ...]
    facts: tuple[RunFact, ...]
    more: str
    tasks_tape: str = TASKS_TAPE
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


class Runs(Struct, frozen=True):
    """A page of runs, newest first, or the chosen one."""

    runs: tuple[RunLine, ...] = ()
    more: str = ""
    chosen: RunDetails | None = None


async def read_tasks(reader: PanelReader, query: PanelQuery) -> Runs:
    """Read the runs of a chat, or all that the viewer may see, or the chosen one."""
    state = await _read_state(reader)
    runs = [run for run in reversed(state.runs.values()) if not query.tape or run.session == query.session]
    chosen = next((run for run in runs if run.run == query.params.get("run")), None)
    if chosen is not None:
        return Runs(chosen=await _read_run(reader, query, chosen))
    start = query.cursor_id() or 0
    more = str(start + query.limit) if len(runs) > start + query.limit else ""
    return Runs(tuple(_describe_run(run, reader.texts) for run in runs[start : start + query.limit]), more)


async def _read_state(reader: PanelReader) -> TasksState:
    """Read the states, with what running turns have changed and not merged yet, as far as it is durable."""
    state = await read_projection(TASKS_PROJECTION, reader.tapes.open_tape(TASKS_TAPE))
    for fork in await reader.tapes.forks():
        for batch in fork.staged:
            if batch.tape == TASKS_TAPE:
                state = state.apply(batch.entries)
    return state


def _say_status(status: Status, texts: Texts) -> str:
    return f"{MARKS[status]} {texts.say(f'task_status_{status}')}"


def _describe_run(state: RunState, texts: Texts) -> RunLine:
    queued = state.queued
    return RunLine(
        state.run,
        queued.fact.task,
        state.session,
        _say_status(state.status, texts),
        state.done,
        len(state.nodes),
        queued.date,
        state.changed,
    )


class _RunWords(Struct, frozen=True):
    """What the tape of its chat says of a run, as in `RunNode` and `RunDetails`."""

    turns: Mapping[str, int]
    artifacts: Mapping[str, int]
    rules: tuple[RunRule, ...]
    refused: tuple[RunRule, ...]


async def _read_run(reader: PanelReader, query: PanelQuery, state: RunState) -> RunDetails:
    texts, queued = reader.texts, state.queued
    chat = reader.tapes.open_session(state.session)
    entry, opened = await _read_opened(chat, state.run)
    definition = _read_definition(opened)
    schema = definition.schema if definition else None
    titles = {name: node.title or name for name, node in schema.nodes.items()} if schema else {}
    drawing = _draw(definition)
    places = {node.node: node for node in drawing.nodes}
    words = await _read_words(reader, chat, state, entry)
    details = await read_details(reader.tapes, state)
    nodes = {}
    for name, node in state.by_node.items():
        title, place = titles.get(name, name), places.get(name)
        parents = schema.nodes[name].after if schema and name in schema.nodes else ()
        nodes[name] = RunNode(
            name,
            title,
            node.status,
            _say_status(node.status, texts),
            _shorten(title),
            node.attempt,
            ", ".join(titles.get(parent, parent) for parent in parents),
            _describe_wait(reader, node)
            if node.status == "waiting"
            else _say_reason(node.reason, details.get(name, ""), texts),
            words.turns.get(name, 0),
            words.artifacts.get(name, 0),
            place.x if place else 0,
            place.y if place else 0,
        )
    facts, more = await _read_facts(reader, query, state, titles)
    present = {node.status for node in state.nodes}
    return RunDetails(
        state.run,
        queued.fact.task,
        (schema.title if schema else "") or queued.fact.task,
        state.session,
        _say_status(state.status, texts),
        say_reason(state.reason, texts, state.run),
        queued.fact.source or "",
        opened.description if opened else "",
        entry,
        queued.date,
        state.changed,
        state.tokens,
        round(state.seconds, 1),
        chat.name,
        tuple(nodes.values()),
        tuple([nodes[node.node] for node in drawing.nodes if node.node in nodes]),
        drawing.edges,
        drawing.width,
        drawing.height,
        tuple([Legend(status, _say_status(status, texts)) for status in MARKS if status in present]),
        words.rules,
        words.refused,
        facts,
        more,
    )


async def _read_opened(chat: TapeHandle, run: str) -> tuple[int, TaskOpened | None]:
    """Return the sources of a run, with their entry; 0 and None if the chat was reset or they were erased."""
    found = (await chat.fetch([TapeQuery(chat.name, keys=(opened_key(run),))]))[0]
    opened = TaskOpened.try_of(found[0]) if found and not found[0].erased else None
    return (found[0].id, opened) if opened else (0, None)


def _read_definition(opened: TaskOpened | None) -> TaskDefinition | None:
    try:
        return TaskDefinition.of_text(opened.definition) if opened else None
    except DefinitionInvalid:  # of another version
        return None


def _draw(definition: TaskDefinition | None) -> GraphDrawing:
    """Draw the graph of a task; nothing if it is unknown, too large, or no graph, as in an imported entry."""
    if definition is None or len(definition.schema.nodes) > MAX_DRAWN_NODES:
        return EMPTY_DRAWING
    graph = TaskGraph(definition.schema)
    if len(graph.list_order()) < len(graph.parents):
        return EMPTY_DRAWING
    return draw_graph(graph.parents)


async def _read_words(reader: PanelReader, chat: TapeHandle, state: RunState, opened: int) -> _RunWords:
    """Read where the nodes of a run worked, what they handed in, and what its harness said."""
    kept = {name: (run, name, attempt) for name, run, attempt in state.queued.fact.kept}
    made = {name: kept.get(name, (state.run, name, node.attempt)) for name, node in state.by_node.items()}
    part = IdRanges(((max(opened, 1), None),))
    began, artifacts, judged, refused = await chat.fetch(
        [
            TapeQuery(chat.name, part, kinds=(Kind.ANCHOR,), names=(NODE_BEGAN,), newest=True, limit=MAX_FACTS_READ),
            TapeQuery(chat.name, keys=tuple([artifact_key(*each) for each in made.values()])),
            TapeQuery(chat.name, part, kinds=(Kind.EVENT,), names=RuleJudged.EVENTS, newest=True, limit=MAX_FACTS_READ),
            TapeQuery(
                chat.name, part, kinds=(Kind.EVENT,), names=MoveRefused.EVENTS, newest=True, limit=MAX_FACTS_READ
            ),
        ]
    )
    turns: dict[str, int] = {}
    for anchor in began:
        place = anchor.payload.get("state")
        if isinstance(place, Mapping) and place.get("run") == state.run:
            turns.setdefault(text_field(place, "node"), anchor.id)
    entries = {(fact.run, fact.node, fact.attempt): entry.id for entry, fact in _read_all(ArtifactMade, artifacts)}
    rules = [
        RunRule(
            entry.id,
            reader.texts.say(_RULE_STATES.get(fact.status, "panel_task_pending")),
            fact.text,
            fact.place,
            _name_spans(fact.cites),
        )
        for entry, fact in reversed(_read_all(RuleJudged, judged))
        if fact.run == state.run
    ]
    moves = [
        RunRule(entry.id, fact.tool, "; ".join(fact.texts), fact.node, _name_spans(fact.cites))
        for entry, fact in _read_all(MoveRefused, refused)
        if fact.run == state.run
    ]
    found = {name: entries[each] for name, each in made.items() if each in entries}
    return _RunWords(turns, found, tuple(rules), tuple(moves))


def _name_spans(spans: Sequence[Sequence[int]]) -> tuple[tuple[int, str], ...]:
    return tuple([(low, f"#{low}" if low == high else f"#{low}-{high}") for low, high in spans])


def _read_all(kind: type[F], entries: Sequence[TapeEntry]) -> list[tuple[TapeEntry, F]]:
    """Read facts; leave out erased and odd ones."""
    read = [(entry, kind.try_of(entry)) for entry in entries if entry.name in kind.EVENTS and not entry.erased]
    return [(entry, fact) for entry, fact in read if fact is not None]


def _describe_wait(reader: PanelReader, node: NodeState) -> str:
    until = format_date(node.until, reader.zone)
    name = "panel_task_answer" if node.approval else "panel_task_again"
    return reader.texts.say(name, approval=node.approval, until=until)


def _say_reason(reason: str, detail: str, texts: Texts) -> str:
    return " ".join(filter(None, (say_reason(reason, texts), detail)))


async def _read_facts(
    reader: PanelReader, query: PanelQuery, state: RunState, titles: Mapping[str, str]
) -> tuple[tuple[RunFact, ...], str]:
    """Read a page of the changes of a run, newest first, with the cursor of the next page."""
    last = query.cursor_id()
    part = IdRanges(((state.queued.id, None if last is None else max(last - 1, 0)),))
    names = (*NodeChanged.EVENTS, *RunChanged.EVENTS)
    page = TapeQuery(TASKS_TAPE, part, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_FACTS_READ)
    found = (await reader.tapes.fetch([page]))[0]
    own = [entry for entry in found if entry.data.get("run") == state.run]
    shown = own[: query.limit]
    facts: list[tuple[TapeEntry, NodeChanged | RunChanged]] = [
        *_read_all(NodeChanged, shown),
        *_read_all(RunChanged, shown),
    ]
    facts.sort(key=lambda pair: -pair[0].id)
    is_cut = len(own) > query.limit or len(found) == MAX_FACTS_READ
    more = str(shown[-1].id if len(own) > query.limit else found[-1].id) if is_cut else ""
    return tuple([_describe_fact(entry, fact, state, titles, reader.texts) for entry, fact in facts]), more


def _describe_fact(
    entry: TapeEntry, fact: NodeChanged | RunChanged, state: RunState, titles: Mapping[str, str], texts: Texts
) -> RunFact:
    status = _say_status(fact.status, texts)
    if isinstance(fact, RunChanged):
        reason = say_reason(fact.reason or "", texts, state.run)
        return RunFact(entry.id, entry.date, state.queued.fact.task, 0, status, reason)
    title, note = titles.get(fact.node, fact.node), _say_reason(fact.reason or "", fact.detail or "", texts)
    return RunFact(entry.id, entry.date, title, fact.attempt, status, note, fact.tokens or 0, fact.seconds or 0.0)


def _shorten(title: str) -> str:
    """Return the beginning of a title that fits into a box."""
    if cell_width(title) <= LABEL_CELLS:
        return title
    end = len(title)
    while cell_width(title[:end]) >= LABEL_CELLS:
        end -= 1
    return f"{title[:end].rstrip()}…"


TEMPLATE = "bubbot.features.tasks:tasks.html"
PANELS = (
    Panel("tasks", "Tasks", "session", read_tasks, TEMPLATE, (TASKS,)),
    Panel("tasks", "Tasks", "deployment", read_tasks, TEMPLATE, (TASKS,)),
)
