// Dropout and Gumbel noise, which depend on the global index of an element and on the key of the step.
#include "taskflow/random.cu"
#include "common.cu"

#define TINY 5.551115123125783e-17  // 2^-54, in the place of 0
#define DROPOUT(T, A, name)                                                                                     \
  extern "C" __global__ void dropout_##name(const T* x, T* y, const u64* key, TILE_MAP, double p, double scale, \
                                            long long count) {                                                  \
    long long k = THREAD;                                                                                       \
    if (k < count) y[k] = uniform_number(GLOBAL_INDEX(k), *key) >= p ? (A)x[k] * (A)scale : (A)x[k] * (A)0;     \
  }                                                                                                             \
  extern "C" __global__ void gumbel_##name(const T* x, T* y, const u64* key, TILE_MAP, long long count) {       \
    long long k = THREAD;                                                                                       \
    if (k < count) y[k] = (A)x[k] - (A)log(-log(fmax(uniform_number(GLOBAL_INDEX(k), *key), TINY)));            \
  }
FOR_ALL_TYPES(DROPOUT)
