"""Figures of what the layers know, drawn with matplotlib.

figure        what they share; to a file, whose suffix says which format
plane         points on a plane, and their clusters (scikit-learn)
senses        one word in many sentences, a plane for each layer
similarity    every token of a sentence against every token of another
layers        the weights that task models learned (Figure 2 of the paper)
surprise      how much each token surprises the two language models
"""
