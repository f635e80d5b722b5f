// Softmax cross entropy over rows; a block for each row. A class out of range makes the loss NaN.
#include "common.cu"

#define CROSS_ENTROPY(T, name, I, index)                                                                         \
  extern "C" __global__ void cross_entropy_##name##_##index(const T* y, const I* t, T* probability, T* losses,   \
                                                            long long classes) {                                 \
    __shared__ T shared[BLOCK];                                                                                  \
    const T* row = y + blockIdx.x * classes;                                                                     \
    T* out = probability + blockIdx.x * classes;                                                                 \
    T most = row[0];                                                                                             \
    for (long long c = threadIdx.x; c < classes; c += BLOCK)                                                     \
      if (row[c] > most || row[c] != row[c]) most = row[c];                                                      \
    most = block_max(most, shared);                                                                              \
    T sum = 0;                                                                                                   \
    for (long long c = threadIdx.x; c < classes; c += BLOCK) {                                                   \
      out[c] = exp(row[c] - most);                                                                               \
      sum += out[c];                                                                                             \
    }                                                                                                            \
    sum = block_sum(sum, shared);                                                                                \
    for (long long c = threadIdx.x; c < classes; c += BLOCK) out[c] /= sum;                                      \
    if (threadIdx.x == 0) {                                                                                      \
      long long right = (long long)t[blockIdx.x];                                                                \
      losses[blockIdx.x] = right >= 0 && right < classes ? log(sum) - (row[right] - most) : (T)NOT_A_NUMBER;              \
    }                                                                                                            \
  }                                                                                                              \
  extern "C" __global__ void cross_entropy_gradient_##name##_##index(                                            \
      const T* gloss, const T* probability, const I* t, T* gy, long long classes, long long count, double rows) { \
    long long k = THREAD;                                                                                        \
    if (k < count) {                                                                                             \
      T scale = *gloss / (T)rows;                                                                                \
      gy[k] = probability[k] * scale - (k % classes == (long long)t[k / classes] ? scale : (T)0);                \
    }                                                                                                            \
  }

#define MEAN(T, name)                                                                                        \
  extern "C" __global__ void sum_over_##name(const T* values, T* out, long long count, double divisor) {     \
    __shared__ T shared[BLOCK];                                                                              \
    T sum = 0;                                                                                               \
    for (long long k = threadIdx.x; k < count; k += BLOCK) sum += values[k];                                 \
    sum = block_sum(sum, shared);                                                                            \
    if (threadIdx.x == 0) *out = sum / (T)divisor;                                                           \
  }

CROSS_ENTROPY(float, float32, int, int32)
CROSS_ENTROPY(float, float32, long long, int64)
CROSS_ENTROPY(double, float64, int, int32)
CROSS_ENTROPY(double, float64, long long, int64)
MEAN(float, float32)
MEAN(double, float64)
