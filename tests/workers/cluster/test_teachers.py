"""A student beside its teachers: completion by category as metrics."""

from pydantic import TypeAdapter

from engine.records.events import Metrics
from workers.cluster.teachers import completion_metrics


def test_categories_of_a_dataset_that_no_metric_can_be_named_by_lose_no_other_s_completion():
    rates = {"completion": 0.5, "start": 0.25, "teachers": {"stage-2": 0.75}}
    names = ("3 hops", "城市", "who?", "a:b", "", "(x)")
    values = completion_metrics(dict.fromkeys(names, rates))
    assert values == {
        f"distil/{name}/{category}": value
        for category in ("3 hops", "城市")
        for name, value in (
            ("completion", 0.5),
            ("completion_at_start", 0.25),
            ("completion_of_stage-2", 0.75),
        )
    }
    event = {"source": "driver", "seq": 1, "at": 0.0, "step": 1, "values": values}
    TypeAdapter(Metrics).validate_python(event)
