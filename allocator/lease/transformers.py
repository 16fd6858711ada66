"""The lease in the Trainer of Hugging Face: a callback; needs the package transformers.

::

    from allocator.lease.transformers import LeaseCallback

    lease = LeaseCallback()
    trainer = Trainer(..., callbacks=[lease])
    trainer.train(resume_from_checkpoint=lease.last_checkpoint)
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from allocator.lease.agreement import hold_group, leave_group
from allocator.lease.lease import Lease


class LeaseCallback(TrainerCallback):
    """Ends the training with the lease, with a checkpoint of the Trainer's own.

    Whatever the Trainer saves is copied into the checkpoints of the job, with its checksums and only if the lease still
    is of this start. An evaluation that is due when the lease ends is left out.

    Parameters
    ----------
    exits : whether the process ends with status 0 when the lease has ended the training, so that what a script does
        with a trained model is not done with one that is not. False: `train` returns, and `lease.ending` tells.

    Attributes
    ----------
    lease : the lease; outside the scheduler it does nothing.
    """

    def __init__(self, *, exits: bool = True) -> None:
        self.lease = Lease()
        self._exits = exits
        self._saving_since = time.monotonic()

    @property
    def last_checkpoint(self) -> str | None:
        """Folder of the last checkpoint that is whole, for `resume_from_checkpoint`; None at the first start."""
        found = self.lease.last_checkpoint()
        return None if found is None else str(found.folder)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Count from the steps that the Trainer has resumed at."""
        self.lease.steps, self.lease.total_steps = state.global_step, state.max_steps
        self._end_if(self.lease.poll(), control)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """A step boundary."""
        self._end_if(self.lease.step(state.global_step - self.lease.steps), control)

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """An evaluation is through: it is no training."""
        self._end_if(self.lease.poll(), control)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Nothing is to be saved or evaluated a second time at the end of an epoch that the lease has cut short."""
        if self._stops(state):
            control.should_save = control.should_evaluate = False

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any) -> None:
        """Commit what the Trainer has saved: the first rank does when all have written their parts."""
        source = Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"

        def copy(folder: Path) -> None:
            if self.lease.rank == 0:
                shutil.copytree(source, folder, dirs_exist_ok=True)

        self.lease.checkpoint(copy, every_rank=True, began=self._saving_since)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Say that the job is complete, or end the process if it is not.

        Raises
        ------
        SystemExit
            With status 0, where the lease has ended the training.
        """
        if not self._stops(state):
            self.lease.done()
            hold_group()
        elif self._exits:
            leave_group()
            raise SystemExit(0)

    def _stops(self, state: TrainerState) -> bool:
        return self.lease.has_ended and state.global_step < state.max_steps

    def _end_if(self, ends: bool, control: TrainerControl) -> None:
        self._saving_since = time.monotonic()
        if ends and self.lease.has_ended:
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False
