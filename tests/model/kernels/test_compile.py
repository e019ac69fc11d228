"""Compile all Triton kernels for a Hopper GPU; this requires Triton, but no GPU.

The interpreter, which the other tests use, accepts code that the compiler rejects. A child process
runs a training step and a reader in which each kernel launch is replaced by a compilation for the
types and constants of that launch. The results of the kernels are never used.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPECTED = {
    "elmokit.model.kernels.charcnn",
    "elmokit.model.kernels.cuda_engine",
    "elmokit.model.kernels.pointwise",
    "elmokit.model.kernels.sampled_softmax",
    "elmokit.train.fused",
}


@pytest.mark.slow
@pytest.mark.ci
def test_all_kernels_compile_for_sm_90(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")
    # bfloat16 products kill the process on CPUs that advertise AMX without providing it.
    env = {
        **os.environ,
        "TRITON_CACHE_DIR": str(tmp_path),
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
    }
    env.pop("TRITON_INTERPRET", None)
    child = subprocess.run(
        [sys.executable, "-m", "tests.model.kernels.test_compile"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr
    compiled = set(child.stdout.split())
    assert {name.rpartition(".")[0] for name in compiled} == EXPECTED
    assert len(compiled) >= 13


def _compile_launches() -> None:
    """Replace kernel launches by compilations that print the name of the kernel."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

    pointers = {
        torch.float32: "*fp32",
        torch.bfloat16: "*bf16",
        torch.float16: "*fp16",
        torch.int64: "*i64",
        torch.int32: "*i32",
        torch.int16: "*i16",
        torch.uint8: "*u8",
        torch.bool: "*i1",
    }

    def compile_kernel(
        kernel: JITFunction, *args: object, grid: object, warmup: bool, **kwargs: object
    ) -> None:
        options = {k: kwargs.pop(k) for k in ("num_warps", "num_stages") if k in kwargs}
        bound = kernel.signature.bind(*args, **kwargs)
        constants = {p.name: bound.arguments[p.name] for p in kernel.params if p.is_constexpr}
        signature = {}
        for name, value in bound.arguments.items():
            if name in constants:
                signature[name] = "constexpr"
            elif isinstance(value, torch.Tensor):
                signature[name] = pointers[value.dtype]
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
        source = ASTSource(kernel, signature, constants)
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        print(f"{kernel.fn.__module__}.{kernel.__name__}")  # noqa: T201

    JITFunction.run = compile_kernel


def _launch_all_kernels() -> None:
    import numpy as np
    import torch

    from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
    from elmokit.data.streams import Streams
    from elmokit.model.bilm import BiLM
    from elmokit.model.chars import char_ids_table
    from elmokit.model.kernels.cuda_engine import CudaEngine
    from elmokit.model.packing import Packing
    from elmokit.model.softmax import LMHead
    from elmokit.train.batches import make_batch, needed_columns
    from elmokit.train.fast import FastStep
    from elmokit.train.optimizer import OptimizerConfig
    from elmokit.train.step import StepConfig
    from tests.data.test_streams import corpus

    config = BiLMConfig(
        LstmConfig(12, 8, 2, 0.5, 0.4),
        CharCnnConfig(embedding_dim=4, filters=((1, 4), (2, 6), (3, 6)), n_highway=1),
    )
    words = ["<S>", "</S>", "<UNK>", *(f"word{i}" * (1 + i % 6) for i in range(90))]
    chars = char_ids_table(words).astype(np.uint16)
    batches = Streams(*corpus(), rows=2, steps=2, restart=0.3)
    for dtype in (torch.float32, torch.bfloat16):
        step = FastStep(
            BiLM(config),
            LMHead(60, 8),
            chars,
            StepConfig(rows=2, steps=2, negatives=20, dropout=0.1),
            OptimizerConfig(kind="adamw"),
            dtype=dtype,
        )
        step(make_batch(next(batches), needed_columns(chars, 3), 60), 0, 0.01)
        engine = CudaEngine(BiLM(config).eval().requires_grad_(False), dtype)
        packing = Packing.of([3, 5, 1])
        engine.contextualize(torch.zeros(packing.n_tokens, 8), packing)
        engine.encode(torch.from_numpy(chars[:9]).long())


if __name__ == "__main__":
    _compile_launches()
    _launch_all_kernels()
