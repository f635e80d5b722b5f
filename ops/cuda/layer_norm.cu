// Normalization over the last dimension; a block for each row. What is normalized may be a sum, which is written as
// `total`, and something may be added to the gradient. The gradients of weight and bias are sums over rows in two
// stages: of parts of the rows, by blocks side by side for some columns each, and then of these parts.
#include "common.cu"

#define LAYER_NORM(T, A, name)                                                                                         \
  extern "C" __global__ void layer_norm_##name(const T* x, const T* more, const A* weight, const A* bias, T* y, A* mean,\
                                               A* scale, T* total, long long width, double eps) {                      \
    __shared__ A shared[BLOCK];                                                                                        \
    const T* row = x + blockIdx.x * width;                                                                             \
    T* out = y + blockIdx.x * width;                                                                                   \
    if (more) {                                                                                                        \
      T* sums = total + blockIdx.x * width;                                                                            \
      for (long long c = threadIdx.x; c < width; c += BLOCK) sums[c] = (A)row[c] + (A)more[blockIdx.x * width + c];    \
      row = sums; /* of which every thread reads what it wrote */                                                      \
    }                                                                                                                  \
    A sum = 0;                                                                                                         \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += (A)row[c];                                           \
    A centre = block_sum(sum, shared) / (A)width;                                                                      \
    sum = 0;                                                                                                           \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += ((A)row[c] - centre) * ((A)row[c] - centre);         \
    A inverse = (A)1 / sqrt(block_sum(sum, shared) / (A)width + (A)eps);                                               \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                             \
      out[c] = ((A)row[c] - centre) * inverse * weight[c] + bias[c];                                                   \
    if (threadIdx.x == 0) {                                                                                            \
      mean[blockIdx.x] = centre;                                                                                       \
      scale[blockIdx.x] = inverse;                                                                                     \
    }                                                                                                                  \
  }                                                                                                                    \
  extern "C" __global__ void layer_norm_gradient_##name(const T* gy, const T* x, const A* mean, const A* scale,        \
                                                        const A* weight, const T* more, T* gx, long long width) {      \
    __shared__ A shared[BLOCK];                                                                                        \
    long long begin = blockIdx.x * width;                                                                              \
    A centre = mean[blockIdx.x], inverse = scale[blockIdx.x], sum = 0, product = 0;                                    \
    for (long long c = threadIdx.x; c < width; c += BLOCK) {                                                           \
      A g = (A)gy[begin + c] * weight[c];                                                                              \
      sum += g;                                                                                                        \
      product += g * ((A)x[begin + c] - centre) * inverse;                                                             \
    }                                                                                                                  \
    sum = block_sum(sum, shared) / (A)width;                                                                           \
    product = block_sum(product, shared) / (A)width;                                                                   \
    for (long long c = threadIdx.x; c < width; c += BLOCK) {                                                           \
      A g = inverse * ((A)gy[begin + c] * weight[c] - sum - ((A)x[begin + c] - centre) * inverse * product);           \
      gx[begin + c] = more ? g + (A)more[begin + c] : g;                                                               \
    }                                                                                                                  \
  }                                                                                                                    \
  extern "C" __global__ void layer_norm_parts_##name(const T* gy, const T* x, const A* mean, const A* scale,           \
                                                     A* parts, long long rows, long long width, long long count) {     \
    long long across = (width + BLOCK - 1) / BLOCK, part = blockIdx.x / across;                                        \
    long long c = blockIdx.x % across * BLOCK + threadIdx.x;                                                           \
    if (c >= width) return;                                                                                            \
    A weight = 0, bias = 0;                                                                                            \
    for (long long r = rows * part / count, end = rows * (part + 1) / count; r < end; ++r) {                           \
      A g = (A)gy[r * width + c];                                                                                      \
      weight += g * ((A)x[r * width + c] - mean[r]) * scale[r];                                                        \
      bias += g;                                                                                                       \
    }                                                                                                                  \
    parts[part * width + c] = weight;                                                                                  \
    parts[(count + part) * width + c] = bias;                                                                          \
  }
FOR_ALL_TYPES(LAYER_NORM)

// Sums of `count` parts of each column, in order: of those of the weight, and of those of the bias behind them.
#define LAYER_NORM_SUMS(A, name)                                                                            \
  extern "C" __global__ void layer_norm_sums_##name(const A* parts, A* gweight, A* gbias, long long width,  \
                                                    long long count) {                                      \
    long long k = THREAD;                                                                                   \
    if (k >= 2 * width) return;                                                                             \
    const A* column = k < width ? parts + k : parts + (count - 1) * width + k;                              \
    A sum = 0;                                                                                              \
    for (long long part = 0; part < count; ++part) sum += column[part * width];                             \
    if (k < width)                                                                                          \
      gweight[k] = sum;                                                                                     \
    else                                                                                                    \
      gbias[k - width] = sum;                                                                               \
  }
LAYER_NORM_SUMS(float, float32)
LAYER_NORM_SUMS(double, float64)
