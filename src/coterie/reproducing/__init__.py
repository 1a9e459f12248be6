"""Reproduce the papers' tables and figures, with the paper's figures beside ours."""
