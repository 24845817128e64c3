"""Why a run ended, in one line for people."""

from ray.core.generated.common_pb2 import ActorDiedErrorContext
from ray.exceptions import ActorDiedError

from workers.cluster.driver import reason


def test_it_says_which_part_of_a_run_died() -> None:
    context = ActorDiedErrorContext(class_name="TrainerActor", actor_id=b"a" * 16)
    assert reason(ActorDiedError(context)).startswith("A trainer died.")
    assert reason(ActorDiedError()).startswith("An actor of the run died.")
