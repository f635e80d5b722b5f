// Random numbers by global index, the same bits as taskflow/core/philox.py makes: Philox4x32-10 (Salmon et al., SC 2011).
#ifndef TASKFLOW_RANDOM
#define TASKFLOW_RANDOM

typedef unsigned int u32;
typedef unsigned long long u64;

// The first of the two 64-bit words for one counter.
static __device__ u64 philox(u64 counter, u64 key) {
  u32 k0 = (u32)key, k1 = (u32)(key >> 32);
  u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    u64 p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    u32 h0 = (u32)(p0 >> 32), l0 = (u32)p0, h1 = (u32)(p1 >> 32), l1 = (u32)p1;
    c0 = h1 ^ c1 ^ k0;
    c1 = l1;
    c2 = h0 ^ c3 ^ k1;
    c3 = l0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return ((u64)c0 << 32) | c1;
}

static __device__ double uniform_number(long long index, u64 key) {
  return (double)(philox((u64)index, key) >> 11) * (1.0 / 9007199254740992.0);
}

// The row-major index in its region of element k of a tile: extents of the tile, strides of the region, the first.
#define TILE_MAP                                                                                                   \
  long long n0, long long n1, long long n2, long long n3, long long n4, long long n5, long long s0, long long s1, \
      long long s2, long long s3, long long s4, long long s5, long long first
#define GLOBAL_INDEX(k)                                                                                   \
  (first + (k) % n5 * s5 + (k) / n5 % n4 * s4 + (k) / (n5 * n4) % n3 * s3 + (k) / (n5 * n4 * n3) % n2 * s2 + \
   (k) / (n5 * n4 * n3 * n2) % n1 * s1 + (k) / (n5 * n4 * n3 * n2 * n1) * s0)

// What is nearer to 1 than `largest` would be rounded to it.
#define UNIFORM(T, name, largest)                                                                 \
  extern "C" __global__ void uniform_##name(T* out, const u64* key, TILE_MAP, long long count) { \
    long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;                              \
    if (k >= count) return;                                                                      \
    T value = (T)uniform_number(GLOBAL_INDEX(k), *key);                                          \
    out[k] = value < largest ? value : largest;                                                  \
  }
UNIFORM(float, float32, 0.99999994f)
UNIFORM(double, float64, 0.99999999999999989)

#endif
