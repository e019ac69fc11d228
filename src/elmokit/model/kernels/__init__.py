"""Fast implementations of the reference modules, for GPUs and for CPUs (`cpu_*`).

Tests compare each kernel with its reference implementation. GPU kernels need Triton. CPU kernels
need only torch, but are faster if a C compiler is installed.
"""
