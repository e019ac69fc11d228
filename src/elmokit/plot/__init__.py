"""Figures that show what the layers and the language models represent, drawn with matplotlib.

figure        base class of the figures, and output as SVG, PNG or PDF files
plane         projection to two dimensions, and clustering (scikit-learn)
senses        scatter plots of the uses of a word, one panel per layer
similarity    heat maps of the similarity between the tokens of two sentences
layers        layer weights that task models have learned (Figure 2 of the paper)
surprise      surprisal of each token under both language models
"""
