#!/usr/bin/env bash
# A GPU for 15 minutes in all: benchmarks/gpu_minutes.sh correct | correct --failed | fast 1 | fast 2 [--stand-in]
#   correct           operators in five precisions, laws, ranks by each carrier, memcheck and racecheck, models: 3 minutes
#   correct --failed  what failed in the last `correct`, alone: 90 s
#   fast 1, fast 2    steps beside PyTorch's best, host, copies, predictions, where the time goes: 2 minutes each
# `benchmarks/gpu_minutes.py` has the parts; each run leaves a text and a JSON file in $OUT (benchmarks/results).
# --stand-in: NumPy in the place of a GPU, and tiny sizes. Wheels in wheels/ are installed first, offline. PYTHON: the
# interpreter; default: that of .venv, if there is one, else python3.
set -uo pipefail
cd "$(dirname "$0")/.."
[ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ] && PYTHON=.venv/bin/python
python=${PYTHON:-python3}
mkdir -p .cache
export PYTHONPATH=$PWD CUPY_CACHE_DIR=$PWD/.cache/cupy TORCHINDUCTOR_CACHE_DIR=$PWD/.cache/inductor
export NUMBA_CACHE_DIR=${NUMBA_CACHE_DIR:-$PWD/.cache/numba}
set -a; . taskflow/comm/mpi.env; set +a
unset OMP_NUM_THREADS # of ranks that share cores; one GPU has all of them
if compgen -G "wheels/*.whl" > /dev/null; then "$python" -m pip install --quiet --no-index --no-deps wheels/*.whl; fi
exec "$python" benchmarks/gpu_minutes.py --out "${OUT:-benchmarks/results}" "$@"
