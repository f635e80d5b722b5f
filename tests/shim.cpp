// What runs the blocks of kernels that are compiled with shim.h.
#include "shim.h"

#include <ucontext.h>

#include <cstdlib>
#include <cstring>

namespace shim {
// Numbers of 16 bits as IEEE 754 has them, rounded to nearest even.
static double widened(unsigned short bits) {
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  double value = exponent == 31  ? (mantissa ? NAN : INFINITY)
                 : exponent == 0 ? ldexp(mantissa, -24)
                                 : ldexp(mantissa + 1024, exponent - 25);
  return bits & 0x8000 ? -value : value;
}

static struct Halves {
  float values[1 << 16];
  Halves() {
    for (int bits = 0; bits < 1 << 16; ++bits) values[bits] = widened(bits);
  }
} halves;

float half_to_float(unsigned short bits) { return halves.values[bits]; }

unsigned short float_to_half(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  unsigned short sign = bits >> 16 & 0x8000;
  float size = std::fabs(value);
  if (value != value) return 0x7E00;
  if (size >= 65520) return sign | 0x7C00;
  if (size < ldexp(1, -14)) return sign | (unsigned short)nearbyint(ldexp(size, 24));
  unsigned rounded = (bits & 0x7FFFFFFF) + 0xFFF + (bits >> 13 & 1);
  return sign | (unsigned short)((rounded >> 13) - (112 << 10));
}

Dimensions threadIdx, blockIdx, blockDim, gridDim;
double* slots;

// A fiber is made once and runs what it is given again and again. It is left by the compiler's own jump: that stores
// three registers, and asks neither the system nor its library for anything.
typedef void* Place[5];
static const int STACK_BYTES = 32768;
static Place scheduler, *fibers;
static char* stacks;
static State* states;
static long long room;
static void (*body)(void*);
static void* arguments;

// Out of sight of who calls it: within one function the compiler takes its jump for one that never comes back.
__attribute__((noipa)) static void jump_to(void** place) { __builtin_longjmp(place, 1); }

__attribute__((noipa)) void leave(State state) {
  states[threadIdx.x] = state;
  if (!__builtin_setjmp(fibers[threadIdx.x])) jump_to(scheduler);
}

static void start() {
  for (;;) {
    leave(DONE);
    body(arguments);
  }
}

__attribute__((noipa)) static void resume(long long t) {
  threadIdx = {(unsigned)t, 0, 0};
  if (!__builtin_setjmp(scheduler)) jump_to(fibers[t]);
}

// The fiber of thread t, before it has a kernel.
__attribute__((noipa)) static void make_fiber(long long t) {
  ucontext_t context;
  threadIdx = {(unsigned)t, 0, 0};
  getcontext(&context);
  context.uc_stack.ss_sp = stacks + t * STACK_BYTES;
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, start, 0);
  if (!__builtin_setjmp(scheduler)) setcontext(&context);
}

static void make_fibers(long long count) {
  room = count;
  fibers = (Place*)realloc(fibers, count * sizeof(Place));
  stacks = (char*)realloc(stacks, count * STACK_BYTES);
  states = (State*)realloc(states, count * sizeof(State));
  slots = (double*)realloc(slots, count * sizeof(double));
  for (long long t = 0; t < count; ++t) make_fiber(t);
}

// The lanes from t on, until each is done or at the barrier of the block; whether one is at the barrier.
static bool run_warp(long long t, long long end) {
  for (bool is_running = true; is_running;) {
    is_running = false;
    for (long long lane = t; lane < end; ++lane) {
      if (states[lane] == DONE || states[lane] == AT_BLOCK) continue;
      resume(lane);
      is_running = is_running || states[lane] == AT_LANES;
    }
  }
  for (long long lane = t; lane < end; ++lane)
    if (states[lane] == AT_BLOCK) return true;
  return false;
}

void run_blocks(long long grid, long long block, void (*kernel)(void*), void* data) {
  body = kernel;
  arguments = data;
  gridDim = {(unsigned)grid, 1, 1};
  blockDim = {(unsigned)block, 1, 1};
  if (block > room) make_fibers(block);
  for (long long b = 0; b < grid; ++b) {
    blockIdx = {(unsigned)b, 0, 0};
    for (long long t = 0; t < block; ++t) states[t] = READY;
    for (bool is_over = false; !is_over;) {
      is_over = true;
      for (long long t = 0; t < block; t += WARP_LANES)
        is_over = !run_warp(t, t + WARP_LANES < block ? t + WARP_LANES : block) && is_over;
      for (long long t = 0; t < block; ++t)
        if (states[t] == AT_BLOCK) states[t] = READY;
    }
  }
}
}  // namespace shim
