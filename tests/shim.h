// CUDA C as C++: blocks run one after the other, and so do the warps of a block: each up to __syncthreads, at which no
// warp goes on before all are there. The lanes of a warp are fibers that take turns at __syncwarp and at shuffles. So a
// warp runs far ahead of another where a barrier lacks, and a thread that waits at another barrier hangs nobody.
#define __global__
#define __device__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads)
#ifndef SHIM_WORDS  // else it has the words of CUDA alone, for whom expands the macros of a source
#include <cmath>
#include <utility>

// In shim.cpp, which is compiled once for all kernels.
namespace shim {
float half_to_float(unsigned short bits);
unsigned short float_to_half(float value);

struct Dimensions {
  unsigned x, y, z;
};
extern Dimensions threadIdx, blockIdx, blockDim, gridDim;

enum State : char { READY, AT_LANES, AT_BLOCK, DONE };  // where a thread waits
const int WARP_LANES = 32;
extern double* slots;  // what each thread shows the others of its warp

void leave(State state);
// `kernel(data)` is what one thread does.
void run_blocks(long long grid, long long block, void (*kernel)(void*), void* data);

// All blocks of a kernel, whose arguments take 8 bytes each.
template <typename... Parameters, std::size_t... K>
void run(void (*kernel)(Parameters...), long long grid, long long block, char* args, std::index_sequence<K...>) {
  auto thread = [=] { kernel(*(Parameters*)(args + 8 * K)...); };
  run_blocks(grid, block, [](void* data) { (*(decltype(thread)*)data)(); }, &thread);
}

template <typename... Parameters>
void run(void (*kernel)(Parameters...), long long grid, long long block, char* args) {
  run(kernel, grid, block, args, std::index_sequence_for<Parameters...>());
}
}  // namespace shim
#define SHIM_RUN(name)                                                              \
  extern "C" __attribute__((visibility("default"))) void run_##name(                \
      long long grid, long long block, char* args) {                                \
    shim::run(name, grid, block, args);                                             \
  }
using namespace shim;

static void __syncthreads() { leave(AT_BLOCK); }
static void __syncwarp(unsigned lanes = 0xFFFFFFFFu) { leave(AT_LANES); }

template <typename T>
static T __shfl_sync(unsigned lanes, T value, int lane) {
  static_assert(sizeof(T) <= sizeof(double), "a shuffle moves at most 8 bytes");
  *(T*)&slots[threadIdx.x] = value;
  __syncwarp();
  T found = *(T*)&slots[threadIdx.x / WARP_LANES * WARP_LANES + lane];
  __syncwarp();
  return found;
}

template <typename T>
static T __shfl_xor_sync(unsigned lanes, T value, int mask) {
  return __shfl_sync(lanes, value, (int)threadIdx.x % WARP_LANES ^ mask);
}
#endif
