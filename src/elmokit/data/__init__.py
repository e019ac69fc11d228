"""Prepare text for training, and read prepared corpora."""
