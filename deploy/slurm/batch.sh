#!/bin/bash
# Translates a corpus as a SLURM array: each task takes every n-th shard. How to use it: docs/how-to/slurm.md.
#
#   transduce batch RUN INPUT... --output DIR --prepare
#   job=$(sbatch --parsable --array=0-15 deploy/slurm/batch.sh RUN INPUT... --output DIR)
#   sbatch --dependency=afterok:"$job" --wrap "transduce batch --output DIR --verify --collect FILE"
#
# Needs `transduce` in the PATH, and all paths on a disk that every node sees. Options of sbatch go before the script
# (--gpus=1, --partition=...), options of `transduce batch` after it.

#SBATCH --job-name=transduce-batch
#SBATCH --array=0-15
#SBATCH --output=%x-%A-%a.log
#SBATCH --open-mode=append
#SBATCH --requeue

set -euo pipefail

if [ "$SLURM_ARRAY_TASK_MIN" != 0 ] || [ "$SLURM_ARRAY_TASK_COUNT" != $((SLURM_ARRAY_TASK_MAX + 1)) ]; then
    echo "batch.sh: the array must be numbered 0 to n-1; to repeat tasks that failed, submit the whole array again" >&2
    exit 2
fi

exec transduce batch "$@" --shard "$SLURM_ARRAY_TASK_ID" --shards "$SLURM_ARRAY_TASK_COUNT"
