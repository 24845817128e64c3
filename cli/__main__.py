"""Entry point of `./caravan`: errors that the user can solve are one sentence and exit code 2."""

import sys

from cli.app import app
from workers.local.places import UserError


def main() -> None:
    try:
        app(prog_name="caravan")
    except UserError as error:
        print(f"caravan: {error}", file=sys.stderr)
        raise SystemExit(2) from None


main()
