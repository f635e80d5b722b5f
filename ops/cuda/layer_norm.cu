// Normalization over the last dimension; a block for each row.
#include "common.cu"

#define LAYER_NORM(T, name)                                                                                          \
  extern "C" __global__ void layer_norm_##name(const T* x, const T* weight, const T* bias, T* y, T* mean, T* scale,  \
                                               long long width, double eps) {                                       \
    __shared__ T shared[BLOCK];                                                                                      \
    const T* row = x + blockIdx.x * width;                                                                           \
    T* out = y + blockIdx.x * width;                                                                                 \
    T sum = 0;                                                                                                       \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += row[c];                                            \
    T centre = block_sum(sum, shared) / (T)width;                                                                    \
    sum = 0;                                                                                                         \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += (row[c] - centre) * (row[c] - centre);             \
    T inverse = (T)1 / sqrt(block_sum(sum, shared) / (T)width + (T)eps);                                             \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                           \
      out[c] = (row[c] - centre) * inverse * weight[c] + bias[c];                                                    \
    if (threadIdx.x == 0) {                                                                                          \
      mean[blockIdx.x] = centre;                                                                                     \
      scale[blockIdx.x] = inverse;                                                                                   \
    }                                                                                                                \
  }                                                                                                                  \
  extern "C" __global__ void layer_norm_gradient_##name(const T* gy, const T* x, const T* mean, const T* scale,      \
                                                        const T* weight, T* gx, long long width) {                  \
    __shared__ T shared[BLOCK];                                                                                      \
    long long begin = blockIdx.x * width;                                                                            \
    T centre = mean[blockIdx.x], inverse = scale[blockIdx.x], sum = 0, product = 0;                                  \
    for (long long c = threadIdx.x; c < width; c += BLOCK) {                                                         \
      T g = gy[begin + c] * weight[c];                                                                               \
      sum += g;                                                                                                      \
      product += g * (x[begin + c] - centre) * inverse;                                                              \
    }                                                                                                                \
    sum = block_sum(sum, shared) / (T)width;                                                                         \
    product = block_sum(product, shared) / (T)width;                                                                 \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                           \
      gx[begin + c] =                                                                                                \
          inverse * (gy[begin + c] * weight[c] - sum - (x[begin + c] - centre) * inverse * product);                 \
  }                                                                                                                  \
  extern "C" __global__ void layer_norm_sums_##name(const T* gy, const T* x, const T* mean, const T* scale,          \
                                                    T* gweight, T* gbias, long long rows, long long width) {        \
    long long c = THREAD;                                                                                            \
    if (c >= width) return;                                                                                          \
    T weight = 0, bias = 0;                                                                                          \
    for (long long r = 0; r < rows; ++r) {                                                                           \
      T g = gy[r * width + c];                                                                                       \
      weight += g * (x[r * width + c] - mean[r]) * scale[r];                                                         \
      bias += g;                                                                                                     \
    }                                                                                                                \
    gweight[c] = weight;                                                                                             \
    gbias[c] = bias;                                                                                                 \
  }
LAYER_NORM(float, float32)
LAYER_NORM(double, float64)
