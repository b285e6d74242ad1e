#!/bin/bash
# Trains a run on several nodes, one torchrun on each. How to use it: docs/how-to/slurm.md.
#
#   sbatch --nodes=4 --gpus-per-node=8 deploy/slurm/train.sh runs/en-de --train train.en train.de \
#       --valid valid.en valid.de --set train.shards=32
#
# Needs `transduce` and `torchrun` in the PATH, and all paths on a disk that every node sees. Options of sbatch go before the
# script, options of `transduce train` after it. PROCESSES is the number of processes on each node: by default one for each GPU,
# or a single one without GPUs.
#
# A job that is preempted, or that comes within two minutes of its time limit, saves a checkpoint, goes back to the queue and
# resumes. The result is the same, bit for bit, as that of a job that was never interrupted.

#SBATCH --job-name=transduce-train
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120

set -uo pipefail

# SLURM sends this signal to the script before the time limit (and `scancel --batch --signal=USR1 JOB` does at any time).
requeue=
trap 'requeue=1; scancel --signal=TERM "$SLURM_JOB_ID"' USR1

# SLURM sends SIGTERM to the processes of a preempted job and requeues it when its grace time is over, unless the script has
# ended before: then the job has failed.
preempted() {
    scontrol show job --oneliner "$SLURM_JOB_ID" | grep -q ' PreemptTime=[0-9]'
}

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((20000 + SLURM_JOB_ID % 20000))

srun --kill-on-bad-exit=0 torchrun \
    --nnodes "$SLURM_NTASKS" --nproc-per-node "${PROCESSES:-${SLURM_GPUS_ON_NODE:-1}}" --max-restarts 3 \
    --rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}" \
    -m transduce train "$@" &
training=$!

# `wait` also returns when the signal arrives; the processes then need a while to save.
wait "$training"
status=$?
while kill -0 "$training" 2>/dev/null; do
    wait "$training"
    status=$?
done

if [ "$status" -ne 0 ] && { [ -n "$requeue" ] || preempted; }; then
    echo "train.sh: stopped by SLURM; back to the queue"
    exec scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
