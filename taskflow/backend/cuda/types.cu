// Numbers of 16 bits: stored as such, computed with as float. No header of CUDA is needed to compile them.
#ifndef TASKFLOW_TYPES
#define TASKFLOW_TYPES

union FloatBits {
  float value;
  unsigned bits;
};

struct bfloat16 {
  unsigned short bits;
  bfloat16() = default;
  __device__ bfloat16(float value) {  // rounded to nearest even
    FloatBits all;
    all.value = value;
    unsigned rounding = 0x7FFFu + (all.bits >> 16 & 1u);
    bits = value != value ? 0x7FC0 : (unsigned short)((all.bits + rounding) >> 16);
  }
  __device__ operator float() const {
    FloatBits all;
    all.bits = (unsigned)bits << 16;
    return all.value;
  }
};

#ifdef __CUDACC__
static __device__ float half_to_float(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
static __device__ unsigned short float_to_half(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
#endif

struct float16 {
  unsigned short bits;
  float16() = default;
  __device__ float16(float value) { bits = float_to_half(value); }
  __device__ operator float() const { return half_to_float(bits); }
};

// Every kernel K(T, A, name): numbers are stored as T, computed with and summed as A.
#define FOR_ALL_TYPES(K)     \
  K(float, float, float32)   \
  K(double, double, float64) \
  K(float16, float, float16) \
  K(bfloat16, float, bfloat16)

#endif
