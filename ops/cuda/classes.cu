// Classes of rows, a block for each row: sums of the cross entropy and their gradient, places before the right class, the
// largest in order. A task has the classes from `lo` on.
#include "common.cu"

#define ENTROPY(T, A, name, I, index)                                                                                \
  /* A row whose class is out of 0..classes - 1 and not `ignored` is NaN; a class of another task counts nothing. */ \
  extern "C" __global__ void entropy_sums_##name##_##index(const T* y, const A* largest, const I* t, A* total,       \
                                                           A* right, long long lo, long long width,                  \
                                                           long long classes, long long has_ignored,                 \
                                                           long long ignored, double smoothing) {                    \
    __shared__ A shared[BLOCK];                                                                                      \
    const T* row = y + blockIdx.x * width;                                                                           \
    A most = largest[blockIdx.x], sum = 0, less = 0;                                                                 \
    for (long long c = threadIdx.x; c < width; c += BLOCK) {                                                         \
      sum += exp((A)row[c] - most);                                                                                  \
      less += (A)row[c] - most;                                                                                      \
    }                                                                                                                \
    sum = block_sum(sum, shared);                                                                                    \
    less = block_sum(less, shared);                                                                                  \
    if (threadIdx.x) return;                                                                                         \
    long long wanted = (long long)t[blockIdx.x], at = wanted - lo;                                                   \
    A found = at >= 0 && at < width ? (A)row[at] - most : (A)0;                                                      \
    if (smoothing) found = (A)(1 - smoothing) * found + (A)(smoothing / classes) * less;                             \
    if ((wanted < 0 || wanted >= classes) && !(has_ignored && wanted == ignored)) found = (A)NOT_A_NUMBER;           \
    total[blockIdx.x] = sum;                                                                                         \
    right[blockIdx.x] = found;                                                                                       \
  }                                                                                                                  \
  extern "C" __global__ void entropy_gradient_##name##_##index(                                                      \
      const A* gtotal, const A* gright, const T* y, const A* largest, const I* t, T* gy, long long lo,               \
      long long width, long long classes, double smoothing, long long count) {                                       \
    long long k = THREAD;                                                                                            \
    if (k >= count) return;                                                                                          \
    long long row = k / width, c = k % width;                                                                        \
    A g = exp((A)y[k] - largest[row]) * gtotal[row];                                                                 \
    if (smoothing) g += (A)(smoothing / classes) * gright[row];                                                      \
    gy[k] = (T)((long long)t[row] - lo == c ? g + (A)(1 - smoothing) * gright[row] : g);                             \
  }                                                                                                                  \
  /* How many scores stand before the right one: larger, or equal and of an earlier class. */                        \
  extern "C" __global__ void count_before_##name##_##index(const T* y, const I* t, const A* right, A* before,        \
                                                           long long lo, long long width) {                          \
    __shared__ long long shared[BLOCK];                                                                              \
    const T* row = y + blockIdx.x * width;                                                                           \
    A wanted = right[blockIdx.x];                                                                                    \
    long long earlier = (long long)t[blockIdx.x] - lo, count = 0;                                                    \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                           \
      count += !((A)row[c] <= wanted) || ((A)row[c] == wanted && c < earlier);                                       \
    count = block_sum(count, shared);                                                                                \
    if (threadIdx.x == 0) before[blockIdx.x] = (A)count;                                                             \
  }
#define ENTROPY_OF(T, A, name)    \
  ENTROPY(T, A, name, int, int32) \
  ENTROPY(T, A, name, long long, int64)
FOR_ALL_TYPES(ENTROPY_OF)

// Whether element `a` of a row stands before `b`: by value, then by place. NaN is the last, or (`nan_first`) the first.
#define ORDER(T, A, name)                                                                                            \
  static __device__ bool stands_before_##name(const T* row, long long a, long long b, bool largest,                  \
                                              bool nan_first) {                                                      \
    A x = row[a], y = row[b];                                                                                        \
    if (x != x || y != y) return (x != x) == (y != y) ? a < b : (x != x) == nan_first;                               \
    if (x == y) return a < b;                                                                                        \
    return largest ? x > y : x < y;                                                                                  \
  }                                                                                                                  \
  /* The place that stands first of those behind `after`, or of all (-1); `width` if there is none. */               \
  static __device__ long long next_##name(const T* row, long long width, long long after, bool largest,              \
                                          bool nan_first, long long* shared) {                                       \
    long long best = width;                                                                                          \
    for (long long c = threadIdx.x; c < width; c += BLOCK) {                                                         \
      if (after >= 0 && !stands_before_##name(row, after, c, largest, nan_first)) continue;                          \
      if (best == width || stands_before_##name(row, c, best, largest, nan_first)) best = c;                         \
    }                                                                                                                \
    shared[threadIdx.x] = best;                                                                                      \
    __syncthreads();                                                                                                 \
    for (int half = BLOCK / 2; half; half >>= 1) {                                                                   \
      if ((int)threadIdx.x < half) {                                                                                 \
        long long a = shared[threadIdx.x], b = shared[threadIdx.x + half];                                           \
        bool is_b = b < width && (a == width || stands_before_##name(row, b, a, largest, nan_first));                \
        if (is_b) shared[threadIdx.x] = b;                                                                           \
      }                                                                                                              \
      __syncthreads();                                                                                               \
    }                                                                                                                \
    best = shared[0];                                                                                                \
    __syncthreads();                                                                                                 \
    return best;                                                                                                     \
  }                                                                                                                  \
  extern "C" __global__ void in_order_##name(const T* x, T* values, long long* indices, long long width,             \
                                             long long k, long long largest) {                                       \
    __shared__ long long shared[BLOCK];                                                                              \
    const T* row = x + blockIdx.x * width;                                                                           \
    long long at = -1;                                                                                               \
    for (long long j = 0; j < k; ++j) {                                                                              \
      at = next_##name(row, width, at, largest, false, shared);                                                      \
      if (threadIdx.x == 0) {                                                                                        \
        values[blockIdx.x * k + j] = row[at];                                                                        \
        indices[blockIdx.x * k + j] = at;                                                                            \
      }                                                                                                              \
    }                                                                                                                \
  }                                                                                                                  \
  /* How many points of all `extent` are behind the first one that is `largest`; -1 where it is another task's. */   \
  extern "C" __global__ void points_behind_##name(const T* x, const T* largest, long long* behind, long long lo,     \
                                                  long long width, long long extent) {                               \
    __shared__ long long shared[BLOCK];                                                                              \
    const T* row = x + blockIdx.x * width;                                                                           \
    long long at = next_##name(row, width, -1, true, true, shared);                                                  \
    if (threadIdx.x) return;                                                                                         \
    A found = row[at], most = largest[blockIdx.x];                                                                   \
    behind[blockIdx.x] = found == most || found != found ? extent - 1 - lo - at : -1;                                \
  }
FOR_ALL_TYPES(ORDER)
