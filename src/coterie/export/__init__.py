"""Use the models of a finished run: predict with a peer's model, or export it."""
