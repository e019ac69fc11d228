"""Integrations with other libraries. Most modules require the extra with the same name.

spacy         the pipeline component `elmokit`, which computes vectors for spaCy's tokens
sklearn       `ElmoVectorizer`, a transformer for scikit-learn pipelines
gensim        `KeyedVectors` with one vector per word: layer 0, or the average over a corpus
flair         `ElmoEmbeddings`, token embeddings for flair
sentence_transformers  `ElmoTokens`, the first module of a SentenceTransformer
hub           model directories for the Hugging Face Hub
arrow         vectors as zero-copy Arrow columns, for pandas and polars
named         references to models that are loaded on first use
"""
