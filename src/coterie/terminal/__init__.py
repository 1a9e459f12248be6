"""Output to the terminal: progress while something runs, and results at its end."""
