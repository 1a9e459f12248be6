"""The simulation engine: all peers on a virtual clock, in one process, in several, or on a Ray cluster."""
