"""The metrics of the package. A module declares one or more in METRICS; every module here is found."""
