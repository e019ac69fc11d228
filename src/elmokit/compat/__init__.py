"""The names of other packages over our modules, for code that was written for them."""
