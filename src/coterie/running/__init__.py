"""Runs of all kinds (simulated, one real peer, a circle on one machine) and the folders that they write."""
