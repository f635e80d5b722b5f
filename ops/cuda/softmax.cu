// Softmax cross entropy over rows, a block for each row; of the softmax, only one number of each row is kept: the logarithm
// of its sum of exponentials. Scores behind `classes` are padding. A class out of range makes the loss NaN.
#include "common.cu"

#define CROSS_ENTROPY(T, A, name, I, index)                                                                       \
  /* A row is read once: a sum of exponentials is scaled when a larger score comes. */                            \
  extern "C" __global__ void cross_entropy_##name##_##index(const T* y, const I* t, A* levels, A* losses,         \
                                                            int width, int classes) {                             \
    __shared__ A shared[BLOCK / 32];                                                                              \
    const T* row = y + (long long)blockIdx.x * width;                                                             \
    A most = -(A)(1 / 0.0), sum = 0;                                                                              \
    each_of_row(row, 0, classes, [&](int c, auto count) {                                                         \
      auto scores = read_pack<decltype(count)::value>(row + c);                                                   \
      A largest = most;                                                                                           \
      for (int n = 0; n < count.value; ++n)                                                                       \
        if ((A)scores.values[n] > largest) largest = scores.values[n];                                            \
      if (largest > most) sum *= exp(most - largest);                                                             \
      most = largest;                                                                                             \
      for (int n = 0; n < count.value; ++n)                                                                       \
        if ((A)scores.values[n] != -(A)(1 / 0.0)) sum += exp((A)scores.values[n] - most);                         \
    });                                                                                                           \
    A largest = block_max(most, shared);                                                                          \
    sum = block_sum(most == largest ? sum : (A)(sum * exp(most - largest)), shared);                              \
    if (threadIdx.x) return;                                                                                      \
    long long right = (long long)t[blockIdx.x];                                                                   \
    levels[blockIdx.x] = largest + log(sum);                                                                      \
    losses[blockIdx.x] = right >= 0 && right < classes ? log(sum) - ((A)row[right] - largest) : (A)NOT_A_NUMBER;  \
  }                                                                                                               \
  extern "C" __global__ void cross_entropy_gradient_##name##_##index(const A* gloss, const T* y, const A* levels, \
                                                                     const I* t, T* gy, int width,                \
                                                                     int classes, double rows) {                  \
    long long first = (long long)blockIdx.x * width, right = (long long)t[blockIdx.x];                            \
    A scale = *gloss / (A)rows, level = levels[blockIdx.x];                                                       \
    each_of_row(y + first, apart<T>(y + first, gy + first), width, [&](int c, auto count) {                       \
      auto scores = read_pack<decltype(count)::value>(y + first + c);                                             \
      for (int n = 0; n < count.value; ++n) {                                                                     \
        A share = c + n < classes ? exp((A)scores.values[n] - level) : (A)0;                                      \
        scores.values[n] = share * scale - (c + n == right ? scale : (A)0);                                       \
      }                                                                                                           \
      *(decltype(scores)*)(gy + first + c) = scores;                                                              \
    });                                                                                                           \
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
