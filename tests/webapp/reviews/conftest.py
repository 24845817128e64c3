"""A run's stored trajectories, and browsers' sessions."""

from collections.abc import Callable
from functools import partial

import pytest
from django.test import Client

from tests.webapp.reviews.samples import put
from webapp.accounts.models import User
from webapp.experiments.models import Run


@pytest.fixture
def store(run: Run) -> Callable:
    return partial(put, run)


@pytest.fixture
def as_user() -> Callable[[User], Client]:
    def signed_in(user: User) -> Client:
        client = Client()
        client.force_login(user)
        return client

    return signed_in
