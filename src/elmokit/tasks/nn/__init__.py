"""Parts that task models share."""
