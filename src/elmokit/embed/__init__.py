"""Embed sentences: models, batching, the token cache, layer selection, scores and substitutes."""
