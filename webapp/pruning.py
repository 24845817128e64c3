"""Removes what is kept for a while only: samples, links, answers, deliveries, sessions, jobs."""

from datetime import timedelta

from django.contrib.sessions.models import Session
from django.utils import timezone

from webapp.accounts.models import Delivery, Invitation, LoginLink, StoredAnswer
from webapp.experiments.models import Job
from webapp.experiments.services.job_files import EXPORT
from webapp.experiments.services.prune import KIND as PRUNE
from webapp.experiments.services.prune import MEASURE
from webapp.monitoring.models import DeviceSample
from webapp.rest.idempotency import KEPT
from webapp.reviews.models import Claim, Episode, Playing

DEVICES_KEPT = timedelta(days=7)
EPISODES_KEPT = timedelta(minutes=30)
JOBS_KEPT = timedelta(days=90)  # of those that measured, pruned or exported; backtests stay
LINKS_KEPT = timedelta(days=30)


def prune() -> dict[str, int]:
    """Remove what is too old; how many rows of each went."""
    now = timezone.now()
    old = {
        "device samples": DeviceSample.objects.filter(at__lt=(now - DEVICES_KEPT).timestamp()),
        "episodes": Episode.objects.filter(told_at__lt=now - EPISODES_KEPT),
        "lists of episodes": Playing.objects.filter(told_at__lt=now - EPISODES_KEPT),
        "jobs": Job.objects.filter(kind__in=(MEASURE, PRUNE, EXPORT), ended_at__lt=now - JOBS_KEPT),
        "leases": Claim.objects.filter(expires_at__lt=now - EPISODES_KEPT),
        "stored answers": StoredAnswer.objects.filter(created_at__lt=now - KEPT),
        "login links": LoginLink.objects.filter(expires_at__lt=now - LINKS_KEPT),
        "invitations": Invitation.objects.filter(expires_at__lt=now - LINKS_KEPT, accepted_at=None),
        "deliveries": Delivery.objects.filter(ended_at__lt=now - LINKS_KEPT),
        "sessions": Session.objects.filter(expire_date__lt=now),
    }
    return {what: rows.delete()[0] for what, rows in old.items()}
