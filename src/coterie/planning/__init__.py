"""`coterie plan`: predict a run's duration, memory and traffic before running it."""
