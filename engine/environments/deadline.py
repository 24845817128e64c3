"""Runs a tool under a deadline that the host enforces, whatever the tool does."""

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Value = TypeVar("Value")


class DeadlineError(Exception):
    """The call did not return in time; its thread was given up."""


class Deadline:
    """One worker thread that runs calls one after the other.

    Python cannot stop a thread: a call that passes its deadline keeps the (daemon) thread, later
    calls get a new one, and what the late call returns is dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Any] | None = None

    def run(self, call: Callable[[], Value], seconds: float) -> Value:
        """What `call` returns, or what it raises. DeadlineError after `seconds`."""
        with self._lock:
            if self._jobs is None:
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=_work, args=(self._jobs,), daemon=True).start()
            answers: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
            self._jobs.put((call, answers))
            try:
                raised, value = answers.get(timeout=seconds)
            except queue.Empty:
                self._jobs.put(None)
                self._jobs = None
                raise DeadlineError(f"The call took longer than {seconds} s.") from None
        if raised:
            raise value
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """Ends the worker thread once it is free; a later `run` starts another."""
        with self._lock:
            if self._jobs is not None:
                self._jobs.put(None)
                self._jobs = None

    def __del__(self) -> None:
        self.close()


def _work(jobs: "queue.SimpleQueue[Any]") -> None:
    while (job := jobs.get()) is not None:
        call, answers = job
        try:
            answers.put((False, call()))
        except Exception as error:  # handed to the caller, who decides
            answers.put((True, error))
        del job, call, answers
