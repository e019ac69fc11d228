"""Text as numbers for training: what a language model reads and what it should say next."""
