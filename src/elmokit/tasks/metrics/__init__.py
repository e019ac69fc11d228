"""Metrics that match the official scripts."""
