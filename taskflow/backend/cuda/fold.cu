// What kernels of folds share (see folding.py). NaN is the maximum, as in NumPy.
#include "types.cu"

template <typename A>
static __device__ A combine_sum(A total, A value) {
  return total + value;
}

template <typename A>
static __device__ A combine_max(A total, A value) {
  return value > total || value != value ? value : total;
}
