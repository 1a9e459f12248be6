"""What everything else is built from: weights, models, artifacts, a peer and its requests. Knows nobody above it."""
