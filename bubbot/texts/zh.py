"""The bot's own sentences in Chinese, in simplified characters."""

from __future__ import annotations

from types import MappingProxyType

from bubbot.texts.language import Language, Sentence
from bubbot.texts.zh_schedule import SUMMARIES, ZH_SCHEDULE
from bubbot.texts.zh_status import ZH_STATUS


def _form(_count: int) -> str:
    return "other"


_TURNS: dict[str, Sentence] = {
    "no_key": "{name} 需要密钥，但 [model] api_key 和 {variables} 在这里都没有设置。",
    "no_key_elsewhere": "{name} 需要密钥，但 {variables} 在这里没有设置（[model] api_key 只用于 [model] name 的提供商）。",
    "no_model": (
        "尚未配置模型，因此我还无法用自己的话回答您。所有命令均可使用（,help 可列出全部命令）。"
        '如需配置模型，请运行 bubbot init（或在 config.toml 中写入 [model] name = "provider/model"），或安装演示模型。'
    ),
    "no_model_key": (
        "模型的密钥缺失：无法读取 {file}，因此我还无法用自己的话回答您。所有命令均可使用（,help 可列出全部命令）。"
        "运行 `bubbot init` 即可补上密钥。"
    ),
    "stopped": "已停止。",
    "gave_up": (
        "回答这条消息时两次被中断，我没有再继续尝试。此前的过程已保存在记录带上；如仍需要，请重新发送，或使用 ,retry。"
    ),
    "failed": "抱歉，这次未能回答：{reason}。",
    "defect": "程序内部出错（{name}）",
    "traced": "{sentence}（追踪号 {trace}）",
    "taking_up": {"other": "正在回答之前未处理的 {count} 条消息。"},
    "quarantined": (
        "此主目录由备份 {name}（UTC 时间 {at}）恢复而来，正处于隔离状态：在执行 `bubbot restore --release` 之前，"
        "不会接收或发送任何外部消息。"
    ),
    "too_old": {
        "other": "我刚才不在线。有 {count} 条消息（UTC 时间 {when}）等待过久，现已不再回答；如仍需要，请重新发送。"
    },
    "from_to": "{first} 至 {last}",
}

_GATE: dict[str, Sentence] = {
    "dropped": "我正在回答上一条消息，您刚才发送的内容未被处理。发送 ,stop 可停止当前回答。",
    "nothing_to_stop": "当前没有正在进行的回答。",
    "attachment_failed": "我没能读取 {name}：{reason}。",
    "pairing": (
        "您好，我还不认识您。您的配对码是 {code}，一小时内有效。请让我的管理者运行以下命令，允许您与我对话：\n"
        "bubbot access approve {code}"
    ),
    "unparsed": "无法读取这条消息：{reason}。原始内容已保留。",
}

_BUDGET: dict[str, Sentence] = {
    "budget_spent_day": (
        "{whose}今天的预算已用完，因此没有请求模型。预算将于 {renews} 重新开始；届时发送 ,retry 即可得到回答。"
    ),
    "budget_spent_month": (
        "{whose}本月的预算已用完，因此没有请求模型。预算将于 {renews} 重新开始；届时发送 ,retry 即可得到回答。"
    ),
    "skipped_minute": "您一分钟内发送了超过 {number} 条消息，其余的已跳过；请一分钟后再发送。",
    "skipped_hour": "您一小时内发送了超过 {number} 条消息，其余的已跳过；请稍后再发送。",
    "skipped_bytes": "您在 24 小时内发送的内容超过了 {size}，暂时不再接收；请过一段时间再发送。",
    "too_many_minute": {
        "other": "一分钟内的消息超过了 {count} 条，因此没有请求模型。{renews} 之后可以继续；届时发送 ,retry 即可得到回答。"
    },
    "too_many_hour": {
        "other": "一小时内的消息超过了 {count} 条，因此没有请求模型。{renews} 之后可以继续；届时发送 ,retry 即可得到回答。"
    },
    "over_rate": {"other": "您发送得比我可以回答的快。这条消息将等待 {count} 秒。"},
    "waiting_for_place": {"other": "现在有许多对话在进行。您的消息已保存，正在排队；前面还有 {count} 条。"},
    "budget_near": "{whose}在 {period} 的预算已用去 {percent}%。发送 ,usage 可查看用在了哪里。",
    "budget_unpriced": (
        "不知道 {model} 的价格：它的调用只按令牌数计算，按金额设定的预算不会拦住它。"
        '请在 [budget.models."{model}"] 中设置 input_price 和 output_price。'
    ),
    "whose_bot": "整个机器人",
    "whose_channel": "频道 {name} ",
    "whose_chat": "聊天 {name} ",
    "whose_user": "用户 {name} ",
    "whose_job": "任务 {name} ",
    "whose_model": "模型 {name} ",
    "whose_you": "您的账号",
    "whose_here": "本聊天",
    "usage_day": "今天（{since}）：",
    "usage_month": "本月（自 {since} 起）：",
    "usage_all": "自第一次调用起：",
    "usage_none": "没有请求过模型。",
    "usage_line": "{name}：{cost}；调用 {calls} 次；输入 {input} 令牌（缓存 {cached}），输出 {output}；条目 {entries}",
    "usage_sum": "合计",
    "usage_by_chat": "按聊天：",
    "usage_by_user": "按用户：",
    "usage_by_job": "按任务：",
    "usage_by_model": "按模型：",
    "usage_by_day": "按日期：",
    "usage_cost": "{amount} {currency}",
    "usage_no_price": "价格未知",
    "usage_unpriced": "价格未知、只按令牌数计算的调用：{calls} 次。",
    "usage_estimated": "中途中断、按估计计算的调用：{calls} 次。",
    "usage_limits": "预算：",
    "usage_limit": "{whose}，{period}：已用 {used}，共 {most}（{percent}%）",
    "usage_tokens": "{tokens} 令牌",
    "usage_cites": "条目是记录带 bubbot/budget 上的预留。",
}

_COMMANDS: dict[str, Sentence] = {
    "no_name": "命令由逗号和名称组成，例如 ,help",
    "no_command": "没有 ,{name} 这个命令；,help 可列出全部命令",
    "no_command_but": "没有 ,{name} 这个命令；您是否想用 {near}？",
    "or": " 或 ",
    "wrong_form": "{problem}。正确格式：{usage}",
    "not_allowed": ",{command} 仅限{needed}使用；您在这里的身份是{role}",
    "new_window": "已开启新窗口（条目 {entry}）。记忆保留；,resume 可回到之前的锚点。",
    "handed_off": "已在 {name} 开启新窗口。",
    "resumed": "从 {anchor}（条目 {parent}）继续；新窗口始于条目 {entry}。",
    "answer_cut": "（回答在此中断：已达到模型的长度上限。）",
    "correct_own": "条目 {entry} 不是您写的：只有管理员可以更正别人或机器人说的话。",
    "corrected": "条目 {entry} 已由条目 {by} 更正。",
    "nothing_to_retry": "当前窗口中没有可以重新回答的消息",
    "bye": "再见。对话已保存在记录带上。",
    "archived": {"other": "记录带已重新开始。原有 {count} 个条目保存为 {name}；记忆已写入 {path}。"},
    "erased": {"other": "记录带已重新开始。{count} 个条目的内容已清除，记忆和以前的归档也一并清除。"},
    "reset_asks": {
        "other": (
            "这条记录带共有 {count} 个条目（包括记忆）。,reset archive 会将它们另行归档（可用 bubbot tape show 查看），"
            "并把记忆写入文件；,reset erase 会永久清除它们的内容，包括本记录带、以前的归档以及收件箱和发件箱中的内容。"
            "请选择其一。"
        )
    },
}

_MODEL: dict[str, Sentence] = {
    "model_here": "当前由 {name} 回答。",
    "model_nowhere": "当前没有可用的模型：{reason}。",
    "model_choice": "{current}可选模型：{names}。发送 ,model 名称 即可切换。",
    "model_for_owner": "只有所有者可以切换模型；您在这里的身份是{role}",
    "model_unknown": "无法切换到 {name}：{problem}。可选模型：{names}。",
    "model_same": "当前已经由 {name} 回答。",
    "model_switched": "从现在起由 {name} 回答，重启后依然有效。",
    "model_window": "已开启新窗口（条目 {entry}）；,resume 可回到之前的锚点。",
}

_MEMORY: dict[str, Sentence] = {
    "memory_same": "长期记忆中已经是这些内容（{cited}），没有写入。",
    "memory_saved": "已保存到长期记忆：{version}。",
    "memory_lost": "以下原有内容已不在其中：\n{lines}",
    "memory_lost_hint": "\n如果其中某行仍然有效，请连同它一起重新保存{way_back}。",
    "memory_large": "\n长期记忆现有 {size} 字节，每次提示都会带上它；{advised} 字节已经足够。请只保留重要内容，重新保存。",
    "note_large": "\n当天的笔记现有 {size} 字节，每次提示都会带上它；{advised} 字节已经足够。请只添加重要内容。",
    "memory_too_large": "{what}将有 {size} 字节，最多只能有 {limit} 字节：请缩短。没有保存任何内容。",
    "too_large_long_term": "长期记忆",
    "too_large_note": "{day} 的记事",
    "too_large_all": "全部记忆",
    "note_added": "已添加到 {day} 的笔记：{version}。",
    "note_goes": {"other": "笔记保留 {count} 天：这一条会在下次清理旧笔记时删除。"},
    "memory_shown": "记忆：{cited}。",
    "memory_long_term": "长期记忆：{size}。",
    "memory_notes": "每日笔记：{days}，{size}。",
    "memory_reach": {"other": "提示中包含今天和此前 {count} 天的笔记；{kept}。"},
    "memory_kept": {"other": "笔记保留 {count} 天"},
    "memory_versions": "记录带上的版本：{versions}；`,memory.restore N` 可恢复其中一个。",
    "memory_recall": "memory.recall 可查看内容。",
    "forgot": {
        "other": (
            "已从记忆中删除 {count} 行，现为{version}：\n{lines}\n记录带上的旧版本和当时的对话仍包含这些内容{way_back}。"
        )
    },
    "forgot_nothing": "记忆中没有包含 {text} 的行（{cited}），没有删除任何内容。",
    "forget_by_line": "查找按行进行：请给出同一行中的文字。",
    "restored": "已恢复版本 {number}，现为{version}{way_back}。",
    "restored_same": "记忆内容与版本 {number} 相同（{cited}），没有写入。",
    "cleared": "记忆已清空，现为{version}：{what}。旧版本仍在记录带上{way_back}。",
    "cleared_already": "记忆已经是空的（{cited}），没有写入。",
    "clear_asks": (
        "尚未删除任何内容。此操作会清空记忆（{cited}）：{what}。旧版本会留在记录带上。"
        "如确认清空，请发送 `,memory.clear confirm=true`；模型应先征得您的同意。"
    ),
    "memory_holds": "长期记忆（{size}）和 {days}的笔记",
    "no_version": "尚无版本",
    "cited_entry": "条目 {entry}",
    "cited_version": "版本 {number}，条目 {entry}",
    "new_version": "版本 {number}（条目 {entry}）",
    "way_back": "；`,memory.restore {number}` 可完整恢复版本 {number}",
    "days": {"other": "{count} 天"},
    "days_listed": "{days}（{listed}）",
    "lines": {"other": "{count} 行"},
    "bytes": {"other": "{lines}，共 {count} 字节"},
    "nothing": "无内容",
}

_REASONS = {
    "model": "模型出错（{detail}）",
    "model_overflow": "内容超出了模型的长度限制，请用 ,new 开启新窗口后再试（{detail}）",
    "model_rate_limited": "请求过于频繁，请稍后再试（{detail}）",
    "model_refused": "模型服务拒绝了这次请求（{detail}）",
    "model_unavailable": "模型暂时不可用，请稍后再试（{detail}）",
    "model_unconfigured": "尚未配置模型（{detail}）",
    "model_key_missing": "模型需要密钥，但没有设置（{detail}）",
    "step_limit": "已执行 {steps} 步仍未得出答案。发送 ,retry 可让我继续；[model] max_steps 可提高上限",
    "repeated_call": "模型反复用相同的参数调用 {name}，我已停止",
    "empty_answer": "模型返回了空的回答",
    "not_asked": "没有请求模型（{detail}）",
    "budget_spent": "预算已用完（{detail}）",
    "too_many_messages": "消息过于频繁（{detail}）",
}

_SUMMARIES = {
    "session.help": "列出所有命令，或说明某个命令",
    "session.new": "开启新窗口：模型不再看到此前的对话，记忆保留",
    "session.resume": "回到之前的锚点，开启新窗口继续",
    "session.correct": "更正某个条目；原文仍保留在记录带上",
    "session.retry": "重新回答上一条消息；原来的回答不再给模型看",
    "session.why": "说明上一个回答的由来：看到的条目、使用的工具、用量和耗时",
    "session.quit": "离开终端聊天；对话会保留",
    "session.context": "显示模型接下来会看到的全部内容及条目编号",
    "session.model": "查看或切换当前对话的模型",
    "session.status": "查看是否正在忙、由哪个模型回答、磁带有多长",
    "session.usage": "查看今天、本月或全部的用量和费用",
    "file.send": "随回答发送一个文件",
    "session.stop": "停止当前对话中正在进行的回答",
    "session.reset": "重新开始记录带：archive 归档旧内容，erase 清除旧内容",
    "tape.info": "查看记录带的条目数、当前窗口的起点和最近一次用量",
    "tape.search": "搜索本聊天中的全部记录，不限于当前窗口",
    "tape.anchors": "列出本聊天的锚点，最新的在前",
    "tape.handoff": "以给定的状态开启新窗口；此前的内容保留在记录带上",
    "memory.save": "改写长期记忆：长期有效的偏好和事实；未写入的行会丢失",
    "memory.daily": "添加每日笔记，默认添加到今天",
    "memory.recall": "搜索长期记忆和最近几天的笔记",
    "memory.show": "查看记忆的版本、大小和有笔记的日期",
    "memory.forget": "删除记忆中包含某段文字的所有行",
    "memory.restore": "恢复记忆的某个旧版本",
    "memory.clear": "清空记忆；会先请您确认",
    "result.read": "继续阅读因过长而被截断的结果",
}

_ROLES = {"owner": "所有者", "admin": "管理员", "member": "成员", "stranger": "陌生人"}

CHINESE = Language(
    _form,
    MappingProxyType({**_TURNS, **_GATE, **_BUDGET, **_COMMANDS, **_MODEL, **_MEMORY, **ZH_SCHEDULE, **ZH_STATUS}),
    MappingProxyType(_REASONS),
    MappingProxyType({**_SUMMARIES, **SUMMARIES}),
    MappingProxyType(_ROLES),
)
"""Chinese."""
