"""The command: one file for each subcommand, which turns arguments into calls."""
