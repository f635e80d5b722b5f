// Sums of rows of a table by index, in bags of one index or more. An index out of range makes its sum NaN; one of another
// task's rows counts as zero.
#include "common.cu"

// links[k] = 2 * (the next k with the same index, or `count`) + (whether k is the first with it). A block for each.
#define LINKS(I, index)                                                                                 \
  extern "C" __global__ void link_rows_##index(const I* indices, long long* links, long long count) {   \
    __shared__ long long shared[BLOCK];                                                                 \
    I mine = indices[blockIdx.x];                                                                       \
    long long here = blockIdx.x, before_end = 0, earlier = 0; /* the nearer the larger */               \
    for (long long k = threadIdx.x; k < count; k += BLOCK) {                                            \
      if (indices[k] != mine) continue;                                                                 \
      if (k < here) earlier = 1;                                                                        \
      if (k > here && count - k > before_end) before_end = count - k;                                   \
    }                                                                                                   \
    before_end = block_max(before_end, shared);                                                         \
    earlier = block_max(earlier, shared);                                                               \
    if (threadIdx.x == 0) links[here] = 2 * (count - before_end) + 1 - earlier;                         \
  }
LINKS(int, int32)
LINKS(long long, int64)

#define EMBEDDING(T, W, A, name, I, index)                                                                        \
  extern "C" __global__ void sum_rows_##name##_##index(const I* indices, const W* table, T* y, long long lo,      \
                                                       long long rows, long long width, long long extent,         \
                                                       long long bag, long long count) {                          \
    long long k = THREAD;                                                                                         \
    if (k >= count) return;                                                                                       \
    A sum = 0;                                                                                                    \
    for (long long at = k / width * bag; at < (k / width + 1) * bag; ++at) {                                      \
      long long wanted = (long long)indices[at], row = wanted - lo;                                               \
      if (wanted < 0 || wanted >= extent) sum = (A)NOT_A_NUMBER;                                                  \
      if (row >= 0 && row < rows) sum += (A)table[row * width + k % width];                                       \
    }                                                                                                             \
    y[k] = sum;                                                                                                   \
  }                                                                                                               \
  /* A block for each index: the first of equal ones adds the gradients of all of them, in order. */              \
  extern "C" __global__ void scatter_add_##name##_##index(const T* gy, const I* indices, const long long* links,  \
                                                          W* table, long long lo, long long rows,                 \
                                                          long long width, long long bag, long long count) {      \
    long long row = (long long)indices[blockIdx.x] - lo;                                                          \
    if (!(links[blockIdx.x] & 1) || row < 0 || row >= rows) return;                                               \
    for (long long e = threadIdx.x; e < width; e += BLOCK) {                                                      \
      A sum = table[row * width + e];                                                                             \
      for (long long k = blockIdx.x; k < count; k = links[k] >> 1) sum += (A)gy[k / bag * width + e];             \
      table[row * width + e] = sum;                                                                               \
    }                                                                                                             \
  }
// The first look-up of a row gets the sum of the gradients of all of them, in order; a block for each look-up.
#define ROWS(T, name)                                                                                             \
  extern "C" __global__ void sum_equal_##name(const T* gradients, const long long* links, T* sums,                \
                                              long long width, long long count) {                                 \
    if (!(links[blockIdx.x] & 1)) return;                                                                         \
    for (long long e = threadIdx.x; e < width; e += BLOCK) {                                                      \
      T sum = 0;                                                                                                  \
      for (long long k = blockIdx.x; k < count; k = links[k] >> 1) sum += gradients[k * width + e];               \
      sums[blockIdx.x * width + e] = sum;                                                                         \
    }                                                                                                             \
  }                                                                                                               \
  extern "C" __global__ void put_rows_##name(const T* work, const long long* index, const long long* links,       \
                                             T* table, long long lo, long long rows, long long width) {           \
    long long row = index[blockIdx.x] - lo;                                                                       \
    if (!(links[blockIdx.x] & 1) || row < 0 || row >= rows) return;                                               \
    for (long long e = threadIdx.x; e < width; e += BLOCK) table[row * width + e] = work[blockIdx.x * width + e]; \
  }
ROWS(float, float32)
ROWS(double, float64)
// A table of float32 may have rows of half size.
#define EMBEDDING_OF(T, W, A, name)    \
  EMBEDDING(T, W, A, name, int, int32) \
  EMBEDDING(T, W, A, name, long long, int64)
EMBEDDING_OF(float, float, float, float32_float32)
EMBEDDING_OF(double, double, double, float64_float64)
EMBEDDING_OF(float16, float, float, float16_float32)
EMBEDDING_OF(bfloat16, float, float, bfloat16_float32)
EMBEDDING_OF(float16, float16, float, float16_float16)
EMBEDDING_OF(bfloat16, bfloat16, float, bfloat16_bfloat16)
