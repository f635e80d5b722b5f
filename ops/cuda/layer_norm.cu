// Normalization over the last dimension; a block for each row.
#include "common.cu"

#define LAYER_NORM(T, A, name)                                                                                      \
  extern "C" __global__ void layer_norm_##name(const T* x, const A* weight, const A* bias, T* y, A* mean, A* scale, \
                                               long long width, double eps) {                                       \
    __shared__ A shared[BLOCK];                                                                                     \
    const T* row = x + blockIdx.x * width;                                                                          \
    T* out = y + blockIdx.x * width;                                                                                \
    A sum = 0;                                                                                                      \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += (A)row[c];                                        \
    A centre = block_sum(sum, shared) / (A)width;                                                                   \
    sum = 0;                                                                                                        \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += ((A)row[c] - centre) * ((A)row[c] - centre);      \
    A inverse = (A)1 / sqrt(block_sum(sum, shared) / (A)width + (A)eps);                                            \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                          \
      out[c] = ((A)row[c] - centre) * inverse * weight[c] + bias[c];                                                \
    if (threadIdx.x == 0) {                                                                                         \
      mean[blockIdx.x] = centre;                                                                                    \
      scale[blockIdx.x] = inverse;                                                                                  \
    }                                                                                                               \
  }                                                                                                                 \
  extern "C" __global__ void layer_norm_gradient_##name(const T* gy, const T* x, const A* mean, const A* scale,     \
                                                        const A* weight, T* gx, long long width) {                  \
    __shared__ A shared[BLOCK];                                                                                     \
    long long begin = blockIdx.x * width;                                                                           \
    A centre = mean[blockIdx.x], inverse = scale[blockIdx.x], sum = 0, product = 0;                                 \
    for (long long c = threadIdx.x; c < width; c += BLOCK) {                                                        \
      A g = (A)gy[begin + c] * weight[c];                                                                           \
      sum += g;                                                                                                     \
      product += g * ((A)x[begin + c] - centre) * inverse;                                                          \
    }                                                                                                               \
    sum = block_sum(sum, shared) / (A)width;                                                                        \
    product = block_sum(product, shared) / (A)width;                                                                \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                          \
      gx[begin + c] =                                                                                            \
          inverse * ((A)gy[begin + c] * weight[c] - sum - ((A)x[begin + c] - centre) * inverse * product);          \
  }                                                                                                                 \
  extern "C" __global__ void layer_norm_sums_##name(const T* gy, const T* x, const A* mean, const A* scale,         \
                                                    A* gweight, A* gbias, long long rows, long long width) {        \
    long long c = THREAD;                                                                                           \
    if (c >= width) return;                                                                                         \
    A weight = 0, bias = 0;                                                                                         \
    for (long long r = 0; r < rows; ++r) {                                                                          \
      A g = (A)gy[r * width + c];                                                                                   \
      weight += g * ((A)x[r * width + c] - mean[r]) * scale[r];                                                     \
      bias += g;                                                                                                    \
    }                                                                                                               \
    gweight[c] = weight;                                                                                            \
    gbias[c] = bias;                                                                                                \
  }
FOR_ALL_TYPES(LAYER_NORM)
