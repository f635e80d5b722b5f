// What the kernels share. Sums are taken in a fixed order: results are equal from run to run.
#ifndef TASKFLOW_COMMON
#define TASKFLOW_COMMON

#include "taskflow/types.cu"

// Arrays are contiguous; extents and indices are 64-bit. A kernel is `name<T>`, exported as `name_float32` and so on.
#define THREAD (blockIdx.x * (long long)blockDim.x + threadIdx.x)
#define NOT_A_NUMBER nan("")
#define BLOCK 256  // threads of a kernel that reduces rows: one block for each

template <typename T>
static __device__ T block_sum(T value, T* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = BLOCK / 2; half; half >>= 1) {
    if ((int)threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  T total = shared[0];
  __syncthreads();
  return total;
}

template <typename T>
static __device__ T block_max(T value, T* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = BLOCK / 2; half; half >>= 1) {
    if ((int)threadIdx.x < half) {
      T a = shared[threadIdx.x], b = shared[threadIdx.x + half];
      shared[threadIdx.x] = b > a || b != b ? b : a;
    }
    __syncthreads();
  }
  T most = shared[0];
  __syncthreads();
  return most;
}

#endif
