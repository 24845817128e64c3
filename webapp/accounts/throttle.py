"""Slows down guessing: failed logins are counted in Valkey, per address and per account."""

import hashlib
import logging

from django.core.cache import cache
from redis.exceptions import RedisError

from webapp.problems import RefusedError

logger = logging.getLogger(__name__)

WINDOW_S = 15 * 60
PER_ACCOUNT = 10
PER_ADDRESS = 50


def _keys(email: str, address: str) -> list[tuple[str, int]]:
    account = hashlib.sha256(email.strip().lower().encode()).hexdigest()[:32]
    return [(f"login.account.{account}", PER_ACCOUNT), (f"login.address.{address}", PER_ADDRESS)]


def check(email: str, address: str) -> None:
    """Raises RefusedError (429) after too many failures; an unreachable Valkey locks nobody out."""
    try:
        counts = [(cache.get(key) or 0, most) for key, most in _keys(email, address)]
    except RedisError as error:
        logger.warning("failed logins are not counted, Valkey is unreachable: %s", error)
        return
    if any(count >= most for count, most in counts):
        raise RefusedError("Too many failed attempts. Wait 15 minutes and try again.", status=429)


def count_failure(email: str, address: str) -> None:
    try:
        for key, _ in _keys(email, address):
            cache.add(key, 0, WINDOW_S)
            cache.incr(key)
    except (RedisError, ValueError):  # ValueError: the window ended between the two calls
        return


def forget(email: str, address: str) -> None:
    """After a successful login; the address keeps its count."""
    try:
        cache.delete(_keys(email, address)[0][0])
    except RedisError:
        return
