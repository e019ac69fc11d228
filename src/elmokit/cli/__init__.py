"""The `elmo` command: one thin file per subcommand, each over a function of the library."""
