"""The tables and figures of the papers, run again, with the paper's figures beside ours."""
