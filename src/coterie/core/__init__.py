"""The building blocks of everything else: weights, models, artifacts, peers, requests. Imports nothing above it."""
