"""Samples are valid, and a server that is away costs nothing but the samples of that time."""

from engine.records.events import Devices
from engine.telemetry.connection import Connection
from workers.cluster.device_sampler import DeviceSampler, cpu_and_memory


def test_a_sample_is_an_event_with_shares_and_bytes():
    sampler = DeviceSampler(Connection("http://127.0.0.1:9", "t"), "node-a")
    first, second = Devices(**sampler.sample()), Devices(**sampler.sample())
    assert first.seq < second.seq
    memory = [device for device in first.devices if device["kind"] == "memory"]
    assert 0 < memory[0]["memory_used"] < memory[0]["memory_total"]
    assert all(0 <= device["busy"] <= 1 for device in first.devices if "busy" in device)


def test_it_tells_each_core_where_there_is_no_gpu():
    kinds = [device["kind"] for device in cpu_and_memory(per_core=True)]
    assert kinds.count("cpu") >= 1
    assert kinds[-1] == "memory"
    assert len(cpu_and_memory(per_core=False)) == 2


def test_what_cannot_be_sent_is_dropped(ingest):
    sampler = DeviceSampler(Connection(ingest.url, "token"), "node-a")
    ingest.behave = lambda path, body: (503, {})
    assert not sampler.send()
    ingest.behave = lambda path, body: None
    assert sampler.send()
    path, body = ingest.calls[-1]
    assert path == "devices"
    assert body["items"][0]["node"] == "node-a"
