"""Read text files, split text into sentences and tokens, and read vocabularies."""
