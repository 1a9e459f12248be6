"""Experiments as data: settings and their sections, presets and files, checks, and the provenance of a run."""
