// Sums of the columns of a matrix of contiguous rows: of `count` parts of the rows each, by blocks that read several rows
// of some columns at once. What is summed in two stages are the sums of all parts.
#include "common.cu"

#define SUM_COLUMNS(T, A, name)                                                                             \
  extern "C" __global__ void sum_columns_##name(const T* x, A* parts, long long rows, int width, int count, \
                                                int lanes) {                                                \
    __shared__ A shared[BLOCK];                                                                             \
    int across = (width + lanes - 1) / lanes, beside = BLOCK / lanes;                                       \
    int row = (int)threadIdx.x / lanes;                                                                     \
    int c = (int)blockIdx.x % across * lanes + (int)threadIdx.x % lanes, part = (int)blockIdx.x / across;   \
    A sum = 0;                                                                                              \
    if (c < width)                                                                                          \
      for (long long r = rows * part / count + row, end = rows * (part + 1) / count; r < end; r += beside)  \
        sum += (A)x[r * width + c];                                                                         \
    shared[threadIdx.x] = sum;                                                                              \
    __syncthreads();                                                                                        \
    if (row || c >= width) return;                                                                          \
    for (int k = lanes; k < BLOCK; k += lanes) sum += shared[(int)threadIdx.x + k];                         \
    parts[(long long)part * width + c] = sum;                                                               \
  }
FOR_ALL_TYPES(SUM_COLUMNS)
