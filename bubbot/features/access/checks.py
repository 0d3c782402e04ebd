"""What the doctor finds of access: who may look at tapes, and groups that are open."""

from __future__ import annotations

from bubbot.features.access.state import ACCESS_PROJECTION
from bubbot.log import printable
from bubbot.ports.checks import Check, Finding, HomeReader
from bubbot.tape.projection import read_projection


async def check_audits(home: HomeReader) -> list[Finding]:
    """Name the auditors and how many chats each may see."""
    async with home.open_tape(ACCESS_PROJECTION.tapes) as tape:
        state = await read_projection(ACCESS_PROJECTION, tape)
    seen: dict[str, int] = {}
    for grant in state.audits:
        seen[grant.fact.auditor] = seen.get(grant.fact.auditor, 0) + 1
    if not seen:
        return []
    names = ", ".join(f"{printable(name)} ({count})" for name, count in sorted(seen.items()))
    cause = f"Auditors may see the tapes of chats: {names}. bubbot access audits lists them."
    return [Finding("access.audits", "ok", cause)]


async def check_groups(home: HomeReader) -> list[Finding]:
    """Name the groups that an owner opened to everybody."""
    async with home.open_tape(ACCESS_PROJECTION.tapes) as tape:
        state = await read_projection(ACCESS_PROJECTION, tape)
    groups = [group.fact for group in state.groups if group.fact.audience == "everybody"]
    if not groups:
        return []
    names = ", ".join(sorted(printable(f"{each.channel} {each.group} {each.title}".rstrip()) for each in groups))
    return [Finding("access.groups", "ok", f"Everybody may talk in groups: {names}. bubbot access list shows all.")]


CHECKS = (
    Check("open groups", check_groups, reads_tapes=True),
    Check("the auditors", check_audits, reads_tapes=True),
)
