"""Cursors: given out, taken back, and refused where somebody made them up."""

import base64
import json
from datetime import UTC, datetime

import pytest

from webapp.paging import decode_cursor, encode_cursor
from webapp.problems import RefusedError


def test_a_cursor_comes_back_as_it_was() -> None:
    values = [datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC), "run_1", 3]
    assert decode_cursor(encode_cursor(values), 3) == values


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "yesterday", 3, None]
)
def test_a_moment_that_no_row_has_is_refused(moment: object) -> None:
    made_up = base64.urlsafe_b64encode(json.dumps([{"t": moment}, "x"]).encode()).decode()
    with pytest.raises(RefusedError, match="Use the cursor of the page before"):
        decode_cursor(made_up, 2)
