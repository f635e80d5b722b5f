// Softmax over rows and its gradient, a block for each row.
#include "common.cu"

#define SOFTMAX_ROWS(T, A, name)                                                                                      \
  extern "C" __global__ void softmax_##name(const T* x, T* y, long long width) {                                      \
    __shared__ A shared[BLOCK];                                                                                       \
    const T* row = x + blockIdx.x * width;                                                                            \
    T* out = y + blockIdx.x * width;                                                                                  \
    A most = row[0], sum = 0;                                                                                         \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                            \
      if ((A)row[c] > most || (A)row[c] != (A)row[c]) most = row[c];                                                  \
    most = block_max(most, shared);                                                                                   \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += exp((A)row[c] - most);                              \
    sum = block_sum(sum, shared);                                                                                     \
    for (long long c = threadIdx.x; c < width; c += BLOCK) out[c] = exp((A)row[c] - most) / sum;                      \
  }                                                                                                                   \
  extern "C" __global__ void softmax_gradient_##name(const T* gy, const T* y, T* gx, long long width) {               \
    __shared__ A shared[BLOCK];                                                                                       \
    long long begin = blockIdx.x * width;                                                                             \
    A sum = 0;                                                                                                        \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += (A)gy[begin + c] * (A)y[begin + c];                 \
    sum = block_sum(sum, shared);                                                                                     \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                            \
      gx[begin + c] = ((A)gy[begin + c] - sum) * (A)y[begin + c];                                                     \
  }
FOR_ALL_TYPES(SOFTMAX_ROWS)
