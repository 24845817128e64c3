"""Clusters as people write them."""

import pytest

from engine.planner import DEVICES, ConfigError, read_cluster


@pytest.mark.parametrize(
    ("text", "name", "count"),
    [
        ("8xH100-80", "H100-80", 8),
        (" 8 x h100 ", "H100-80", 8),
        ("H200", "H200-141", 1),
        ("64xa100-40", "A100-40", 64),
        ("2xcpu", "cpu", 2),
    ],
)
def test_it_reads_what_people_write(text: str, name: str, count: int) -> None:
    cluster = read_cluster(text)
    assert (cluster.device.name, cluster.count) == (name, count)
    assert cluster.name == f"{count}x{name}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "cannot be read: write them as 8xH100-80"),
        ("8x", "cannot be read"),
        ("-1xH100", "cannot be read"),
        ("0xH100", "there may be 1 to 100,000"),
        ("999999xH100", "there may be 1 to 100,000"),
        ("8xTPU", "There is no device 'TPU': there are A100-40, A100-80"),
        ("8xA100", "may be A100-40 or A100-80: say which"),
    ],
)
def test_it_refuses_the_rest_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_cluster(text)


def test_every_device_says_where_its_figures_come_from() -> None:
    for device in DEVICES.values():
        assert device.source
        assert min(device.memory, device.flops, device.bandwidth, device.link) > 0


def test_beyond_a_node_the_network_counts() -> None:
    cluster = read_cluster("32xH100")
    assert (cluster.nodes, cluster.link_over(8), cluster.link_over(9)) == (4, 450e9, 50e9)
    assert read_cluster("16xL40S").link_over(16) == 32e9  # slower than the network already
