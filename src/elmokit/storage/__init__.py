"""Atomic writes, locks, manifests, fingerprints, and HDF5 and tensor files."""
