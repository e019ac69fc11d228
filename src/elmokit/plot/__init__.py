"""Pictures of what the layers know, without a server.

drawing       shapes on a sheet of paper; `svg` writes them by itself, `png` by matplotlib
senses        one word in many sentences, a plane for each layer
similarity    every token of a sentence against every token of another
layers        the weights that task models learned (Figure 2 of the paper)
surprise      how much each token surprises the two language models
files         to a file, whose suffix says what kind
"""
