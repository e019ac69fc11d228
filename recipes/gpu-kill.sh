#!/usr/bin/env bash
# Compare two training runs on a GPU: one that is killed with SIGKILL after step 33 and resumed from
# the checkpoint of step 20, and one without interruption. Losses and weights must be bit-identical.
#
# Needs: one CUDA GPU and any text of about 2 MB. This takes a minute on one H200 (2026-11-15: 60 of 60
# losses and all weights identical).
#
# Run as: bash recipes/gpu-kill.sh OUT TEXT.txt
set -euo pipefail
out=$1 text=$2
export CUBLAS_WORKSPACE_CONFIG=:4096:8 # required by PyTorch for deterministic results
mkdir -p "$out"
[ -d "$out/data" ] || elmo prepare "$text" --valid 0.05 -o "$out/data"
settings=(--preset small --max-steps 60 --deterministic --set log_every=1 --set evaluate_every=0
  --set step.rows=64 --set step.negatives=1024)

elmo train "$out/data" -o "$out/whole" "${settings[@]}" --quiet
elmo train "$out/data" -o "$out/killed" "${settings[@]}" --set checkpoint_every=20 2>"$out/killed.log" &
run=$!
until grep -q "^step 33/" "$out/killed.log"; do sleep 0.05; done
kill -9 "$run"
elmo train "$out/data" -o "$out/killed" "${settings[@]}" --set checkpoint_every=20 --resume --quiet

python - "$out" <<'PY'
import json
import sys
from pathlib import Path

from safetensors.numpy import load_file

out = Path(sys.argv[1])
runs = [out / "whole", out / "killed"]
losses = [
    [
        (v["step"], v["sampled_loss_forward"], v["sampled_loss_backward"])
        for v in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
        if "sampled_loss_forward" in v
    ]
    for run in runs
]
a, b = (load_file(run / "model" / "model.safetensors") for run in runs)
same = all((a[name] == b[name]).all() for name in a)
print(f"{len(losses[0])} losses identical: {losses[0] == losses[1]}; weights identical: {same}")
sys.exit(not (same and losses[0] == losses[1]))
PY
