"""The `coterie` command: one module for each subcommand, which parses its arguments and calls the library."""
