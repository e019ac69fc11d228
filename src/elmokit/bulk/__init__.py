"""Embed corpora: vector files, directories of shards, resumable runs, processes and clusters."""
