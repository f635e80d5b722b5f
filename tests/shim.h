// CUDA C as C++: blocks run one after the other; the threads of a block are fibers that take turns at __syncthreads.
// So every thread runs up to a barrier before any goes on, and a thread that waits at another barrier hangs nobody.
#include <ucontext.h>

#include <cmath>
#include <functional>
#include <vector>

#define __global__ static
#define __device__
#define __shared__ static

struct Dimensions {
  unsigned x, y, z;
};
static Dimensions threadIdx, blockIdx, blockDim, gridDim;

static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static std::vector<std::vector<char>> stacks;
static std::vector<char> is_done;
static std::function<void()> body;

static void start() {
  body();
  is_done[threadIdx.x] = 1;
}

static void __syncthreads() { swapcontext(&fibers[threadIdx.x], &scheduler); }

static void run_blocks(long long grid, long long block, std::function<void()> kernel) {
  body = kernel;
  gridDim = {(unsigned)grid, 1, 1};
  blockDim = {(unsigned)block, 1, 1};
  if ((long long)stacks.size() < block) stacks.resize(block, std::vector<char>(32768));
  for (long long b = 0; b < grid; ++b) {
    blockIdx = {(unsigned)b, 0, 0};
    fibers.assign(block, ucontext_t());
    is_done.assign(block, 0);
    for (long long t = 0; t < block; ++t) {
      getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = stacks[t].data();
      fibers[t].uc_stack.ss_size = stacks[t].size();
      fibers[t].uc_link = &scheduler;
      makecontext(&fibers[t], start, 0);
    }
    for (bool is_over = false; !is_over;) {
      is_over = true;
      for (long long t = 0; t < block; ++t) {
        if (is_done[t]) continue;
        threadIdx = {(unsigned)t, 0, 0};
        swapcontext(&scheduler, &fibers[t]);
        is_over = is_over && is_done[t];
      }
    }
  }
}
