"""Compare several methods or settings: plan the runs, run them in parallel, and test the differences."""
