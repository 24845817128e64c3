"""Every write of reviews. Index rows of trajectories are written by ingest."""

from webapp.reviews.services.collecting import start_collecting
from webapp.reviews.services.comments import (
    add_comment,
    delete_comment,
    edit_comment,
    may_delete,
    members_of,
    resolve_comment,
)
from webapp.reviews.services.exporting import start_export
from webapp.reviews.services.inbox import mark_read
from webapp.reviews.services.indexing import index_texts
from webapp.reviews.services.judging import (
    claim,
    claim_next,
    judge,
    last_judged,
    mark_step,
    may_judge,
    next_item,
    refusal,
    release,
    withdraw,
)
from webapp.reviews.services.queues import close_queue, create_queue, preview
from webapp.reviews.services.versions import make_dataset, make_new_dataset

__all__ = [
    "add_comment",
    "claim",
    "claim_next",
    "close_queue",
    "create_queue",
    "delete_comment",
    "edit_comment",
    "index_texts",
    "judge",
    "last_judged",
    "make_dataset",
    "make_new_dataset",
    "mark_read",
    "mark_step",
    "may_delete",
    "may_judge",
    "members_of",
    "next_item",
    "preview",
    "refusal",
    "release",
    "resolve_comment",
    "start_collecting",
    "start_export",
    "withdraw",
]
