"""Metrics, identical to the official scripts."""
