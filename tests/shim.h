// CUDA C as C++: blocks run one after the other; the threads of a block are fibers that take turns at __syncthreads.
// So every thread runs up to a barrier before any goes on, and a thread that waits at another barrier hangs nobody.
// With SHIM_WORDS it has the words of CUDA alone, for whom expands the macros of a source.
#ifdef SHIM_WORDS
#define __global__ static
#define __device__
#define __shared__ static
#else
#include <ucontext.h>

#include <cmath>
#include <cstdlib>

// Numbers of 16 bits as IEEE 754 has them, rounded to nearest even.
static float half_to_float(unsigned short bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                 : exponent == 0 ? ldexp(mantissa, -24)
                                 : ldexp(mantissa + 1024, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

static unsigned short float_to_half(float value) {
  unsigned short sign = std::signbit(value) ? 0x8000 : 0;
  double size = std::fabs(value);
  if (value != value) return 0x7E00;
  if (size >= 65520) return sign | 0x7C00;
  if (size < ldexp(1, -14)) return sign | (unsigned short)nearbyint(ldexp(size, 24));
  int exponent = std::ilogb(size);
  return sign | (unsigned short)(((exponent + 15) << 10) + (int)nearbyint(ldexp(size, 10 - exponent)) - 1024);
}

struct Dimensions {
  unsigned x, y, z;
};
static Dimensions threadIdx, blockIdx, blockDim, gridDim;

static const int STACK_BYTES = 32768;
static ucontext_t scheduler, *fibers;
static char *stacks, *is_done;
static long long room;
static void (*body)(void*);
static void* arguments;

static void start() {
  body(arguments);
  is_done[threadIdx.x] = 1;
}

static void __syncthreads() { swapcontext(&fibers[threadIdx.x], &scheduler); }

// `kernel(data)` is what one thread does.
static void run_blocks(long long grid, long long block, void (*kernel)(void*), void* data) {
  body = kernel;
  arguments = data;
  gridDim = {(unsigned)grid, 1, 1};
  blockDim = {(unsigned)block, 1, 1};
  if (block > room) {
    room = block;
    fibers = (ucontext_t*)realloc(fibers, block * sizeof(ucontext_t));
    stacks = (char*)realloc(stacks, block * STACK_BYTES);
    is_done = (char*)realloc(is_done, block);
  }
  for (long long b = 0; b < grid; ++b) {
    blockIdx = {(unsigned)b, 0, 0};
    for (long long t = 0; t < block; ++t) {
      is_done[t] = 0;
      getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = stacks + t * STACK_BYTES;
      fibers[t].uc_stack.ss_size = STACK_BYTES;
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
#endif
