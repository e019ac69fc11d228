"""Prepare text for training: inputs and targets of the language models as ids."""
