"""The figures of a soak as a person reads them, and what is wrong with them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.soak.parts import Plan

CONNECTIONS = 50
"""Connections that may be open in the last third beyond those of the first: clients keep more or fewer of them, from 7 to
107 within one run."""
GOAL = 0.9
"""The part of the ideal that a slow model's turns should reach."""


def table(figures: Mapping[str, Any]) -> str:
    """Lines of name and value."""
    lines = [*_tended(figures["tended"])] if "tended" in figures else [*_load(figures["load"])]
    if "slow" in figures:
        lines += _slow(figures["slow"])
    if "joined" in figures:
        lines.append(("joined messages, each answered once", f"{figures['joined']['messages']}"))
    if "provider" in figures:
        lines += _provider(figures["provider"])
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in lines)


def _load(load: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rounds, waits = load["rounds"], load["waits"]
    yield "messages answered", f"{load['messages']}"
    yield "messages a second", f"{_median(rounds, 'daemon_rate'):.0f}   by round {_each(rounds, 'daemon_rate')}"
    yield (
        "the same without channels",
        f"{_median(rounds, 'runtime_rate'):.0f}   by round {_each(rounds, 'runtime_rate')}",
    )
    ratios = [one["daemon_rate"] / one["runtime_rate"] for one in rounds]
    yield "ratio", f"{statistics.median(ratios):.2f}   by round {' '.join(f'{one:.2f}' for one in ratios)}"
    daemon, runtime = _median(rounds, "daemon_ms"), _median(rounds, "runtime_ms")
    by_round = " ".join(f"{one['daemon_ms']:.1f}" for one in rounds)
    yield "processor time a message", f"{daemon:.1f} ms   by round {by_round}"
    yield "the same without channels", f"{runtime:.1f} ms   ({runtime / daemon:.2f} of it)"
    for name in rounds[0]["busy"]:
        yield f"busy: {name}", f"{100 * statistics.median(one['busy'][name] for one in rounds):.0f}% of one processor"
    yield "wait for an answer", f"p50 {_ms(waits['p50'])}, p99 {_ms(waits['p99'])}, max {_ms(waits['max'])}"
    yield "event loop late", _lag([one["lag"] for one in rounds])
    for name, unit in (("memory", " MB"), ("files", ""), ("connections", "")):
        went = load[name]
        thirds = f"{went['first']:.1f} and {went['last']:.1f}{unit}; {went['slope']:+.2f}{unit} for 1,000 messages"
        yield f"{name}, first and last third", f"{thirds}; peak {went['peak']:.1f}{unit}"
        rests = " ".join(f"{one['rest'][name]:.0f}" for one in rounds)
        yield f"{name} at rest after each round", f"{rests}{unit}"
    yield from _held(rounds)


def _held(rounds: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    if "objects" in rounds[0]:
        yield "objects of Python after each round", " ".join(str(one["objects"]) for one in rounds)
    if "python_mb" in rounds[0]:
        yield "memory of Python after each round", " ".join(f"{one['python_mb']:.1f}" for one in rounds) + " MB"
        yield from (("  held by", line) for line in rounds[-1]["lines"])


def _slow(slow: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    name = f"turns a second, {slow['chats']} chats, a model of {slow['chats'] / slow['ideal']:g} s"
    met = "reached" if slow["rate"] >= GOAL * slow["ideal"] else "NOT reached"
    yield name, f"{slow['rate']:.1f} of {slow['ideal']:.0f} at best; the goal of {GOAL * slow['ideal']:.0f} is {met}"
    yield "  busy, event loop late", f"{100 * slow['busy']:.0f}% of one processor; {_lag([slow['lag']])}"


def _provider(went: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    done = ", ".join(f"{count} {what}" for what, count in sorted(went["asked"].items()))
    yield "model over HTTP, messages", f"{went['messages']}, each answered or told that it is not; the provider: {done}"
    yield (
        "  messages a second",
        f"{went['rate']:.1f}; {went['ms']:.0f} ms of processor time each; {_lag([went['lag']])}",
    )
    yield "  memory of the daemon", f"{went['memory']:.0f} MB"


def _tended(went: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "messages answered", f"{went['answered']}"
    yield "lives of the daemon", f"{went['lives']}"
    for what, took in went["seconds"].items():
        yield f"{what}, times", f"{len(took)}; p50 {_ms(statistics.median(took))}, max {_ms(max(took))}"
    yield "memory of each life, the most", " ".join(f"{one:.0f}" for one in went["memory"]) + " MB"
    yield "files of each life, the most", " ".join(map(str, went["files"]))


def _of_lives(went: Mapping[str, Any], plan: Plan) -> Iterator[str]:
    for what, allowed in (("memory", plan.growth), ("files", 2)):
        half = max(1, len(went[what]) // 2)
        first, last = (statistics.median(part or [0]) for part in (went[what][:half], went[what][half:]))
        if last > first + allowed:
            yield f"the {what} of later lives grew from {first:.0f} to {last:.0f}"


def verdicts(figures: Mapping[str, Any], plan: Plan) -> list[str]:
    """What is wrong, a sentence each; empty where all is well."""
    found = [f"{part}: {fault}" for part in figures for fault in figures[part]["faults"]]
    if "tended" in figures:
        return found + list(_of_lives(figures["tended"], plan))
    load = figures["load"]
    grown = load["memory"]["last"] - load["memory"]["first"]
    if grown > plan.growth:
        found.append(
            f"after warm-up the daemon grew by {grown:.1f} MB, from {load['memory']['first']:.1f} to "
            f"{load['memory']['last']:.1f}; {plan.growth:g} MB are allowed"
        )
    for what, allowed in (("files", 0), ("connections", CONNECTIONS)):
        went = load[what]
        if went["last"] > went["first"] + allowed:
            found.append(f"the daemon's open {what} grew from {went['first']:.0f} to {went['last']:.0f} after warm-up")
    return found


def _median(rounds: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(statistics.median(one[key] for one in rounds))


def _each(rounds: Sequence[Mapping[str, Any]], key: str) -> str:
    return " ".join(f"{one[key]:.0f}" for one in rounds)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


def _lag(lags: Sequence[Mapping[str, float]]) -> str:
    """Of several rounds: the median of the middles, the worst of the rest."""
    middle = statistics.median(one["p50"] for one in lags)
    return f"p50 {middle:.1f} ms, p99 {max(one['p99'] for one in lags):.0f} ms, max {max(one['max'] for one in lags):.0f} ms"
