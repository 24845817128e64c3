"""The host's deadline around tools."""

import threading

import pytest

from engine.environments.deadline import Deadline, DeadlineError


def test_it_returns_what_the_call_returns_and_raises_what_it_raises() -> None:
    deadline = Deadline()
    assert deadline.run(lambda: 42, 1.0) == 42
    with pytest.raises(KeyError, match="gone"):
        deadline.run(lambda: {}["gone"], 1.0)
    deadline.close()


def test_it_gives_a_late_call_up_and_drops_its_result() -> None:
    deadline, release, late = Deadline(), threading.Event(), threading.Event()

    def slow() -> str:
        release.wait(60)
        late.set()
        return "late"

    with pytest.raises(DeadlineError):
        deadline.run(slow, 0.02)
    release.set()
    assert late.wait(60)
    assert deadline.run(lambda: "next", 1.0) == "next"
    deadline.close()


def test_it_keeps_one_thread_for_all_calls_and_ends_it_when_closed() -> None:
    deadline = Deadline()
    threads = {deadline.run(threading.current_thread, 1.0) for _ in range(20)}
    assert len(threads) == 1
    deadline.close()
    (thread,) = threads
    thread.join(timeout=60)
    assert not thread.is_alive()
