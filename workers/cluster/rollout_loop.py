"""What a rollout worker samples with: a model that waits for its weights, in its environment."""

from typing import TYPE_CHECKING

from engine.spec import ExperimentSpec

if TYPE_CHECKING:
    from engine.rollout.agent_loop import AgentLoop
    from engine.synthesis import Tokenizer

# torch is imported where it is used: the driver imports this module and must stay small.


def make_loop(spec: ExperimentSpec, tokenizer: "Tokenizer", worker: str, seed: int) -> "AgentLoop":
    """`worker`: as which its trajectories name it. The weights are of version -1, which is none."""
    import torch

    from engine.environments.kg_search import KgSearch, task_graph
    from engine.models.hybrid import HybridConfig, HybridForCausalLM
    from engine.rollout.agent_loop import AgentLoop
    from engine.rollout.torch_sampler import TorchSampler
    from engine.training.precision import choose_precision

    torch.set_num_threads(1)
    config = HybridConfig.from_spec(
        spec.model, tokenizer.vocab_size, tokenizer.pad_id, tokenizer.end_id
    )
    model = HybridForCausalLM(config)
    dtype, _ = choose_precision(spec.trainer.precision)
    sampler = TorchSampler(
        model if dtype == torch.float32 else model.body_(dtype),
        end_id=tokenizer.end_id,
        capacity=spec.rollout.slots,
        max_tokens=spec.environment.max_tokens,
        seed=seed,
        version=-1,
    )
    environment = KgSearch(task_graph(spec.environment.graph.cities), spec.environment)
    return AgentLoop(sampler, environment, tokenizer, spec.reward, spec.environment, worker)
