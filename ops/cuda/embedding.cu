// Rows of a table by index. An index out of range makes its row NaN; one of another task's rows makes it zero.
#include "common.cu"

#define EMBEDDING(T, W, A, name, I, index)                                                                       \
  extern "C" __global__ void look_up_##name##_##index(const I* indices, const W* table, T* y, long long lo,      \
                                                      long long rows, long long width, long long extent,         \
                                                      long long count) {                                         \
    long long k = THREAD;                                                                                        \
    if (k >= count) return;                                                                                      \
    long long wanted = (long long)indices[k / width], row = wanted - lo;                                         \
    if (wanted < 0 || wanted >= extent)                                                                          \
      y[k] = (A)NOT_A_NUMBER;                                                                                    \
    else                                                                                                         \
      y[k] = row >= 0 && row < rows ? (A)table[row * width + k % width] : (A)0;                                  \
  }                                                                                                              \
  /* A block for each index: the first of equal ones adds the gradients of all of them, in order. */             \
  extern "C" __global__ void scatter_add_##name##_##index(const T* gy, const I* indices, W* table, long long lo, \
                                                          long long rows, long long width, long long count) {    \
    __shared__ int shared[BLOCK];                                                                                \
    I mine = indices[blockIdx.x];                                                                                \
    long long row = (long long)mine - lo;                                                                        \
    int earlier = 0;                                                                                             \
    for (long long k = threadIdx.x; k < (long long)blockIdx.x; k += BLOCK) earlier |= indices[k] == mine;        \
    if (block_sum(earlier, shared) || row < 0 || row >= rows) return;                                            \
    for (long long e = threadIdx.x; e < width; e += BLOCK) {                                                     \
      A sum = table[row * width + e];                                                                            \
      for (long long k = blockIdx.x; k < count; ++k)                                                             \
        if (indices[k] == mine) sum += (A)gy[k * width + e];                                                     \
      table[row * width + e] = sum;                                                                              \
    }                                                                                                            \
  }
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
