"""Integrations with other libraries; each module needs the extra of its name.

spacy         a pipeline component `elmokit`: vectors of spaCy's tokens
sklearn       `ElmoVectorizer`, a transformer for scikit-learn pipelines
gensim        `KeyedVectors` of words, from layer 0 or averaged over a corpus
flair         `ElmoEmbeddings`, token embeddings for flair
sentence_transformers  `ElmoTokens`, the first module of a SentenceTransformer
hub           model directories for the Hugging Face Hub (`elmokit.load("hf://user/model")`)
arrow         vectors as zero-copy Arrow columns, for pandas and polars
named         a reference to a model, which is loaded on first use
"""
