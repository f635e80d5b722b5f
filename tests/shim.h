// CUDA C as C++: blocks run one after the other; the threads of a block are fibers that take turns at __syncthreads.
// So every thread runs up to a barrier before any goes on, and a thread that waits at another barrier hangs nobody.
// With SHIM_WORDS it has the words of CUDA alone, for whom expands the macros of a source.
#ifdef SHIM_WORDS
#define __global__ static
#define __device__
#define __shared__ static
#else
#include <setjmp.h>
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

// A fiber is made once and runs what it is given again and again. It is left by a jump: unlike swapcontext, that asks
// the kernel for nothing.
static const int STACK_BYTES = 32768;
static jmp_buf scheduler, *fibers;
static char *stacks, *is_done;
static long long room;
static void (*body)(void*);
static void* arguments;

static void __syncthreads() {
  if (!_setjmp(fibers[threadIdx.x])) _longjmp(scheduler, 1);
}

static void start() {
  for (;;) {
    __syncthreads();
    body(arguments);
    is_done[threadIdx.x] = 1;
  }
}

static void resume(long long t) {
  threadIdx = {(unsigned)t, 0, 0};
  if (!_setjmp(scheduler)) _longjmp(fibers[t], 1);
}

// The fiber of thread t, at its first barrier.
static void make_fiber(long long t) {
  ucontext_t context;
  threadIdx = {(unsigned)t, 0, 0};
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + t * STACK_BYTES;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, start, 0);
  if (!_setjmp(scheduler)) setcontext(&context);
}

static void make_fibers(long long count) {
  room = count;
  fibers = (jmp_buf*)realloc(fibers, count * sizeof(jmp_buf));
  stacks = (char*)realloc(stacks, count * STACK_BYTES);
  is_done = (char*)realloc(is_done, count);
  for (long long t = 0; t < count; ++t) make_fiber(t);
}

// `kernel(data)` is what one thread does.
static void run_blocks(long long grid, long long block, void (*kernel)(void*), void* data) {
  body = kernel;
  arguments = data;
  gridDim = {(unsigned)grid, 1, 1};
  blockDim = {(unsigned)block, 1, 1};
  if (block > room) make_fibers(block);
  for (long long b = 0; b < grid; ++b) {
    blockIdx = {(unsigned)b, 0, 0};
    for (long long t = 0; t < block; ++t) is_done[t] = 0;
    for (bool is_over = false; !is_over;) {
      is_over = true;
      for (long long t = 0; t < block; ++t) {
        if (is_done[t]) continue;
        resume(t);
        is_over = is_over && is_done[t];
      }
    }
  }
}
#endif
