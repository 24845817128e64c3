"""`caravan up`: from an empty folder to a running stack, each step a line with its time."""

import signal
import subprocess
import sys
import time

from workers.local.places import Places, UserError
from workers.local.quick_start import follow_quick_start
from workers.local.stack import Options, Stack, build, manage, say, start, stop
from workers.local.state import write_state
from workers.local.supervisor import StartInterruptedError

INTERRUPT_SECONDS = 20


def up(places: Places, options: Options) -> None:
    """Start the stack, watch over it, and stop it when asked to by a signal."""
    options.exposure.check()
    stack = build(places, options)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stack.supervisor.ask_to_stop())
    try:
        start(stack)
        _welcome(stack, options)
        stack.supervisor.state.welcomed = True
        write_state(places, stack.supervisor.state)
        stack.supervisor.watch()
        if "web" in stack.supervisor.children:
            _interrupt_runs(stack)
    except StartInterruptedError:
        say("stopping")
    finally:
        stop(stack)


def _welcome(stack: Stack, options: Options) -> None:
    if not stack.login_link:
        say(f"\nup: {', '.join(stack.supervisor.children)}")
        return
    say(f"\nCaravan is up: {stack.layout.url}")
    say(f"Log in once with {stack.login_link}")
    stops = "Ctrl-C stops it. " if sys.stdin.isatty() else ""
    say(f"{stops}`./caravan login-link` makes another link.\n")
    if resumed := _try(stack, "resume_interrupted"):
        say(f"resumed: {', '.join(resumed.split())}")
        for run_id in resumed.split():
            follow_quick_start(stack.places, stack.layout.web_probe, run_id, say)
    if options.demo and (run_id := _try(stack, "launch_demo")):
        say(f"the quick start runs: {stack.layout.url}/runs/{run_id}")
        follow_quick_start(stack.places, stack.layout.web_probe, run_id, say)


def _try(stack: Stack, command: str) -> str:
    """What a command printed; its failure is said and stops nothing."""
    try:
        return manage(stack, [command])
    except UserError as error:
        say(str(error))
        return ""


def _interrupt_runs(stack: Stack) -> None:
    """Let active runs save a checkpoint and end; a second signal cuts the wait short."""
    say("\nstopping: active runs save a checkpoint first (Ctrl-C again: at once)")
    stack.supervisor.stop_asked.clear()
    command = ("-m", "webapp.manage", "interrupt_runs", "--wait", str(INTERRUPT_SECONDS))
    process: subprocess.Popen[bytes] = subprocess.Popen(
        **stack.python(*command),  # type: ignore[call-overload]
        start_new_session=True,
    )
    deadline = time.monotonic() + INTERRUPT_SECONDS + 2
    while process.poll() is None:
        if stack.supervisor.stop_asked.wait(0.1) or time.monotonic() > deadline:
            process.kill()
            process.wait()
