#!/usr/bin/env bash
# The first hour on a GPU in four commands, each within ten minutes: benchmarks/gpu_hour.sh 1|2|3|4
#   1  what there is, and whether the numbers are NumPy's     2  times of steps, beside PyTorch
#   3  numbers: ranks, predictions, overlap, curves           4  ranks on one GPU by every carrier; races and addresses
# Each part has a time of its own, and the next one runs whatever became of it. All that is printed stands in
# $OUT/gpu_hour_N.txt as well (OUT: benchmarks/results), with the exit status of each part. Wheels in wheels/ are
# installed first, offline. PYTHON: the interpreter; default: that of .venv, if there is one, else python3.
set -uo pipefail
cd "$(dirname "$0")/.."
number=${1:-} WHOLE_SECONDS=590
case $number in 1|2|3|4) ;; *) sed -n 2,7p "$0" >&2; exit 2 ;; esac
out=${OUT:-benchmarks/results}
mkdir -p "$out" .cache
[ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ] && PYTHON=.venv/bin/python
python=${PYTHON:-python3} file=$out/gpu_hour_$number.txt
exec > >(tee "$file") 2>&1
export PYTHONPATH=$PWD CUPY_CACHE_DIR=$PWD/.cache/cupy NUMBA_CACHE_DIR=$PWD/.cache/numba
set -a; . taskflow/comm/mpi.env; set +a
unset OMP_NUM_THREADS # of ranks that share cores; one GPU has all of them

failed=0
# part SECONDS COMMAND...: what it prints, how long it took, how it ended; nothing stops here.
part() {
  local left=$((WHOLE_SECONDS - SECONDS)) limit=$1 begin=$SECONDS status
  shift
  [ "$left" -lt 5 ] && { echo "== $*: not run, the ten minutes are over"; failed=1; return; }
  [ "$left" -lt "$limit" ] && limit=$left
  echo "== $*"
  timeout -k 5 "$limit" "$@" < /dev/null
  status=$?
  [ $status -eq 0 ] || failed=1
  echo "== ends with $status after $((SECONDS - begin)) of $limit s"
}
# Newer NumPy and older pytest warn of what is no fault here.
tests() { local limit=$1; shift; part "$limit" "$python" -m pytest -W default -o strict=false -p no:cacheprovider -q "$@"; }

if compgen -G "wheels/*.whl" > /dev/null; then part 60 "$python" -m pip install --quiet --no-index --no-deps wheels/*.whl; fi
part 20 "$python" -c 'import numpy, sys; print("Python", sys.version.split()[0], "NumPy", numpy.__version__)
for name in ("cupy", "cudnn", "numba", "hypothesis", "pytest", "torch", "ml_dtypes"):
    try: print(name, __import__(name).__version__)
    except Exception as error: print(name, "is not there:", error)
from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])'

case $number in
1)
  part 20 nvidia-smi
  part 60 "$python" -m taskflow machine --measure
  part 130 "$python" -m tests.gpu.references # on CPUs; none is made where they were carried along in .cache
  tests 120 tests/gpu -k "one_graph or allocate or profiler or timeline or short"
  tests 200 tests/gpu/test_laws.py -k numbers_of_numpy -n 8
  tests 100 tests/gpu/test_precisions.py -n 12
  ;;
2) part 580 "$python" benchmarks/gpu.py --parts speed --out "$out/gpu_speed.txt" ;;
3) part 580 "$python" benchmarks/gpu.py --parts numbers --out "$out/gpu_numbers.txt" ;;
4)
  tests 150 tests/gpu/test_ranks.py -k "auto or shared"
  tests 120 tests/gpu/test_ranks.py -k messages
  tests 120 tests/gpu/test_ranks.py -k nccl
  chosen="layer_norm or softmax or embedding"
  for tool in racecheck memcheck; do
    part 90 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$python" -m pytest -W default -o strict=false -p no:cacheprovider -q tests/gpu/test_laws.py -k "numbers_of_numpy and ($chosen)"
  done
  ;;
esac
echo "== all: $([ $failed -eq 0 ] && echo well || echo 'something failed, see above'); $SECONDS s; $file"
exit $failed
