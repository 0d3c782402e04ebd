"""What people are told of how the bot is, in Chinese."""

from __future__ import annotations

from bubbot.texts.language import Sentence

STATUS: dict[str, Sentence] = {
    "idle": "我在听。{model}这个对话的磁带上有 {entries} 条记录。",
    "channel_ready": "{name}：正在接收；最近一次收到信号：{heard}。",
    "channel_ready_but": "{name}：正在接收，但{note}；最近一次收到信号：{heard}。",
    "channel_down": "{name}：未在接收（{note}）；最近一次收到信号：{heard}。",
    "channel_refused": "{name}：被拒绝，不再尝试（{note}）。",
    "channel_ended": "{name}：已结束。",
    "channel_begins": "{name}：即将开始。",
    "never": "从未",
    "answering": {"other": "正在回答（{doing}）；还有 {count} 条消息在等待。发送 ,stop 可停止当前回答。"},
    "answering_alone": "正在回答（{doing}）；没有其他消息在等待。发送 ,stop 可停止当前回答。",
    "about_to_answer": {"other": "即将回答 {count} 条消息。发送 ,stop 可阻止。"},
    "doing_asking": "正在请求模型",
    "doing_writing": "模型正在书写",
    "doing_tool": "正在运行 {tool}",
    "doing_since": "{doing}，已用 {length}",
    "st_bot": "机器人",
    "st_bot_is": "bubbot {version}，进程 {pid}，启动于 {since}",
    "st_home": "主目录",
    "st_quarantine": "隔离",
    "st_quarantine_is": (
        "由备份 {name}（{at}）恢复而来：在执行 `bubbot restore --release` 并重新启动 `bubbot run` 之前，"
        "不连接任何频道，也不触发任何任务"
    ),
    "st_channels": "频道",
    "st_work": "工作",
    "st_work_is": "进行中的回合：{running}；等待的消息：{waiting}；内存中的对话：{sessions}",
    "st_unanswered": "尚无人回答的消息：{waiting}",
    "st_owed": "未送达",
    "st_owed_is": {"other": "{channel}：{count} 条消息，最早的来自 {oldest}"},
    "st_none": "无",
    "st_next": "接下来的任务",
    "st_next_is": "{job}，在 {session}：{at}",
    "st_budget": "预算",
    "st_budget_is": "{whose}，{period}：{amounts}",
    "st_limited": "{used}，上限 {most}",
    "st_unlimited": "{used}，无上限",
    "st_and": "；",
    "st_today": "今天",
    "st_month": "本月",
    "st_database": "数据库",
    "st_database_is": "{entries} 条记录；{size}，日志中另有 {wal}；磁盘剩余 {free}",
    "st_no_database": "尚不存在",
    "st_backup": "最新备份",
    "st_backup_is": "{name}，{at}",
    "st_log": "日志",
    "st_log_is": "错误：{errors}；警告：{warnings}",
    "st_log_line": "{at} {level} {action}：{message}",
    "st_ago": "{moment}（{length}前）",
    "st_ahead": "{moment}（{length}后）",
    "st_line": "{label}：{text}",
    "st_unknown": "其余情况无法查看：{reason}。",
}
