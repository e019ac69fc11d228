"""Raw text -> sentences -> tokens (offsets kept), and the vocabulary of the language model head."""
