"""Fast implementations of the reference modules, for GPUs and for CPUs (`cpu_*`).

Tests compare each kernel with its reference implementation. GPU kernels require Triton. CPU
kernels require only torch, but are faster in int8 if a C compiler is installed.
"""
