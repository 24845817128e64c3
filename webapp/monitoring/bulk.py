"""Bulk statements on Django's connection, with parameters bound by the server.

Django's own cursors write every parameter into the statement as a literal: for arrays of thousands
of numbers that costs more than storing them.
"""

from collections.abc import Iterable
from typing import Any

from django.db import connection
from psycopg import Cursor


def bulk_cursor() -> Cursor[Any]:
    """A cursor in the present transaction of Django's connection."""
    connection.ensure_connection()
    return Cursor(connection.connection)


def numbers(values: Iterable[float]) -> str:
    """A PostgreSQL array literal of ints or floats, NaN and infinities included."""
    return "{" + ",".join(map(repr, values)) + "}"
