"""Secrets that Caravan hands out: random, shown once, stored as keyed hashes only."""

import hmac
import os
import secrets
from datetime import timedelta
from pathlib import Path

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.crypto import salted_hmac

from webapp.accounts.models import ApiToken, User
from webapp.problems import FieldProblem, RefusedError

USED_AT_GRAIN = timedelta(minutes=1)  # `used_at` is not written more often


def new_secret() -> str:
    """256 random bits as text."""
    return secrets.token_urlsafe(32)


def digest(purpose: str, secret: str) -> str:
    """The keyed SHA-256 of a secret; the key comes from SECRET_KEY, one for each purpose."""
    return salted_hmac(f"caravan.{purpose}", secret, algorithm="sha256").hexdigest()


def sampler_token() -> str:
    """What the device samplers of this installation sign in with."""
    return "cvs_" + digest("sampler", "devices")


def is_sampler_token(given: str) -> bool:
    return hmac.compare_digest(given, sampler_token())


def new_api_token() -> tuple[str, str, str]:
    """(what the user keeps, public prefix, digest)."""
    prefix = secrets.token_hex(5)
    secret = new_secret()
    return f"cvn_{prefix}_{secret}", prefix, digest("api", secret)


def find_api_token(given: str) -> ApiToken | None:
    """The live token that `given` is, of an active user; None for anything else."""
    marker, _, rest = given.partition("_")
    prefix, _, secret = rest.partition("_")
    if marker != "cvn" or not prefix or not secret:
        return None
    token = ApiToken.objects.select_related("user").filter(prefix=prefix).first()
    now = timezone.now()
    if (
        token is None
        or not hmac.compare_digest(token.digest, digest("api", secret))
        or not is_live(token)
    ):
        return None
    if token.used_at is None or now - token.used_at > USED_AT_GRAIN:
        ApiToken.objects.filter(pk=token.pk).update(used_at=now)
    return token


def is_live(token: ApiToken) -> bool:
    """Neither revoked nor expired, and of an active user."""
    is_over = token.expires_at is not None and token.expires_at <= timezone.now()
    return token.revoked_at is None and not is_over and token.user.is_active


def check_password_rules(password: str, user: User) -> None:
    """Raises RefusedError, naming every rule that the password breaks."""
    try:
        validate_password(password, user)
    except ValidationError as error:
        raise RefusedError(
            " ".join(error.messages),
            [FieldProblem("password", message) for message in error.messages],
        ) from None


def write_secret(path: str, text: str) -> None:
    """Write a file that only its owner can read, never visible half written."""
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    partial.replace(target)
