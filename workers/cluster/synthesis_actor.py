"""The synthesise stage as a Ray actor: a process of its own, whose memory ends with it."""

import uuid
from dataclasses import replace
from typing import Any

from engine.records.texts import whole_texts
from engine.spec import ExperimentSpec
from workers.cluster import limits, synthesised
from workers.cluster.reporting import Address
from workers.cluster.storage import RunStorage

SHOWN_DEMONSTRATIONS = 100  # stored as trajectories, for people to look at


class SynthesisActor:
    def make(self, spec: str, place: str, address: Address) -> dict[str, Any]:
        """Synthesise onto the run's storage at `place`; `spec` is JSON. Returns the summary."""
        from engine.synthesis import synthesise

        storage, reporter = RunStorage(place), address.reporter("synthesis")
        said = ""

        def progress(done: int, total: int, what: str) -> None:
            nonlocal said
            if what != said or done == total:
                said = what
                reporter.log(
                    f"synthesise: {what}" + (f" {done:,} of {total:,}" if total > 1 else "")
                )

        try:
            made = synthesise(ExperimentSpec.model_validate_json(spec), progress)
            summary = synthesised.save(storage.path(synthesised.FOLDER), made)
            storage.publish(synthesised.FOLDER)
            for demonstration in made.demonstrations[:SHOWN_DEMONSTRATIONS]:
                (segment,) = demonstration.segments
                texts = whole_texts(made.tokenizer.token_bytes(segment.ids))
                # Other runs of this seed make the same demonstrations; what is stored is one run's.
                stored = replace(
                    demonstration, id=uuid.uuid4().hex, segments=[replace(segment, texts=texts)]
                )
                reporter.keeper.add_group([stored])
            return summary
        finally:
            reporter.close(limits.SHIP_S)
