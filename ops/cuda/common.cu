// What the kernels share. Sums are taken in a fixed order: results are equal from run to run.
#ifndef TASKFLOW_COMMON
#define TASKFLOW_COMMON

#include "taskflow/types.cu"

// Arrays are contiguous; extents and indices are 64-bit. A kernel is `name<T>`, exported as `name_float32` and so on.
#define THREAD (blockIdx.x * (long long)blockDim.x + threadIdx.x)
#define NOT_A_NUMBER nan("")
#define BLOCK 256  // threads of a kernel that reduces rows: one block for each

#define ALL_LANES 0xFFFFFFFFu

// Of all threads of a block, for each of them: within each warp, then over the warps in their order.
template <int THREADS = BLOCK, typename T, typename F>
static __device__ T combine_block(T value, T* shared, F combine) {
#pragma unroll
  for (int n = 16; n; n >>= 1) value = combine(value, __shfl_xor_sync(ALL_LANES, value, n));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  T total = shared[0];
#pragma unroll
  for (int warp = 1; warp < THREADS / 32; ++warp) total = combine(total, shared[warp]);
  __syncthreads();
  return total;
}

template <int THREADS = BLOCK, typename T>
static __device__ T block_sum(T value, T* shared) {
  return combine_block<THREADS>(value, shared, [](T a, T b) { return a + b; });
}

// Several sums at once, in memory for so many of each warp.
template <int N, typename T>
static __device__ void block_sums(T (&values)[N], T (*shared)[BLOCK / 32]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (int n = 16; n; n >>= 1) values[k] += __shfl_xor_sync(ALL_LANES, values[k], n);
    if (threadIdx.x % 32 == 0) shared[k][threadIdx.x / 32] = values[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < N; ++k) {
    values[k] = shared[k][0];
    for (int warp = 1; warp < BLOCK / 32; ++warp) values[k] += shared[k][warp];
  }
  __syncthreads();
}

template <int THREADS = BLOCK, typename T>
static __device__ T block_max(T value, T* shared) {
  return combine_block<THREADS>(value, shared, [](T a, T b) { return b > a || b != b ? b : a; });
}

// Elements beside each other that are read or written at once.
template <typename T, int N>
struct __align__(N > 1 ? 16 : sizeof(T)) Pack {
  T values[N];
};
template <int N, typename T>
static __device__ Pack<T, N> read_pack(const T* from) {
  return *(const Pack<T, N>*)from;
}
template <int N>
struct Count {
  static const int value = N;
};

// Not 0 where two rows do not begin equally far from a multiple of 16 bytes.
template <typename T>
static __device__ unsigned apart(const T* a, const T* b) {
  return (unsigned)((unsigned long long)a ^ (unsigned long long)b) & 15;
}

// Calls `f(c, Count<N>())` for elements c to c + N - 1 of a row, until the block has done all of them: by 16 bytes at a
// time, unless the row is `apart` from another one.
template <int THREADS = BLOCK, typename T, typename F>
static __device__ void each_of_row(const T* row, unsigned apart, int width, F f) {
  const int N = 16 / sizeof(T);
  int head = (int)(-(unsigned long long)row & 15) / (int)sizeof(T);
  if (apart || head > width) head = width;
  for (int c = (int)threadIdx.x; c < head; c += THREADS) f(c, Count<1>());
  int past = head + (width - head) / N * N;
  for (int c = head + (int)threadIdx.x * N; c < past; c += THREADS * N) f(c, Count<N>());
  if (past + (int)threadIdx.x < width) f(past + (int)threadIdx.x, Count<1>());
}

#endif
