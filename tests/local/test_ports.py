"""Ports are remembered, and a taken one is named."""

import socket
from collections.abc import Iterator

import pytest

from workers.local.places import UserError
from workers.local.ports import NAMES, choose_ports, is_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_it_refuses_a_port_that_another_program_has(taken: int) -> None:
    with pytest.raises(UserError, match=f"Port {taken} on 127.0.0.1 is taken by another program"):
        choose_ports({}, set(), taken)


def test_it_takes_back_a_port_that_its_own_orphan_holds(taken: int) -> None:
    assert choose_ports({}, {taken}, taken)["web"] == taken


def test_it_remembers_ports_and_replaces_only_those_that_were_taken(taken: int) -> None:
    first = choose_ports({}, set(), None)
    assert sorted(first) == sorted(NAMES)
    assert len(set(first.values())) == len(NAMES)
    second = choose_ports({**first, "ingest": taken}, set(), None)
    assert second["ingest"] != taken
    assert {n: p for n, p in second.items() if n != "ingest"} == {
        n: p for n, p in first.items() if n != "ingest"
    }


def test_it_sees_that_a_port_is_taken(taken: int) -> None:
    assert not is_free(taken)
