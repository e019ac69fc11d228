"""Fast twins of plain modules, for a GPU and (`cpu_*`) for a CPU, each with a parity test.

Those for a GPU need Triton; those for a CPU need nothing but torch, and a C compiler at best.
"""
