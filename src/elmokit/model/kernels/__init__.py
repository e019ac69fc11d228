"""Fast implementations of the reference modules, for GPUs and (`cpu_*`) for CPUs.

Each has a parity test. GPU kernels need Triton. CPU kernels need only torch; a C compiler makes
them faster.
"""
