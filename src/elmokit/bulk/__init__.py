"""Embedding corpora: files of vectors, shards, resumable work, many processes or machines."""
