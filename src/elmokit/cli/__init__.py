"""The `elmo` command: one module per subcommand, each a thin wrapper around a library function."""
