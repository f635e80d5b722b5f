// What checked execution does to arrays of up to six dimensions that lie in memory with any steps (counted in elements),
// whatever they hold: fill them with a pattern of bytes, count the elements that still have it, add up all bits.
#define BLOCK 256
#define SHAPE                                                                                                   \
  long long n0, long long n1, long long n2, long long n3, long long n4, long long n5, long long s0, long long s1, \
      long long s2, long long s3, long long s4, long long s5, long long count
#define PLACE(k)                                                                                          \
  ((k) % n5 * s5 + (k) / n5 % n4 * s4 + (k) / (n5 * n4) % n3 * s3 + (k) / (n5 * n4 * n3) % n2 * s2 +      \
   (k) / (n5 * n4 * n3 * n2) % n1 * s1 + (k) / (n5 * n4 * n3 * n2 * n1) * s0)

typedef unsigned long long u64;

static __device__ u64 sum_of_block(u64 value, u64* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = BLOCK / 2; half; half >>= 1) {
    if ((int)threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  u64 total = shared[0];
  __syncthreads();
  return total;
}

// One block looks at an array: out[0] is the number of elements with the pattern, out[1] a sum over bits and places.
#define CHECK(T, bits, pattern)                                                                  \
  extern "C" __global__ void poison_##bits(T* a, SHAPE) {                                        \
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;                              \
    if (k < count) a[PLACE(k)] = pattern;                                                        \
  }                                                                                              \
  extern "C" __global__ void inspect_##bits(const T* a, u64* out, SHAPE) {                       \
    __shared__ u64 shared[BLOCK];                                                                \
    u64 poisoned = 0, sum = 0;                                                                   \
    for (long long k = threadIdx.x; k < count; k += BLOCK) {                                     \
      T value = a[PLACE(k)];                                                                     \
      poisoned += sizeof(T) > 1 && value == (T)pattern;                                          \
      u64 mixed = ((u64)value ^ ((u64)k << 32 | (u64)k >> 32)) * 0x9E3779B97F4A7C15ull;          \
      sum += mixed ^ mixed >> 29;                                                                \
    }                                                                                            \
    poisoned = sum_of_block(poisoned, shared);                                                   \
    sum = sum_of_block(sum, shared);                                                             \
    if (threadIdx.x == 0) {                                                                      \
      out[0] = poisoned;                                                                         \
      out[1] = sum;                                                                              \
    }                                                                                            \
  }
// *found = 1 if an element has all bits of `exponent`: then it is no finite number.
#define NOT_FINITE(T, bits)                                                                                     \
  extern "C" __global__ void not_finite_##bits(const T* a, u64* found, long long exponent, SHAPE) {             \
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;                                             \
    if (k < count && (a[PLACE(k)] & (T)exponent) == (T)exponent) *found = 1;                                    \
  }
NOT_FINITE(unsigned short, 16)
NOT_FINITE(unsigned, 32)
NOT_FINITE(u64, 64)

CHECK(unsigned char, 8, 0xFB)
CHECK(unsigned short, 16, 0xFBFB)
CHECK(unsigned, 32, 0xFBFBFBFBu)
CHECK(u64, 64, 0xFBFBFBFBFBFBFBFBull)
