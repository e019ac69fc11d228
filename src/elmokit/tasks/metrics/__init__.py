"""Scores that equal the official ones."""
