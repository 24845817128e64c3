"""Remove what is kept for a while only: device samples, used links, stored answers, sessions."""

from datetime import timedelta
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils import timezone

from webapp.accounts.models import Invitation, LoginLink, StoredAnswer
from webapp.monitoring.models import DeviceSample
from webapp.rest.idempotency import KEPT

DEVICES_KEPT = timedelta(days=7)
LINKS_KEPT = timedelta(days=30)


class Command(BaseCommand):
    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        old = {
            "device samples": DeviceSample.objects.filter(at__lt=(now - DEVICES_KEPT).timestamp()),
            "stored answers": StoredAnswer.objects.filter(created_at__lt=now - KEPT),
            "login links": LoginLink.objects.filter(expires_at__lt=now - LINKS_KEPT),
            "invitations": Invitation.objects.filter(
                expires_at__lt=now - LINKS_KEPT, accepted_at=None
            ),
        }
        for what, rows in old.items():
            self.stdout.write(f"{what}: {rows.delete()[0]} removed")
        call_command("clearsessions")
