"""Complaints about other control planes, each with the tests that show it is none about this one.

The numbers are those of the table of complaints that the project was planned with. What a part of
the product already tests is named here; the other files of this folder test the rest.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
HERE = "conformance/control_plane"

COVERED = {
    "1 one NaN breaks a page": [
        f"{HERE}/test_numbers.py::test_every_call_of_a_run_with_them_is_strict_json",
        f"{HERE}/test_numbers.py::test_every_page_of_a_run_with_them_opens",
    ],
    "2 infinity comes back as a large number": [
        "webapp/monitoring/test_ingest.py::test_it_stores_what_is_not_finite_as_it_is",
        "webapp/monitoring/test_reads.py::test_what_is_not_finite_is_told_apart_everywhere",
        f"{HERE}/test_numbers.py::test_they_come_back_as_they_were_sent",
    ],
    "3 sorting fails where a metric is missing": [
        "webapp/experiments/test_finding_runs.py::test_runs_are_sorted_with_missing_values_last",
        f"{HERE}/test_numbers.py::test_pages_of_a_sorted_list_lose_and_repeat_no_run",
    ],
    "5 steps of one metric silence another": [
        "webapp/monitoring/test_ingest.py::test_it_keeps_three_writers_with_steps_of_their_own",
    ],
    "7 a smaller step counts as a restart": [
        "webapp/monitoring/test_ingest.py::test_shuffled_and_doubled_batches_give_the_same_series",
        "webapp/monitoring/test_ingest.py::test_attempts_are_kept_apart",
    ],
    "9 a rare metric vanishes": [
        "webapp/monitoring/test_reads.py::test_rare_series_keep_every_point",
    ],
    "10 thousands of metrics freeze the page": [
        f"{HERE}/test_sizes.py::test_five_thousand_metrics_are_searched_by_the_server",
        "browser/test_journeys.py::test_panels_are_drawn_when_they_are_scrolled_to",
    ],
    "11 a list breaks at a certain number of runs": [
        f"{HERE}/test_sizes.py::test_every_run_of_thousands_is_on_one_page_of_the_list",
    ],
    "12 a large config or a long name breaks the layout": [
        f"{HERE}/test_sizes.py::test_a_megabyte_of_config_is_kept_and_compared",
        f"{HERE}/test_looks.py::test_long_names_and_a_large_config_stay_within_the_page",
    ],
    "13 a killed run shows running for ever": [
        "webapp/experiments/test_states.py::"
        "test_a_silent_run_is_unreachable_and_lost_only_with_rays_word",
        "webapp/experiments/test_states.py::test_a_heartbeat_in_between_saves_the_run",
        "faults/test_lost_driver.py::",
    ],
    "15 a deleted name cannot be used again": [
        "webapp/experiments/test_deletion.py::"
        "test_it_leaves_nothing_of_the_run_and_everything_of_others",
        "webapp/experiments/test_deletion.py::test_what_was_judged_or_built_from_it_holds_it",
        f"{HERE}/test_again.py::test_a_name_is_free_again_once_its_run_is_deleted",
        f"{HERE}/test_again.py::test_what_a_run_refers_to_cannot_be_deleted_under_it",
    ],
    "16 clocks of two machines are subtracted": [
        f"{HERE}/test_clocks.py::test_durations_come_from_one_clock",
        f"{HERE}/test_clocks.py::test_a_worker_hours_off_breaks_no_page",
    ],
    "18 a heavy trajectory freezes the browser": [
        "browser/replay/test_replay.py::test_ten_thousand_steps_stay_smooth",
        "webapp/reviews/test_reading.py::test_it_cuts_long_fields_and_says_how_long_they_are",
    ],
    "20 after sleep the chart misses points": [
        "browser/test_live.py::test_nothing_is_lost_or_doubled_by_a_lost_connection",
        "webapp/monitoring/test_socket.py::test_a_reconnect_goes_on_where_the_page_stood",
        "webapp/monitoring/test_socket.py::test_a_lost_hint_heals",
    ],
    "21 messages are lost under load": [
        "webapp/monitoring/test_socket.py::test_twenty_pages_share_one_read",
        "webapp/monitoring/test_socket.py::test_it_merges_to_four_messages_a_second",
        "webapp/monitoring/test_socket.py::test_a_page_that_does_not_read_costs_no_memory",
    ],
    "22 outsiders see what is not theirs": [
        "webapp/test_outsiders.py::test_an_outsider_finds_no_page",
        "webapp/test_outsiders.py::test_an_outsider_finds_nothing_by_a_call",
        "webapp/test_outsiders.py::test_a_foreign_id_in_a_field_leads_nowhere",
        "webapp/monitoring/test_socket_access.py::test_an_outsider_hears_nothing",
    ],
    "24 what a model writes runs in a reader's session": [
        "browser/replay/test_hostile.py::test_nothing_that_an_agent_writes_runs_or_hides",
        "webapp/pages/test_templating.py::test_markdown_does_nothing",
        f"{HERE}/test_looks.py::test_payloads_in_every_name_do_nothing",
    ],
    "25 a path leads out of its folder": [
        "webapp/test_parts.py::test_only_plain_names_lie_below_a_folder",
        "webapp/monitoring/test_ingest.py::test_a_path_out_of_the_run_is_refused",
        f"{HERE}/test_paths.py::test_no_spelling_of_a_path_reads_another_file",
        f"{HERE}/test_paths.py::test_downloads_are_never_shown",
    ],
}


@pytest.mark.parametrize("complaint", COVERED)
def test_it_is_tested(complaint: str) -> None:
    for named in COVERED[complaint]:
        path, _, name = named.partition("::")
        tree = ast.parse((TESTS / path).read_text())
        tests = {
            node.name
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
        }
        assert name in tests or (not name and tests), named
