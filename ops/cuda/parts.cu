// Many arrays to other places in one launch, some to another dtype. A row of `table` has the addresses of an array and of
// its copy and how many elements they have; one of `starts` the number of a row and where a part of it begins, of which
// each block has one.
#include "common.cu"

#define MOVE(S, T, from, to)                                                                                       \
  extern "C" __global__ void move_##from##_##to(const long long* table, const long long* starts, long long part) { \
    const long long* row = table + 3 * starts[2 * blockIdx.x];                                                     \
    long long begin = starts[2 * blockIdx.x + 1], end = begin + part < row[2] ? begin + part : row[2];             \
    for (long long k = begin + threadIdx.x; k < end; k += BLOCK) ((T*)row[1])[k] = (T)((const S*)row[0])[k];       \
  }
MOVE(float, float, float32, float32)
MOVE(double, double, float64, float64)
MOVE(float16, float16, float16, float16)
MOVE(bfloat16, bfloat16, bfloat16, bfloat16)
MOVE(float, float16, float32, float16)
MOVE(float, bfloat16, float32, bfloat16)
MOVE(float16, float, float16, float32)
MOVE(bfloat16, float, bfloat16, float32)
