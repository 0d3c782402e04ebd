"""Trains a model with TRL on what `bubbot export trl-sft` wrote: on the answers that people called good, and on nothing else.

Usage, with the Python of `make loop`: train.py WEIGHTS EXPORT FOLDER STEPS SEED. Each step learns from all answers. The same weights, export,
steps and seed make the same weights again, on the same processor.

All turns begin with the same prompt, some thousand tokens. To read it once in a step instead of once for each turn, all windows are one
sequence: first what they share, then what each goes on with, at the positions that it has in its window. A token of a window sees what
they share and its own window only, so that each answer is learned exactly as if its window stood alone.
"""

from __future__ import annotations

import json
import sys
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset, load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase
from trl import SFTConfig, SFTTrainer

IGNORED = -100
"""The label of a token that does not count."""

THREADS = 2
"""The threads that compute: sums of floating-point numbers come out the same for the same number of them."""


class Window(NamedTuple):
    """The tokens of one window, and which of them are to be learned."""

    tokens: list[int]
    labels: list[int]


def read_windows(turns: Dataset, tokenizer: PreTrainedTokenizerBase) -> list[Window]:
    """Return the windows of the exported turns, in which the completions with a reward above 0 have labels.

    A turn that goes on from the one before it belongs to the same window.
    """
    windows: list[Window] = []
    for turn in turns:
        prompt, whole = tokenize(turn, tokenizer)
        written = whole[len(prompt) :]
        labels = written if turn["reward"] > 0 else [IGNORED] * len(written)
        before = windows[-1] if windows else Window([], [])
        if before.tokens and prompt[: len(before.tokens)] == before.tokens:
            windows.pop()
        else:
            before = Window([], [])
        asked = [IGNORED] * (len(prompt) - len(before.tokens))
        windows.append(Window(whole, [*before.labels, *asked, *labels]))
    return [window for window in windows if any(label != IGNORED for label in window.labels)]


def tokenize(turn: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the tokens of the prompt of a turn, and those of the prompt with the completion."""
    tools = json.loads(turn["tools"])
    prompt = tokenizer.apply_chat_template(turn["prompt"], tools=tools, add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template([*turn["prompt"], *turn["completion"]], tools=tools, return_dict=False)
    assert whole[: len(prompt)] == prompt, "the template writes a prompt in two ways"
    return prompt, whole


def join(windows: list[Window]) -> dict[str, torch.Tensor]:
    """Return one sequence of all windows, with positions and a mask that keep them apart."""
    shared = len(commonprefix([window.tokens for window in windows]))  # noqa: RUF071 - of lists, not of paths
    first = windows[0]
    tokens, labels, positions, parts = first.tokens[:shared], first.labels[:shared], [*range(shared)], [0] * shared
    for number, window in enumerate(windows, 1):
        tokens = [*tokens, *window.tokens[shared:]]
        labels = [*labels, *window.labels[shared:]]
        positions += range(shared, len(window.tokens))
        parts += [number] * (len(window.tokens) - shared)
    part = torch.tensor(parts)
    sees = torch.ones(len(parts), len(parts), dtype=torch.bool).tril() & (
        (part[None] == 0) | (part[None] == part[:, None])
    )
    return {
        "input_ids": torch.tensor([tokens]),
        "labels": torch.tensor([labels]),
        "position_ids": torch.tensor([positions]),
        "attention_mask": torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)[None, None],
    }


def collate(features: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    """Return the windows of a step as one sequence."""
    return join([Window(each["input_ids"], each["labels"]) for each in features])


def main(weights: Path, export: Path, folder: Path, steps: int, seed: int) -> None:
    """Train, write the new weights into a folder, and print figures as a line of JSON."""
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(weights)
    turns = load_dataset("json", data_files=str(export), split="train", cache_dir=str(folder / "cache"))
    windows = read_windows(turns, tokenizer)
    trainer = SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32, attn_implementation="sdpa"),
        processing_class=tokenizer,
        train_dataset=Dataset.from_list([{"input_ids": each.tokens, "labels": each.labels} for each in windows]),
        data_collator=collate,
        args=SFTConfig(
            output_dir=str(folder / "work"),
            max_steps=steps,
            per_device_train_batch_size=len(windows),
            learning_rate=1.2e-2,
            lr_scheduler_type="cosine",
            warmup_steps=2,
            adam_beta2=0.95,  # the first, large gradients are forgotten within the few steps
            weight_decay=0.0,
            max_length=None,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=seed,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
    )
    trainer.train()
    trainer.save_model(folder)
    tokenizer.save_pretrained(folder)
    losses = [round(float(entry["loss"]), 3) for entry in trainer.state.log_history if "loss" in entry]
    figures = {
        "turns": len(turns),
        "good": sum(reward > 0 for reward in turns["reward"]),
        "windows": len(windows),
        "longest": max(len(window.tokens) for window in windows),
        "learned": sum(label != IGNORED for window in windows for label in window.labels),
        "losses": losses,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
