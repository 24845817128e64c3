"""Print a one-time link that signs a user in, by default the first admin."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.urls import reverse

from webapp.accounts import services
from webapp.accounts.models import User


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--email", help="of the user to sign in")

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"]
        user = (
            User.objects.filter(email__iexact=email, is_active=True).first()
            if email
            else services.first_admin()
        )
        if user is None:
            raise CommandError(
                f"Nobody has the email {email}: invite them first."
                if email
                else "There is no admin yet: run ensure_admin."
            )
        secret = services.create_login_link(user)
        self.stdout.write(settings.CARAVAN_URL + reverse("login-link", args=[secret]))
