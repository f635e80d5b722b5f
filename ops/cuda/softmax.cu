// Softmax cross entropy over rows, a block for each row; of the softmax, only one number of each row is kept: the logarithm
// of its sum of exponentials, or nothing where the gradient is made at once. Scores behind `classes` are padding. A class out of range makes the loss NaN.
#include "common.cu"

// The largest score of a row, and the sum of exponentials of what the others are less. It is read once: a sum is scaled
// when a larger score comes.
template <int THREADS, typename A, typename T>
static __device__ A sum_of_row(const T* row, int classes, A& largest_of_row) {
  __shared__ A shared[THREADS / 32];
  A most = -(A)(1 / 0.0), sum = 0;
  each_of_row<THREADS>(row, 0, classes, [&](int c, auto count) {
    auto scores = read_pack<decltype(count)::value>(row + c);
    A largest = most;
    for (int n = 0; n < count.value; ++n)
      if ((A)scores.values[n] > largest) largest = scores.values[n];
    if (largest > most) sum *= exp(most - largest);
    most = largest;
    for (int n = 0; n < count.value; ++n)
      if ((A)scores.values[n] != -(A)(1 / 0.0)) sum += exp((A)scores.values[n] - most);
  });
  largest_of_row = block_max<THREADS>(most, shared);
  return block_sum<THREADS>(most == largest_of_row ? sum : (A)(sum * exp(most - largest_of_row)), shared);
}

// The gradient of a row of scores: `scale` times its softmax, less `scale` for the right one.
template <int THREADS, typename A, typename T>
static __device__ void slopes_of_row(const T* row, T* out, int width, int classes, A level, A scale, long long right) {
  each_of_row<THREADS>(row, apart<T>(row, out), width, [&](int c, auto count) {
    auto scores = read_pack<decltype(count)::value>(row + c);
    for (int n = 0; n < count.value; ++n) {
      A share = c + n < classes ? exp((A)scores.values[n] - level) : (A)0;
      scores.values[n] = share * scale - (c + n == right ? scale : (A)0);
    }
    *(decltype(scores)*)(out + c) = scores;
  });
}

#define CROSS_ENTROPY(T, A, name, I, index)                                                                       \
  extern "C" __global__ void cross_entropy_##name##_##index(const T* y, const I* t, A* levels, A* losses,         \
                                                            int width, int classes) {                             \
    const T* row = y + (long long)blockIdx.x * width;                                                             \
    A largest, sum = sum_of_row<BLOCK>(row, classes, largest);                                                    \
    if (threadIdx.x) return;                                                                                      \
    long long right = (long long)t[blockIdx.x];                                                                   \
    levels[blockIdx.x] = largest + log(sum);                                                                      \
    losses[blockIdx.x] = right >= 0 && right < classes ? log(sum) - ((A)row[right] - largest) : (A)NOT_A_NUMBER;  \
  }                                                                                                               \
  extern "C" __global__ void cross_entropy_gradient_##name##_##index(const A* gloss, const T* y, const A* levels, \
                                                                     const I* t, T* gy, int width,                \
                                                                     int classes, double rows) {                  \
    long long first = (long long)blockIdx.x * width;                                                              \
    slopes_of_row<BLOCK>(y + first, gy + first, width, classes, levels[blockIdx.x], *gloss / (A)rows,             \
                         (long long)t[blockIdx.x]);                                                               \
  }                                                                                                               \
  CROSS_ENTROPY_BOTH(T, A, name, I, index, 256)                                                                   \
  CROSS_ENTROPY_BOTH(T, A, name, I, index, 1024)

// Loss and gradient at once: of wide rows by blocks of 1024 threads, so that those at work have so few rows that these are
// in the L2 cache when they are read again.
#define CROSS_ENTROPY_BOTH(T, A, name, I, index, THREADS)                                                \
  extern "C" __global__ void __launch_bounds__(THREADS) cross_entropy_both_##THREADS##_##name##_##index( \
      const T* y, const I* t, const A* gloss, A* losses, T* gy, int width, int classes, double rows) {   \
    long long first = (long long)blockIdx.x * width, right = (long long)t[blockIdx.x];                   \
    A largest, sum = sum_of_row<THREADS>(y + first, classes, largest), level = largest + log(sum);       \
    if (threadIdx.x == 0)                                                                                \
      losses[blockIdx.x] =                                                                               \
          right >= 0 && right < classes ? log(sum) - ((A)y[first + right] - largest) : (A)NOT_A_NUMBER;  \
    slopes_of_row<THREADS>(y + first, gy + first, width, classes, level, *gloss / (A)rows, right);       \
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
