"""A student beside its teachers: completion by category as metrics."""

from pydantic import TypeAdapter

from engine.records.events import MAX_VALUES, Metrics
from workers.cluster.teachers import completion_metrics, step_metrics


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


def test_a_step_on_tasks_of_any_categories_is_told_in_names_that_metrics_can_have():
    told = {"divergence": 1.0, "agreement": 0.5, "divergence/stage-2": 2.0, "loss": 9.0}
    strange = dict.fromkeys([f"divergence/{one}" for one in ("who?", "", "x" * 200)], 3.0)
    values = step_metrics({**told, **strange, "divergence/城市": 4.0})
    assert values == {
        "distil/divergence": 1.0,
        "distil/agreement": 0.5,
        "distil/divergence/stage-2": 2.0,
        "distil/divergence/城市": 4.0,
    }


def test_of_too_many_categories_as_many_are_told_as_fit_beside_the_other_figures():
    many = {f"divergence/{number}": 1.0 for number in range(3 * MAX_VALUES)}
    values = step_metrics({"divergence": 1.0, **many})
    assert len(values) < MAX_VALUES and "distil/divergence" in values
    rates = {"completion": 0.5, "teachers": {}}
    assert len(completion_metrics({str(n): rates for n in range(3 * MAX_VALUES)})) < MAX_VALUES
