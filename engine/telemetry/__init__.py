"""From a training process to the control plane: a capped spool on disk, and what ships it."""
