"""From sentences to vectors: the object users hold, its batching and cache, and vector files."""
