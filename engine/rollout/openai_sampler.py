"""Samples from any server with an OpenAI-compatible completions endpoint that tells token ids."""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import httpx

from engine.rollout.sampler import SampledTurn

ATTEMPTS = 4
RETRY_AFTER_S = 0.5  # doubled with each attempt
STEP_S = 1.0  # a step without a finished turn returns after this time

# The whole distribution: what a request leaves out, vLLM takes from the model's generation_config.
UNTRUNCATED = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}


class EndpointError(RuntimeError):
    """The endpoint cannot do what sampling needs; the message says what and how to turn it on."""


class OpenAiSampler:
    """Each turn is one request whose prompt is token ids, so that ids in equal ids out.

    The endpoint must answer `return_token_ids` (vLLM does): text that were encoded again could
    differ from what was sampled. Its log-probs must be those of sampling: at another temperature
    than 1 vLLM needs `--logprobs-mode processed_logprobs`.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        end_id: int,
        capacity: int,
        version: int = 0,
        api_key: str = "",
        timeout_s: float = 120.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """base_url: up to and including /v1; capacity: requests under way at once."""
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._client = httpx.Client(
            base_url=base_url, headers=headers, timeout=timeout_s, transport=transport
        )
        self._model = model
        self._end_id = end_id
        self._capacity = capacity
        self._version = version
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix="sample")
        self._contexts: dict[int, list[int]] = {}
        self._temperatures: dict[int, float] = {}
        self._turns: dict[Future[SampledTurn], int] = {}
        self._marks: dict[int, tuple[int, list[int]]] = {}  # -> (sequence, context)
        self._opened = self._marked = 0

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def version(self) -> int:
        return self._version

    def open(
        self, ids: Sequence[int], copies: int, max_tokens: int, temperature: float
    ) -> list[int]:
        if len(self._contexts) + copies > self._capacity:
            raise RuntimeError(
                f"{copies} sequences do not fit: {len(self._contexts)} of {self._capacity} are open"
            )
        opened = list(range(self._opened, self._opened + copies))
        self._opened += copies
        for sequence in opened:
            self._contexts[sequence] = []
            self._temperatures[sequence] = temperature
            self.extend(sequence, ids, max_tokens)
        return opened

    def extend(self, sequence: int, ids: Sequence[int], max_tokens: int) -> None:
        self._refuse_inside_turn(sequence)
        context = self._contexts[sequence]
        context += ids
        future = self._threads.submit(
            self._request, sequence, list(context), max_tokens, self._temperatures[sequence]
        )
        self._turns[future] = sequence

    def mark(self, sequence: int) -> int:
        self._refuse_inside_turn(sequence)
        self._marked += 1
        self._marks[self._marked] = sequence, list(self._contexts[sequence])
        return self._marked

    def rewind(self, sequence: int, mark: int, ids: Sequence[int], max_tokens: int) -> None:
        self._refuse_inside_turn(sequence)
        self._contexts[sequence] = self._marked_context(sequence, mark)
        self.extend(sequence, ids, max_tokens)

    def fork(
        self, sequence: int, mark: int, ids: Sequence[int], max_tokens: int, temperature: float
    ) -> int:
        context = self._marked_context(sequence, mark)
        (opened,) = self.open([*context, *ids], 1, max_tokens, temperature)
        return opened

    def release(self, mark: int) -> None:
        if self._marks.pop(mark, None) is None:
            raise RuntimeError(f"mark {mark} does not exist or was released")

    def step(self) -> list[SampledTurn]:
        """Waits until a turn is finished, at most STEP_S. Raises EndpointError."""
        done, _ = wait(self._turns, timeout=STEP_S, return_when=FIRST_COMPLETED)
        finished = []
        for future in done:
            sequence = self._turns.pop(future)
            if sequence in self._contexts:
                turn = future.result()
                self._contexts[sequence] += turn.ids
                finished.append(turn)
        return finished

    def close(self, sequence: int) -> None:
        self._refuse_closed(sequence)
        for future, one in self._turns.items():
            if one == sequence:
                future.cancel()  # where it still waits for a thread
        del self._contexts[sequence], self._temperatures[sequence]
        self._marks = {mark: one for mark, one in self._marks.items() if one[0] != sequence}

    def load_weights(self, version: int, weights: Mapping[str, Any]) -> None:
        """Refused: what an endpoint serves is not ours to change."""
        raise EndpointError(
            f"{self._client.base_url} serves fixed weights: it can evaluate, not follow a trainer"
        )

    def shut_down(self) -> None:
        """Gives up all requests and closes the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _refuse_closed(self, sequence: int) -> None:
        if sequence not in self._contexts:
            raise RuntimeError(f"sequence {sequence} is not open")

    def _refuse_inside_turn(self, sequence: int) -> None:
        self._refuse_closed(sequence)
        if sequence in self._turns.values():
            raise RuntimeError(f"sequence {sequence} is inside a turn")

    def _marked_context(self, sequence: int, mark: int) -> list[int]:
        found = self._marks.get(mark)
        if found is None:
            raise RuntimeError(f"mark {mark} does not exist or was released")
        if found[0] != sequence:
            raise RuntimeError(f"mark {mark} is of sequence {found[0]}, not of {sequence}")
        return list(found[1])

    def _request(
        self, sequence: int, prompt: list[int], max_tokens: int, temperature: float
    ) -> SampledTurn:
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": temperature,
            **UNTRUNCATED,
            "logprobs": 1,
            "return_token_ids": True,
            "stop_token_ids": [self._end_id],
        }
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(RETRY_AFTER_S * 2 ** (attempt - 1))
            try:
                response = self._client.post("completions", json=body)
            except httpx.TransportError as error:
                problem = f"The endpoint did not answer: {error!r}"
                continue
            if response.status_code == 429 or response.status_code >= 500:
                problem = f"The endpoint answered {response.status_code}: {response.text[:200]}"
                continue
            return self._turn(sequence, response)
        return SampledTurn(sequence, [], [], [], False, problem)

    def _turn(self, sequence: int, response: httpx.Response) -> SampledTurn:
        if response.is_error:
            raise EndpointError(
                f"The endpoint refused the request with {response.status_code}: "
                f"{response.text[:200]}"
            )
        choice = response.json()["choices"][0]
        ids = choice.get("token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
        if ids is None or logprobs is None or None in logprobs or len(ids) != len(logprobs):
            raise EndpointError(
                "The endpoint gave no token ids with log-probs (return_token_ids): what it samples "
                "cannot be trained on. vLLM 0.10.2 and later can."
            )
        return SampledTurn(
            sequence,
            ids,
            logprobs,
            [self._version] * len(ids),
            bool(ids) and ids[-1] == self._end_id,
        )
