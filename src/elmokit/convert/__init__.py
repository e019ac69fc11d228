"""Readers and writers of other formats, one module each."""
