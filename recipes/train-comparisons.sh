#!/usr/bin/env bash
# Run the comparisons that the training defaults are based on: with and without restarts, AdamW and
# the paper's Adagrad for the same number of tokens, the original architecture, and training speed.
#
# Needs: one CUDA GPU, the text files (one paragraph per line, blank lines between documents) and a
# held-out file. Times on one H200: prepare 24 s (16 cores), each medium run 2.5 minutes, the
# original model 4 minutes, speed measurements 1 minute. Results: results/train/*.json,
# results/train-speed.json.
#
# Run as: bash recipes/train-comparisons.sh OUT HELD_OUT.txt TEXT.txt...
set -euo pipefail
out=$1 valid=$2
shift 2
mkdir -p "$out"
[ -d "$out/data" ] || elmo prepare "$@" --valid-file "$valid" --max-vocab 150000 -o "$out/data"

run() {
  local name=$1
  shift
  [ -f "$out/$name.eval.json" ] && return
  elmo train "$out/data" -o "$out/$name" --resume --warm-state --set log_every=100 "$@" --json \
    >"$out/$name.json"
  elmo perplexity "$out/data" --model "$out/$name/model" --state all --json >"$out/$name.eval.json"
}

# The defaults at the time of these runs. For later changes, see english.md.
old_defaults=(--set optimizer.beta2=0.999 --set optimizer.warmup=400)
medium=(--preset medium --max-tokens 120000000 --set evaluate_every=2000
  --set optimizer.learning_rate=2e-3 "${old_defaults[@]}")
run m-adamw-restart "${medium[@]}"
run m-adamw-norestart "${medium[@]}" --set restart=0.0
run m-adagrad "${medium[@]}" --set optimizer.kind=adagrad --set optimizer.learning_rate=0.2 \
  --set optimizer.warmup=1 --set optimizer.final=1.0 --set step.gradient_scale=20
run o-adamw --preset original --max-tokens 130000000 --set evaluate_every=0 \
  --set optimizer.learning_rate=1.2e-3 "${old_defaults[@]}"

elmo bench train --preset original --rows 128,512,1024,2048,3072 --data "$out/data" --json \
  >"$out/speed-original.json"
elmo bench train --preset medium --rows 128,1024,2048 --data "$out/data" --json \
  >"$out/speed-medium.json"
