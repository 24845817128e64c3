"""Every write of experiments. One function for each use case, each in a transaction."""

from webapp.experiments.services.attempts import (
    HEARTBEAT_S,
    Claim,
    Redeemed,
    claim,
    fail_attempt,
    finish,
    redeem,
    requeue,
    storage_of,
    submitted,
)
from webapp.experiments.services.backtests import start_backtest
from webapp.experiments.services.blobs import not_uploaded, put_upload, remove_unused_blob
from webapp.experiments.services.bulk import Changed, change_runs
from webapp.experiments.services.checkpoints import prune_checkpoints, remove_checkpoint
from webapp.experiments.services.control import (
    end_interrupted,
    interrupt_active,
    pause,
    resume,
    resume_interrupted,
    stop,
)
from webapp.experiments.services.datasets import (
    add_dataset_version,
    checked_rows,
    create_dataset,
    delete_dataset,
    delete_dataset_version,
    store_version,
    upload_version,
)
from webapp.experiments.services.deletion import delete_run, remove_leftovers
from webapp.experiments.services.dry_runs import clear_dry_runs, tried_spec
from webapp.experiments.services.edit import archive, edit_run, set_tags
from webapp.experiments.services.evaluations import Wanted, evaluate_checkpoint, is_evaluation
from webapp.experiments.services.experiments import (
    archive_experiment,
    create_experiment,
    delete_experiment,
    edit_experiment,
)
from webapp.experiments.services.external import Begun, begin_external, restart_external
from webapp.experiments.services.fork import fork_problems
from webapp.experiments.services.job_files import EXPORT, remove_export, remove_old_exports
from webapp.experiments.services.jobs import (
    JOB_HEARTBEAT_S,
    beat_job,
    cancel_job,
    claim_job,
    end_job,
    hand_back_jobs,
    judge_jobs,
    repeat_job,
    report_job,
    send_jobs,
    start_job,
)
from webapp.experiments.services.judging import (
    PULSE_S,
    Silent,
    mark_lost,
    mark_unreachable,
    pulse,
    silent_attempts,
)
from webapp.experiments.services.launch import Launch, check_spec, launch_demo, launch_run
from webapp.experiments.services.presets import delete_preset, save_preset
from webapp.experiments.services.prune import start_measure, start_prune
from webapp.experiments.services.queueing import move_in_queue, set_priority
from webapp.experiments.services.schemes import add_scheme_version, create_scheme
from webapp.experiments.services.tries import Tried, try_checkpoint

__all__ = [
    "Begun",
    "Changed",
    "Claim",
    "EXPORT",
    "HEARTBEAT_S",
    "JOB_HEARTBEAT_S",
    "Launch",
    "PULSE_S",
    "Redeemed",
    "Silent",
    "Tried",
    "Wanted",
    "add_dataset_version",
    "add_scheme_version",
    "archive",
    "archive_experiment",
    "beat_job",
    "begin_external",
    "cancel_job",
    "change_runs",
    "check_spec",
    "checked_rows",
    "claim",
    "claim_job",
    "clear_dry_runs",
    "create_dataset",
    "create_experiment",
    "create_scheme",
    "delete_dataset",
    "delete_dataset_version",
    "delete_experiment",
    "delete_preset",
    "delete_run",
    "edit_experiment",
    "edit_run",
    "end_interrupted",
    "end_job",
    "evaluate_checkpoint",
    "fail_attempt",
    "finish",
    "fork_problems",
    "hand_back_jobs",
    "interrupt_active",
    "is_evaluation",
    "judge_jobs",
    "launch_demo",
    "launch_run",
    "mark_lost",
    "mark_unreachable",
    "move_in_queue",
    "not_uploaded",
    "pause",
    "prune_checkpoints",
    "pulse",
    "put_upload",
    "redeem",
    "remove_checkpoint",
    "remove_export",
    "remove_leftovers",
    "remove_old_exports",
    "remove_unused_blob",
    "repeat_job",
    "report_job",
    "requeue",
    "restart_external",
    "resume",
    "resume_interrupted",
    "save_preset",
    "send_jobs",
    "set_priority",
    "set_tags",
    "silent_attempts",
    "start_backtest",
    "start_job",
    "start_measure",
    "start_prune",
    "stop",
    "storage_of",
    "store_version",
    "submitted",
    "tried_spec",
    "try_checkpoint",
    "upload_version",
]
