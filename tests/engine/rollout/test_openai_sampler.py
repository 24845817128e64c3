"""The endpoint sampler against a server that behaves like vLLM, and against ones that do not."""

import json

import httpx
import pytest

from engine.rollout import openai_sampler
from engine.rollout.openai_sampler import EndpointError, OpenAiSampler

END = 9


class Server:
    """Answers each request with ids that depend on its prompt, after `failures` bad answers."""

    def __init__(self, failures: int = 0, status: int = 503, token_ids: bool = True) -> None:
        self.failures, self.status, self.token_ids = failures, status, token_ids
        self.requests: list[dict] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.failures:
            self.failures -= 1
            return httpx.Response(self.status, text="not now")
        body = json.loads(request.content)
        self.requests.append({**body, "path": request.url.path, **request.headers})
        ids = [sum(body["prompt"]) % 7, END][: body["max_tokens"]]
        choice = {"logprobs": {"token_logprobs": [-0.5] * len(ids)}, "finish_reason": "stop"}
        if self.token_ids:
            choice["token_ids"] = ids
        return httpx.Response(200, json={"choices": [choice]})


def make_sampler(server: Server) -> OpenAiSampler:
    return OpenAiSampler(
        "http://served/v1",
        "policy",
        end_id=END,
        capacity=4,
        version=3,
        api_key="secret",
        transport=httpx.MockTransport(server),
    )


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_sampler, "RETRY_AFTER_S", 0.0)


def turns_of(sampler: OpenAiSampler, count: int) -> list:
    turns = []
    while len(turns) < count:
        turns += sampler.step()
    return turns


def test_ids_go_in_and_ids_come_out() -> None:
    server = Server()
    sampler = make_sampler(server)
    opened = sampler.open([1, 2, 3], 2, 5, 0.7)
    first = turns_of(sampler, 2)
    assert sorted(turn.sequence for turn in first) == opened
    for turn in first:
        assert (turn.ids, turn.logprobs, turn.versions, turn.ended) == (
            [6, END], [-0.5, -0.5], [3, 3], True
        )  # fmt: skip
    sampler.extend(opened[0], [4], 5)
    (second,) = turns_of(sampler, 1)
    assert server.requests[-1]["prompt"] == [1, 2, 3, 6, END, 4]
    assert second.ids == [sum([1, 2, 3, 6, END, 4]) % 7, END]
    request = server.requests[0]
    assert (request["path"], request["authorization"]) == ("/v1/completions", "Bearer secret")
    assert (request["temperature"], request["max_tokens"], request["stop_token_ids"]) == (
        0.7,
        5,
        [END],
    )
    sampler.shut_down()


def test_no_default_of_the_served_model_cuts_the_distribution() -> None:
    """vLLM fills in top_p, top_k and penalties of the model's generation_config.json."""
    server = Server()
    sampler = make_sampler(server)
    sampler.open([1, 2, 3], 1, 5, 1.0)
    turns_of(sampler, 1)
    asked = {name: server.requests[0][name] for name in openai_sampler.UNTRUNCATED}
    assert asked == {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    sampler.shut_down()


def test_a_turn_that_was_cut_has_not_ended() -> None:
    sampler = make_sampler(Server())
    sampler.open([1], 1, 1, 1.0)
    (turn,) = turns_of(sampler, 1)
    assert not turn.ended
    sampler.shut_down()


def test_it_tries_again_where_the_server_is_busy() -> None:
    sampler = make_sampler(Server(failures=2))
    sampler.open([1], 1, 5, 1.0)
    (turn,) = turns_of(sampler, 1)
    assert turn.ended and not turn.problem
    sampler.shut_down()


def test_a_server_that_stays_away_ends_the_turn_with_a_problem() -> None:
    sampler = make_sampler(Server(failures=99))
    sampler.open([1], 1, 5, 1.0)
    (turn,) = turns_of(sampler, 1)
    assert turn.ids == [] and "503" in turn.problem
    sampler.shut_down()


@pytest.mark.parametrize(
    ("server", "message"),
    [
        (Server(token_ids=False), "no token ids"),
        (Server(failures=1, status=401), "refused the request with 401"),
    ],
)
def test_an_endpoint_that_cannot_serve_is_an_error(server: Server, message: str) -> None:
    sampler = make_sampler(server)
    sampler.open([1], 1, 5, 1.0)
    with pytest.raises(EndpointError, match=message):
        turns_of(sampler, 1)
    sampler.shut_down()


def test_it_does_not_pretend_to_take_new_weights() -> None:
    sampler = make_sampler(Server())
    with pytest.raises(EndpointError, match="fixed weights"):
        sampler.load_weights(4, {})
    sampler.shut_down()


def test_closed_sequences_make_room_and_their_turns_are_dropped() -> None:
    sampler = make_sampler(Server())
    opened = sampler.open([1], 4, 5, 1.0)
    with pytest.raises(RuntimeError, match="do not fit"):
        sampler.open([1], 1, 5, 1.0)
    for sequence in opened[:3]:
        sampler.close(sequence)
    assert [turn.sequence for turn in turns_of(sampler, 1)] == [opened[3]]
    sampler.shut_down()


def test_a_sequence_has_one_turn_at_a_time_and_none_once_it_is_closed() -> None:
    server = Server()
    sampler = make_sampler(server)
    (sequence,) = sampler.open([1, 2], 1, 5, 1.0)
    with pytest.raises(RuntimeError, match=f"sequence {sequence} is inside a turn"):
        sampler.extend(sequence, [4], 5)
    turns_of(sampler, 1)
    sampler.extend(sequence, [4], 5)
    turns_of(sampler, 1)
    assert [one["prompt"] for one in server.requests] == [[1, 2], [1, 2, 3, END, 4]]
    sampler.close(sequence)
    for late in (lambda: sampler.extend(sequence, [4], 5), lambda: sampler.close(sequence)):
        with pytest.raises(RuntimeError, match=f"sequence {sequence} is not open"):
            late()


def test_it_goes_on_from_marks_with_the_ids_of_their_boundary() -> None:
    server = Server()
    sampler = make_sampler(server)
    (first,) = sampler.open([1, 2, 3], 1, 5, 1.0)
    with pytest.raises(RuntimeError, match=f"sequence {first} is inside a turn"):
        sampler.mark(first)
    turns_of(sampler, 1)
    mark = sampler.mark(first)
    sampler.extend(first, [4], 5)
    turns_of(sampler, 1)
    sampler.rewind(first, mark, [5], 5)
    turns_of(sampler, 1)
    assert server.requests[-1]["prompt"] == [1, 2, 3, 6, END, 5]
    fork = sampler.fork(first, mark, [8], 5, 1.0)
    turns_of(sampler, 1)
    assert server.requests[-1]["prompt"] == [1, 2, 3, 6, END, 8]
    with pytest.raises(RuntimeError, match=f"mark {mark} is of sequence {first}, not of {fork}"):
        sampler.rewind(fork, mark, [], 5)
    sampler.close(first)
    with pytest.raises(RuntimeError, match=f"mark {mark} does not exist or was released"):
        sampler.fork(first, mark, [], 5, 1.0)
