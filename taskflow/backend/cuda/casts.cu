// Many arrays from one dtype to another in one launch. A row of `table` has the addresses of an array and of its copy and
// how many elements they have; one of `starts` the number of a row, and the first element of a part, of which each block
// has one. Four elements at a time where addresses allow that: 16 bytes of float32.
#include "taskflow/types.cu"

template <typename S, typename T>
static __device__ void cast_part(const S* x, T* y, long long begin, long long end) {
  struct alignas(4 * sizeof(S)) From {
    S at[4];
  };
  struct alignas(4 * sizeof(T)) To {
    T at[4];
  };
  long long whole = (size_t)x % sizeof(From) || (size_t)y % sizeof(To) ? begin : end / 4 * 4;
  for (long long k = begin / 4 + threadIdx.x; k < whole / 4; k += blockDim.x) {
    From from = ((const From*)x)[k];
    To to;
    for (int j = 0; j < 4; ++j) to.at[j] = (T)(float)from.at[j];
    ((To*)y)[k] = to;
  }
  for (long long k = whole + threadIdx.x; k < end; k += blockDim.x) y[k] = (T)(float)x[k];
}

#define CAST(S, T, from, to)                                                                                       \
  extern "C" __global__ void cast_##from##_##to(const long long* table, const long long* starts, long long part) { \
    const long long* row = table + 3 * starts[2 * blockIdx.x];                                                     \
    long long begin = starts[2 * blockIdx.x + 1], end = begin + part < row[2] ? begin + part : row[2];             \
    cast_part((const S*)row[0], (T*)row[1], begin, end);                                                           \
  }
CAST(float, float16, float32, float16)
CAST(float, bfloat16, float32, bfloat16)
CAST(float16, float, float16, float32)
CAST(bfloat16, float, bfloat16, float32)
