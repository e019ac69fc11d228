"""ELMo in the tools that people already use, each imported only by whoever asks for it.

spacy         a pipe `elmokit`: vectors of spaCy's own tokens (extra `spacy`)
sklearn       `ElmoVectorizer`, a step of a scikit-learn pipeline (extra `sklearn`)
gensim        `KeyedVectors` of words, from layer 0 or averaged over a corpus (extra `gensim`)
flair         `ElmoEmbeddings`, token embeddings of flair (extra `flair`)
sentence_transformers  `ElmoTokens`, the first module of a SentenceTransformer (extra of that name)
hub           a model folder for the Hugging Face hub (`elmokit.load("hf://user/model")` reads one)
arrow         vectors as Arrow columns over the same memory, for pandas and polars (extra `arrow`)
layers        one vector per token: `layer` and `mix`, said alike everywhere
named         a model by its name, loaded when it is needed and shared within the process
"""
