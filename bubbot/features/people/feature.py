"""The feature: what people allow, everything about them, and that they are forgotten."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature, Kernel
from bubbot.features.people.consent import ConsentService
from bubbot.features.people.export import EXPORT_TIMEOUT_SECONDS, ExportCommands
from bubbot.features.people.facts import PersonForgetting
from bubbot.features.people.forget import ForgetCommands
from bubbot.ports.forgetting import PEOPLE_TAPE
from bubbot.tape.fork import MergeResult


def people_feature(kernel: Kernel, consents: ConsentService, exports: ExportCommands) -> Feature:
    """Build the record."""
    forgetting = ForgetCommands(kernel.open_tape, kernel.restart)

    async def restart_to_forget(merged: MergeResult) -> None:
        if any(entry.name in PersonForgetting.EVENTS for entry in merged.staged.get(PEOPLE_TAPE, ())):
            kernel.restart()

    return Feature(
        name="people",
        tools=[
            *make_tools(ConsentService, lambda: consents),
            *make_tools(ExportCommands, lambda: exports, people_export={"timeout": EXPORT_TIMEOUT_SECONDS}),
            *make_tools(ForgetCommands, lambda: forgetting),
        ],
        services=(forgetting,),
        on_merged=(restart_to_forget,),
    )
