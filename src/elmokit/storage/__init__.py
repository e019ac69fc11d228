"""Files on disk: atomic writes, locks, manifests, tensor files, fingerprints."""
