// Pairs i > j of n, in the order (1, 0), (2, 0), (2, 1), ...: out of matrices (rows, n, n) and back, on both sides.
#include "common.cu"

#define PAIRS(T, A, name)                                                                                            \
  extern "C" __global__ void take_pairs_##name(const T* products, T* y, long long lo, long long pairs, long long n,  \
                                               long long count) {                                                    \
    long long k = THREAD;                                                                                            \
    if (k >= count) return;                                                                                          \
    long long row = k / pairs, pair = lo + k % pairs, i = (long long)((1 + sqrt(1 + 8.0 * pair)) / 2);               \
    while (i * (i - 1) / 2 > pair) --i;                                                                              \
    while ((i + 1) * i / 2 <= pair) ++i;                                                                             \
    y[k] = products[(row * n + i) * n + pair - i * (i - 1) / 2];                                                     \
  }                                                                                                                  \
  extern "C" __global__ void put_pairs_##name(const T* gy, T* weights, long long lo, long long pairs, long long n,   \
                                              long long count) {                                                     \
    long long k = THREAD;                                                                                            \
    if (k >= count) return;                                                                                          \
    long long j = k % n, i = k / n % n, row = k / (n * n), large = i > j ? i : j;                                    \
    long long pair = large * (large - 1) / 2 + (i + j - large) - lo;                                                 \
    weights[k] = i != j && pair >= 0 && pair < pairs ? gy[row * pairs + pair] : (T)0.0f;                             \
  }
FOR_ALL_TYPES(PAIRS)
