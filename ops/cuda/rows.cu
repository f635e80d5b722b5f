// Softmax over rows and its gradient, a block for each row.
#include "common.cu"

#define SOFTMAX_ROWS(T, A, name)                                                                                  \
  extern "C" __global__ void softmax_##name(const T* x, T* y, int width) {                                        \
    __shared__ A shared[BLOCK / 32];                                                                              \
    const T* row = x + (long long)blockIdx.x * width;                                                             \
    T* out = y + (long long)blockIdx.x * width;                                                                   \
    unsigned differs = apart<T>(row, out);                                                                        \
    A most = row[0], sum = 0;                                                                                     \
    each_of_row(row, differs, width, [&](int c, auto count) {                                                     \
      auto read = read_pack<decltype(count)::value>(row + c);                                                     \
      for (int n = 0; n < count.value; ++n) {                                                                     \
        A value = read.values[n];                                                                                 \
        if (value > most || value != value) most = value;                                                         \
      }                                                                                                           \
    });                                                                                                           \
    most = block_max(most, shared);                                                                               \
    each_of_row(row, differs, width, [&](int c, auto count) {                                                     \
      auto read = read_pack<decltype(count)::value>(row + c);                                                     \
      for (int n = 0; n < count.value; ++n) sum += exp((A)read.values[n] - most);                                 \
    });                                                                                                           \
    sum = block_sum(sum, shared);                                                                                 \
    each_of_row(row, differs, width, [&](int c, auto count) {                                                     \
      auto read = read_pack<decltype(count)::value>(row + c);                                                     \
      for (int n = 0; n < count.value; ++n) read.values[n] = exp((A)read.values[n] - most) / sum;                 \
      *(decltype(read)*)(out + c) = read;                                                                         \
    });                                                                                                           \
  }                                                                                                               \
  extern "C" __global__ void softmax_gradient_##name(const T* gy, const T* y, T* gx, int width) {                 \
    __shared__ A shared[BLOCK / 32];                                                                              \
    const T *slopes = gy + (long long)blockIdx.x * width, *weights = y + (long long)blockIdx.x * width;           \
    T* out = gx + (long long)blockIdx.x * width;                                                                  \
    unsigned differs = apart<T>(slopes, weights) | apart<T>(slopes, out);                                         \
    A sum = 0;                                                                                                    \
    each_of_row(slopes, differs, width, [&](int c, auto count) {                                                  \
      auto g = read_pack<decltype(count)::value>(slopes + c), p = read_pack<decltype(count)::value>(weights + c); \
      for (int n = 0; n < count.value; ++n) sum += (A)g.values[n] * (A)p.values[n];                               \
    });                                                                                                           \
    sum = block_sum(sum, shared);                                                                                 \
    each_of_row(slopes, differs, width, [&](int c, auto count) {                                                  \
      auto g = read_pack<decltype(count)::value>(slopes + c), p = read_pack<decltype(count)::value>(weights + c); \
      for (int n = 0; n < count.value; ++n) g.values[n] = ((A)g.values[n] - sum) * (A)p.values[n];                \
      *(decltype(g)*)(out + c) = g;                                                                               \
    });                                                                                                           \
  }
FOR_ALL_TYPES(SOFTMAX_ROWS)
