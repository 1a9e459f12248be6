"""Experiments as data: settings and their sections, presets and files, checks, and what a run was made with."""
