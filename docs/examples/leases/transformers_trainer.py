"""A tiny language model with random weights in the Trainer of Hugging Face; the lines of the lease are marked.

python transformers_trainer.py --steps 100 --out model
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from allocator.lease.transformers import LeaseCallback  # lease


class CountingSentences(torch.utils.data.Dataset):
    """Sentences of eight tokens, each one more than the one before."""

    def __init__(self, step_seconds: float) -> None:
        self.step_seconds = step_seconds

    def __len__(self) -> int:
        return 256

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        time.sleep(self.step_seconds / 8)
        tokens = torch.arange(place, place + 8) % 32
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train, or go on training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-seconds", type=float, default=0.0, help="that a step takes besides the arithmetic")
    parser.add_argument("--out", type=Path, default=Path("model"))
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=1, n_head=2))
    arguments = TrainingArguments(
        output_dir=str(chosen.out),
        max_steps=chosen.steps,
        per_device_train_batch_size=8,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        seed=0,
    )
    lease = LeaseCallback()  # lease
    trainer = Trainer(
        model, arguments, train_dataset=CountingSentences(chosen.step_seconds), callbacks=[lease]
    )  # lease
    trainer.train(resume_from_checkpoint=lease.last_checkpoint)  # lease
    trainer.save_model()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
