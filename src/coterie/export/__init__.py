"""What a run leaves to be used: every peer's model with all that is needed to predict with it, or to take it away."""
