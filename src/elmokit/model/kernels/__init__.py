"""Fast twins of plain modules, for training on a GPU. Each has a parity test against its twin."""
