"""Atomic writes, locks, manifests, tensor files and fingerprints."""
