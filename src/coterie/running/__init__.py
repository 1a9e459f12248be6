"""Runs from beginning to end: simulated, as real peers, or as a circle on one machine; and what their folders hold."""
