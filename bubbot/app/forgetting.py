"""People who are forgotten: what they asked for is carried out before anything else reads the tapes."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from bubbot.app.own_features import copying_events, find_parts
from bubbot.app.reading_on import find_shared
from bubbot.app.tapes import now, tape_service
from bubbot.home import Home
from bubbot.ports.forgetting import PEOPLE_TAPE, RestateTape
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.store import Lease, TapeStore

log = logging.getLogger(__name__)


async def try_forgetting(store: TapeStore, home: Home, workspace: str, references: ReferenceRegistry) -> None:
    """Forget people as `finish_forgetting` does; if that fails, log why: the next start tries again."""
    try:
        await finish_forgetting(store, home, workspace, references)
    except Exception:  # a boundary: damage on one tape must not keep the bot from starting
        log.exception("somebody is not forgotten yet, the next start tries again", extra={"action": "people.failed"})


async def finish_forgetting(
    store: TapeStore, home: Home, workspace: str, references: ReferenceRegistry | None = None
) -> None:
    """Carry out the recorded wishes to be forgotten that are still open. The caller holds the home's lock.

    Args:
        workspace: the label in the names of tapes.
        references: those of all facts; None for those of bubbot and of the installed features.
    """
    if not await store.head(PEOPLE_TAPE):  # most homes
        return
    forget = partial(_forget_all, store, home, workspace, references)
    if (shared := find_shared(store)) is None:
        await forget()
    else:
        await shared.keep("forgetting people", forget)


async def _forget_all(store: TapeStore, home: Home, workspace: str, references: ReferenceRegistry | None) -> None:
    # Imported here: few people are ever forgotten.
    from bubbot.app.installed import load_features
    from bubbot.features.access.links import AccountLinks
    from bubbot.features.access.state import ACCESS_PROJECTION
    from bubbot.features.people.erasing import ForgettingDeps, carry_out, open_forgettings
    from bubbot.runtime.recovery import merge_open_forks

    wishes = await open_forgettings(store)
    if not wishes:
        return
    references = references or load_features().references
    for forked in await store.forked_sessions():  # what open turns hold is reached only on the tapes
        tape = tape_service(store, forked.tape, forked.session, references=references)
        if find_shared(store) is not None:  # another process may be at it: it goes on from what is merged here
            tape.write_under(Lease(tape.name, await store.raise_epoch(tape.name)))
        await merge_open_forks(tape)
    deps = ForgettingDeps(
        store=store,
        home=home.path,
        workspace=workspace,
        references=references,
        rules=forgetting_rules(),
        copying_events=copying_events(),
        find_accounts=AccountLinks(tape_service(store, ACCESS_PROJECTION.tapes), ProjectionRunner()).linked_accounts,
        list_backups=partial(_list_copies, home.path),
        now=now,
    )
    for number, wish in wishes:
        await carry_out(deps, number, wish)
        log.info("a person was forgotten", extra={"action": "people.forgotten", "wish": number})


def forgetting_rules() -> tuple[tuple[str, RestateTape], ...]:
    """Return what tapes need if a person is forgotten, by the beginning of their names; see `RestateTape`."""
    return tuple(rule for _, rules in find_parts("forgetting", "FORGETTING") for rule in rules.items())


def _list_copies(home: Path) -> list[str]:
    """Return the names of the backups in the home, and of damaged databases that were put aside."""
    from bubbot.stores.sqlite.backups import list_backups

    damaged = home / "damaged"
    aside = sorted(file.name for file in damaged.iterdir()) if damaged.is_dir() else []
    return [*(f"{info.path.name} ({info.created:%Y-%m-%d})" for info in list_backups(home)), *aside]
