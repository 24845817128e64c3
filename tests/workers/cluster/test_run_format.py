"""Whether code may go on with the files that other code wrote."""

import json

import pytest

from tests.workers.cluster.running import spec
from workers.cluster import run_format
from workers.cluster.run_format import OtherCodeError, check_format, notice, read_spec
from workers.cluster.storage import RunStorage


@pytest.fixture(autouse=True)
def this_code(monkeypatch):
    monkeypatch.setattr(run_format, "code_version", lambda: "this-code")


@pytest.fixture(params=["{path}", "local://{path}", "memory:/{path}"])
def storage(request, tmp_path):
    return RunStorage(request.param.format(path=tmp_path / "run"))


def marked(storage):
    again = RunStorage(storage.place)
    return json.loads(again.fetch("format.json").read_text())


def test_it_marks_the_storage_of_a_new_run_once(storage, monkeypatch):
    check_format(storage, "launcher")
    assert marked(storage) == {"format": run_format.FORMAT, "code": "this-code"}
    monkeypatch.setattr(run_format, "code_version", lambda: "later-code")
    check_format(RunStorage(storage.place), "launcher")
    assert marked(storage)["code"] == "this-code", "that which began the files"


@pytest.mark.parametrize("older", run_format.OLDER)
def test_it_takes_over_what_it_can_read_and_marks_it_as_its_own(storage, older):
    storage.write_json("format.json", {"format": older, "code": "writer"})
    run_format.check_same_format(storage, "run_1")
    check_format(storage, "launcher")
    assert marked(storage) == {"format": run_format.FORMAT, "code": "this-code"}


@pytest.mark.parametrize("other", [0, run_format.FORMAT + 1])
def test_it_refuses_another_format_and_names_both_codes(storage, other):
    storage.write_json("format.json", {"format": other, "code": "writer"})
    with pytest.raises(OtherCodeError) as refused:
        check_format(storage, "launcher")
    for part in (f"format {other}", "(this-code)", f"reads format {run_format.FORMAT}", "writer"):
        assert part in str(refused.value)


def test_it_refuses_files_without_a_number(storage):
    storage.write_json("checkpoints/attempt-1/latest.json", {})
    with pytest.raises(OtherCodeError, match="no number.*with code launcher"):
        check_format(storage, "launcher")


def test_it_reads_the_frozen_spec():
    assert read_spec(spec(), "launcher").model_dump(mode="json") == spec()


def test_it_names_the_field_that_this_code_does_not_know():
    with pytest.raises(OtherCodeError, match=r"\(gone: .*\): resume it with code launcher"):
        read_spec({**spec(), "gone": 1}, "launcher")


@pytest.mark.parametrize(("launched_with", "said"), [("", ""), ("this-code", ""), ("x" * 40, "x")])
def test_it_says_so_where_other_code_goes_on(launched_with, said):
    told = notice(launched_with)
    assert bool(told) == bool(said)
    assert said * 12 in told
