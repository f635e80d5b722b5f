// Softmax cross entropy over rows; a block for each row. A class out of range makes the loss NaN.
#include "common.cu"

#define CROSS_ENTROPY(T, A, name, I, index)                                                                       \
  extern "C" __global__ void cross_entropy_##name##_##index(const T* y, const I* t, A* probability, A* losses,    \
                                                            long long classes) {                                  \
    __shared__ A shared[BLOCK];                                                                                   \
    const T* row = y + blockIdx.x * classes;                                                                      \
    A* out = probability + blockIdx.x * classes;                                                                  \
    A most = (A)row[0];                                                                                           \
    for (long long c = threadIdx.x; c < classes; c += BLOCK)                                                      \
      if ((A)row[c] > most || (A)row[c] != (A)row[c]) most = (A)row[c];                                           \
    most = block_max(most, shared);                                                                               \
    A sum = 0;                                                                                                    \
    for (long long c = threadIdx.x; c < classes; c += BLOCK) {                                                    \
      out[c] = exp((A)row[c] - most);                                                                             \
      sum += out[c];                                                                                              \
    }                                                                                                             \
    sum = block_sum(sum, shared);                                                                                 \
    for (long long c = threadIdx.x; c < classes; c += BLOCK) out[c] /= sum;                                       \
    if (threadIdx.x == 0) {                                                                                       \
      long long right = (long long)t[blockIdx.x];                                                                 \
      losses[blockIdx.x] = right >= 0 && right < classes ? log(sum) - ((A)row[right] - most) : (A)NOT_A_NUMBER;   \
    }                                                                                                             \
  }                                                                                                               \
  extern "C" __global__ void cross_entropy_gradient_##name##_##index(                                             \
      const A* gloss, const A* probability, const I* t, T* gy, long long classes, long long count, double rows) { \
    long long k = THREAD;                                                                                         \
    if (k < count) {                                                                                              \
      A scale = *gloss / (A)rows;                                                                                 \
      gy[k] = probability[k] * scale - (k % classes == (long long)t[k / classes] ? scale : (A)0);                 \
    }                                                                                                             \
  }

#define MEAN(T, name)                                                                                    \
  extern "C" __global__ void sum_over_##name(const T* values, T* out, long long count, double divisor) { \
    __shared__ T shared[BLOCK];                                                                          \
    T sum = 0;                                                                                           \
    for (long long k = threadIdx.x; k < count; k += BLOCK) sum += values[k];                             \
    sum = block_sum(sum, shared);                                                                        \
    if (threadIdx.x == 0) *out = sum / (T)divisor;                                                       \
  }

#define CROSS_ENTROPY_OF(T, A, name)    \
  CROSS_ENTROPY(T, A, name, int, int32) \
  CROSS_ENTROPY(T, A, name, long long, int64)
FOR_ALL_TYPES(CROSS_ENTROPY_OF)
MEAN(float, float32)
MEAN(double, float64)
