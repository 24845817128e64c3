"""Entry point of `./caravan`: what the user can solve is one sentence and exit code 2."""

import errno
import signal
import sys

from cli.app import add_client_commands, app
from workers.local.places import UserError


def main() -> None:
    # Being told to end is like Ctrl-C: what a command has started is still stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        add_client_commands()
        app(prog_name="caravan")
    except UserError as error:
        sentence = str(error)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sentence = f"No space is left on the disk ({error.filename or 'while writing'})."
    else:
        return
    print(f"caravan: {sentence}", file=sys.stderr)
    raise SystemExit(2)


main()
