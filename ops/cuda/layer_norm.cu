// Normalization over the last dimension; a block for each row. What is normalized may be a sum, which is written as
// `total`, and something may be added to the gradient. The gradients of weight and bias are sums over rows in two
// stages: of parts of the rows, and then of these parts. Of the parts, blocks of their own make sums, or those that make
// the gradient of these rows.
#include "common.cu"

#define SECTOR 8   // columns of float32 that are read at once at least
#define AT_ONCE 4  // rows whose sums a block takes together
#define KEPT 8     // columns whose sums a thread has in registers; of wider rows the others are in memory

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
  /* Of some rows, AT_ONCE at a time. If there are `parts`, a thread keeps what its columns add to those of weight and \
     bias. */                                                                                                          \
  extern "C" __global__ void layer_norm_gradient_##name(const T* gy, const T* x, const A* mean, const A* scale,        \
                                                        const A* weight, const T* more, A* parts, T* gx,               \
                                                        long long rows, int width, int count) {                        \
    __shared__ A shared[2 * AT_ONCE][BLOCK / 32];                                                                      \
    A weights[KEPT] = {}, biases[KEPT] = {}, unused = 0;                                                               \
    A *of_weight = parts + (long long)blockIdx.x * width, *of_bias = of_weight + (long long)count * width;             \
    for (int c = KEPT * BLOCK + (int)threadIdx.x; parts && c < width; c += BLOCK) of_weight[c] = of_bias[c] = 0;       \
    long long end = rows * (blockIdx.x + 1) / count;                                                                   \
    for (long long first = rows * blockIdx.x / count; first < end; first += AT_ONCE) {                                 \
      A sums[2 * AT_ONCE] = {}; /* for each row, of its slopes and of their products with what was normalized */       \
      auto each = [&](int c, A& to_weight, A& to_bias) {                                                               \
        _Pragma("unroll") for (int n = 0; n < AT_ONCE; ++n) {                                                          \
          long long r = first + n;                                                                                     \
          if (r >= end) continue;                                                                                      \
          A slope = gy[r * width + c], at = ((A)x[r * width + c] - mean[r]) * scale[r];                                \
          sums[2 * n] += slope * weight[c];                                                                            \
          sums[2 * n + 1] += slope * weight[c] * at;                                                                   \
          to_weight += slope * at;                                                                                     \
          to_bias += slope;                                                                                            \
        }                                                                                                              \
      };                                                                                                               \
      _Pragma("unroll") for (int k = 0; k < KEPT; ++k) {                                                               \
        int c = k * BLOCK + (int)threadIdx.x;                                                                          \
        if (c < width) each(c, weights[k], biases[k]);                                                                 \
      }                                                                                                                \
      for (int c = KEPT * BLOCK + (int)threadIdx.x; c < width; c += BLOCK)                                             \
        parts ? each(c, of_weight[c], of_bias[c]) : each(c, unused, unused);                                           \
      block_sums(sums, shared);                                                                                        \
      _Pragma("unroll") for (int n = 0; n < AT_ONCE; ++n) {                                                            \
        long long r = first + n;                                                                                       \
        if (r >= end) continue;                                                                                        \
        A sum = sums[2 * n] / (A)width, product = sums[2 * n + 1] / (A)width;                                          \
        for (int c = (int)threadIdx.x; c < width; c += BLOCK) {                                                        \
          A at = ((A)x[r * width + c] - mean[r]) * scale[r];                                                           \
          A g = scale[r] * ((A)gy[r * width + c] * weight[c] - sum - at * product);                                    \
          gx[r * width + c] = more ? g + (A)more[r * width + c] : g;                                                   \
        }                                                                                                              \
      }                                                                                                                \
    }                                                                                                                  \
    _Pragma("unroll") for (int k = 0; k < KEPT; ++k) {                                                                 \
      int c = k * BLOCK + (int)threadIdx.x;                                                                            \
      if (parts && c < width) of_weight[c] = weights[k], of_bias[c] = biases[k];                                       \
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

// Sums of `count` parts of each column, in order: of those of the weight, and of those of the bias behind them. A block has
// SECTOR columns, which are read at once, and many parts beside each other.
#define LAYER_NORM_SUMS(A, name)                                                                           \
  extern "C" __global__ void layer_norm_sums_##name(const A* parts, A* gweight, A* gbias, long long width, \
                                                    long long count) {                                     \
    __shared__ A shared[BLOCK];                                                                            \
    long long k = blockIdx.x * (long long)SECTOR + threadIdx.x % SECTOR;                                   \
    const A* column = k < width ? parts + k : parts + (count - 1) * width + k;                             \
    A sum = 0;                                                                                             \
    for (long long part = threadIdx.x / SECTOR; k < 2 * width && part < count; part += BLOCK / SECTOR)     \
      sum += column[part * width];                                                                         \
    shared[threadIdx.x] = sum;                                                                             \
    __syncthreads();                                                                                       \
    if (threadIdx.x >= SECTOR || k >= 2 * width) return;                                                   \
    for (int n = SECTOR; n < BLOCK; n += SECTOR) sum += shared[(int)threadIdx.x + n];                      \
    if (k < width)                                                                                         \
      gweight[k] = sum;                                                                                    \
    else                                                                                                   \
      gbias[k - width] = sum;                                                                              \
  }
LAYER_NORM_SUMS(float, float32)
LAYER_NORM_SUMS(double, float64)
