"""How long a run will take, how much memory it needs and what it exchanges, before it is run: `coterie plan`."""
