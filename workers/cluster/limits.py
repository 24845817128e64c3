"""The longest each wait of a run may take, in seconds. What is over its limit fails the run."""

REDEEM_S = 120  # ingest answers the ticket
START_S = 300  # Ray places an actor, which loads its model
SYNTHESISE_S = 3600  # the synthesise stage
STEP_S = 1800  # one training step, or a few of supervised learning
BATCH_S = 1800  # rollouts make one batch, without the time of pauses and evaluations
EVALUATE_S = 1800  # one evaluation, for each trial of a task
SAVE_S = 600  # a checkpoint is written
PUBLISH_S = 600  # weights go into the object store, or come out of it
CALL_S = 60  # an actor answers a control call
SHIP_S = 20  # telemetry is shipped at the end
OUTAGE_S = 1800  # a finished run waits for a web tier that is away
FINISH_S = 30  # ingest takes the news of the end, once it was given time for the rest

HEARTBEAT_S = 3.0
LONG_POLL_S = 1.0  # a call that waits for something returns after so long with nothing
