"""A callback for transformers' Trainer, and those of TRL that stand on it.

    from caravan.transformers_callback import CaravanCallback
    trainer = Trainer(..., callbacks=[CaravanCallback(experiment="sft on receipts")])

Imports transformers; nothing else of the client does.
"""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from caravan.run import Run


class CaravanCallback(TrainerCallback):
    """Reports what the trainer logs and saves; a Stop on Caravan's page ends the training.

    The arguments are those of `caravan.Run`. With `checkpoints`, what the trainer saves is
    uploaded: its `save_total_limit` should keep two or more, so that none goes while it travels.
    """

    def __init__(self, *, checkpoints: bool = False, **run: Any) -> None:
        self.run: Run | None = None
        self._arguments = run
        self._checkpoints = checkpoints

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not state.is_world_process_zero or self.run is not None:
            return
        given = {"experiment": args.run_name or "transformers", "config": args.to_dict()}
        self.run = Run(**{**given, "steps": state.max_steps, **self._arguments})

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        if self.run is not None and logs:
            numbers = {name: value for name, value in logs.items() if not isinstance(value, str)}
            self.run.log(numbers, step=state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.run is not None and self.run.should_stop:
            control.should_save = True
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.run is not None and self._checkpoints:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            self.run.checkpoint(folder, step=state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if self.run is not None:
            self.run.finish("stopped" if self.run.should_stop else "succeeded")
            self.run = None
