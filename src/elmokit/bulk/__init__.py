"""Embed corpora into vector files or directories of shards, in processes or on clusters."""
