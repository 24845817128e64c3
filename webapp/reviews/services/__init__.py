"""Every write of reviews. Index rows of trajectories are written by ingest."""

from webapp.reviews.services.comments import (
    add_comment,
    delete_comment,
    edit_comment,
    may_delete,
    resolve_comment,
)
from webapp.reviews.services.indexing import index_texts
from webapp.reviews.services.queues import (
    close_queue,
    create_queue,
    judge,
    make_dataset,
    next_item,
)

__all__ = [
    "add_comment",
    "close_queue",
    "create_queue",
    "delete_comment",
    "edit_comment",
    "index_texts",
    "judge",
    "make_dataset",
    "may_delete",
    "next_item",
    "resolve_comment",
]
