// Dropout whose mask depends on the global index of an element and on the key of the step.
#include "taskflow/random.cu"
#include "common.cu"

#define DROPOUT(T, A, name)                                                                                     \
  extern "C" __global__ void dropout_##name(const T* x, T* y, const u64* key, TILE_MAP, double p, double scale, \
                                            long long count) {                                                  \
    long long k = THREAD;                                                                                       \
    if (k < count) y[k] = uniform_number(GLOBAL_INDEX(k), *key) >= p ? (A)x[k] * (A)scale : (A)x[k] * (A)0;     \
  }
FOR_ALL_TYPES(DROPOUT)
