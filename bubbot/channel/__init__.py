"""The channel port: where messages come from and go to.

An adapter lives in `channels/` (or in another distribution) and is loaded through the entry-point group
`bubbot.channels`, whose objects are factories `(ChannelOptions) -> Channel`. It may import this package and
`bubbot.errors`, nothing else of bubbot. `port.py` is where to begin; `powers.py` has what a channel may add.
"""

from bubbot.channel.events import (
    Attachment,
    AttachmentKind,
    ChannelEvent,
    Deletion,
    Edit,
    Inbound,
    Moved,
    Placed,
    Quote,
    Reaction,
    Role,
    Sender,
    Stop,
    Unparsed,
)
from bubbot.channel.port import (
    Channel,
    ChannelOptions,
    CommandInfo,
    Known,
    Receive,
    kept_aside,
    no_blob,
    no_commands,
    nothing_known,
)
from bubbot.channel.powers import Closes, Dismisses, Editing, Fetches, Finds, Health, Previews, Reports, Typing, Webhook
from bubbot.channel.sending import File, Outbound, Part, Receipt
from bubbot.channel.showing import Preview, StepEnded, TextShown, ToolEnded, ToolStarted, TurnEnded, TurnStarted

__all__ = [
    "Attachment",
    "AttachmentKind",
    "Channel",
    "ChannelEvent",
    "ChannelOptions",
    "Closes",
    "CommandInfo",
    "Deletion",
    "Dismisses",
    "Edit",
    "Editing",
    "Fetches",
    "File",
    "Finds",
    "Health",
    "Inbound",
    "Known",
    "Moved",
    "Outbound",
    "Part",
    "Placed",
    "Preview",
    "Previews",
    "Quote",
    "Reaction",
    "Receipt",
    "Receive",
    "Reports",
    "Role",
    "Sender",
    "StepEnded",
    "Stop",
    "TextShown",
    "ToolEnded",
    "ToolStarted",
    "TurnEnded",
    "TurnStarted",
    "Typing",
    "Unparsed",
    "Webhook",
    "kept_aside",
    "no_blob",
    "no_commands",
    "nothing_known",
]
