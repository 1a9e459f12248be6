"""Several runs beside each other: which, side by side on all cores, and what may be said of the differences."""
