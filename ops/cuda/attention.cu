// Rows of scores of attention. A row is a query of a head; `queries` follow each other in the `rows` of a head, and
// query number `first` of all is the first of them. With `causal`, a query sees the keys up to its own number.
#include "common.cu"

static __device__ long long keys_seen(long long row, long long queries, long long first, long long keys,
                                      long long causal) {
  long long own = first + row % queries + 1;
  return causal && own < keys ? own : keys;
}

// Weights of the keys, and the logarithm of the sum of exponentials, which has `all` queries for each head; the scores
// are those of the queries from `begin` on.
#define ATTENTION(T, A, name)                                                                                         \
  extern "C" __global__ void attention_weights_##name(const A* scores, T* weights, A* statistics, long long queries,  \
                                                      long long all, long long begin, long long first, long long keys, \
                                                      long long causal, double scale) {                               \
    __shared__ A shared[BLOCK];                                                                                       \
    long long row = blockIdx.x, seen = keys_seen(row, queries, first, keys, causal);                                  \
    const A* x = scores + row * keys;                                                                                 \
    A most = x[0] * (A)scale;                                                                                         \
    for (long long c = threadIdx.x; c < seen; c += BLOCK)                                                             \
      if (x[c] * (A)scale > most || x[c] != x[c]) most = x[c] * (A)scale;                                             \
    most = block_max(most, shared);                                                                                   \
    A sum = 0;                                                                                                        \
    for (long long c = threadIdx.x; c < seen; c += BLOCK) sum += exp(x[c] * (A)scale - most);                         \
    sum = block_sum(sum, shared);                                                                                     \
    for (long long c = threadIdx.x; c < keys; c += BLOCK)                                                             \
      weights[row * keys + c] = c < seen ? exp(x[c] * (A)scale - most) / sum : (A)0;                                  \
    if (threadIdx.x == 0) statistics[row / queries * all + begin + row % queries] = most + log(sum);                  \
  }                                                                                                                   \
  extern "C" __global__ void attention_slopes_##name(                                                                 \
      const A* scores, const A* products, const A* statistics, T* weights, T* slopes, long long queries,              \
      long long all, long long begin, long long first, long long keys, long long causal, double scale) {              \
    __shared__ A shared[BLOCK];                                                                                       \
    long long row = blockIdx.x, seen = keys_seen(row, queries, first, keys, causal);                                  \
    const A *x = scores + row * keys, *u = products + row * keys;                                                     \
    A most = statistics[row / queries * all + begin + row % queries], inner = 0;                                      \
    for (long long c = threadIdx.x; c < seen; c += BLOCK) inner += exp(x[c] * (A)scale - most) * u[c];                \
    inner = block_sum(inner, shared);                                                                                 \
    for (long long c = threadIdx.x; c < keys; c += BLOCK) {                                                           \
      A weight = c < seen ? exp(x[c] * (A)scale - most) : (A)0;                                                       \
      weights[row * keys + c] = weight;                                                                               \
      slopes[row * keys + c] = c < seen ? weight * (u[c] - inner) * (A)scale : (A)0;                                  \
    }                                                                                                                 \
  }                                                                                                                   \
  extern "C" __global__ void scale_and_mask_##name(T* scores, long long queries, long long keys, long long seen,      \
                                                   double scale, long long count) {                                   \
    long long k = THREAD;                                                                                             \
    if (k < count)                                                                                                    \
      scores[k] = k % keys >= seen + k / keys % queries ? -(A)(1 / 0.0) : (A)scores[k] * (A)scale;                     \
  }
FOR_ALL_TYPES(ATTENTION)
