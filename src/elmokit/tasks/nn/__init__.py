"""Modules shared by task models."""
