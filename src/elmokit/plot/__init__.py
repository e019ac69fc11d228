"""Figures of the layers and the language models, drawn with matplotlib.

figure        the base class of all figures; writing them to SVG or PNG files
plane         projection to two dimensions, and clusters (scikit-learn)
senses        the uses of a word, one panel per layer
similarity    heat maps of the similarity between the tokens of two sentences
layers        the layer weights that task models learned (Figure 2 of the paper)
surprise      the surprisal of each token under both language models
"""
