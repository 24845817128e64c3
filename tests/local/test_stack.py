"""Small decisions of the stack."""

import pytest

from workers.local.stack import last_message


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "no message"),
        ("working\ncould not work\n", "could not work"),
        (
            "Traceback (most recent call last):\n  File 'x'\nValueError: first\n\n"
            "During handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File 'y'\n    y()\n"
            "app.Broken: second\nwith more lines\nof advice\n",
            "app.Broken: second",
        ),
    ],
)
def test_it_picks_the_line_that_says_what_went_wrong(output: str, message: str) -> None:
    assert last_message(output) == message
