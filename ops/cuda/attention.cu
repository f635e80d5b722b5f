// Rows of scores of attention. A row is a query of a head; `queries` follow each other in the `rows` of a head, and
// query number `first` of all is the first of them. With `causal`, a query sees the keys up to its own number.
#include "common.cu"

static __device__ long long keys_seen(long long row, long long queries, long long first, long long keys,
                                      long long causal) {
  long long own = first + row % queries + 1;
  return causal && own < keys ? own : keys;
}

// How fast scores fall with the distance of a key: `ops.alibi_slopes`, of as many heads as have `power` as their largest
// power of two; without one, not at all.
static __device__ double slope_of(long long head, long long power) {
  if (!power) return 0;
  return exp2(head < power ? -8.0 * (head + 1) / power : -4.0 * (2 * (head - power) + 1) / power);
}

// Scores of a row times `scale`, with a bias by the distance of their keys. It has one of `count` heads from `head` on.
template <typename A>
struct Scores {
  const A* x;
  A scale, slope;
  long long query;
  __device__ A operator[](long long c) const { return x[c] * scale + slope * (A)(c - query); }
};
template <typename A>
static __device__ Scores<A> scores_of(const A* x, double scale, long long row, long long queries, long long first,
                                      long long keys, long long count, long long head, long long power) {
  A slope = (A)slope_of(head + row / queries % count, power);
  return {x + row * keys, (A)scale, slope, first + row % queries};
}

// Weights of the keys, and the logarithm of the sum of exponentials, which has `all` queries for each head; the scores
// are those of the queries from `begin` on.
#define ATTENTION(T, A, name)                                                                                         \
  extern "C" __global__ void attention_weights_##name(const A* scores, T* weights, A* statistics, long long queries,  \
                                                      long long all, long long begin, long long first,                \
                                                      long long keys, long long causal, long long count,              \
                                                      long long head, long long power, double scale) {                \
    __shared__ A shared[BLOCK];                                                                                       \
    long long row = blockIdx.x, seen = keys_seen(row, queries, first, keys, causal);                                  \
    Scores<A> x = scores_of(scores, scale, row, queries, first, keys, count, head, power);                            \
    A most = x[0];                                                                                                    \
    for (long long c = threadIdx.x; c < seen; c += BLOCK)                                                             \
      if (x[c] > most || x[c] != x[c]) most = x[c];                                                                   \
    most = block_max(most, shared);                                                                                   \
    A sum = 0;                                                                                                        \
    for (long long c = threadIdx.x; c < seen; c += BLOCK) sum += exp(x[c] - most);                                    \
    sum = block_sum(sum, shared);                                                                                     \
    for (long long c = threadIdx.x; c < keys; c += BLOCK)                                                             \
      weights[row * keys + c] = c < seen ? exp(x[c] - most) / sum : (A)0;                                             \
    if (threadIdx.x == 0) statistics[row / queries * all + begin + row % queries] = most + log(sum);                  \
  }                                                                                                                   \
  extern "C" __global__ void attention_slopes_##name(                                                                 \
      const A* scores, const A* products, const A* statistics, T* weights, T* slopes, long long queries,              \
      long long all, long long begin, long long first, long long keys, long long causal,                              \
      long long count, long long head, long long power, double scale) {                                               \
    __shared__ A shared[BLOCK];                                                                                       \
    long long row = blockIdx.x, seen = keys_seen(row, queries, first, keys, causal);                                  \
    Scores<A> x = scores_of(scores, scale, row, queries, first, keys, count, head, power);                            \
    const A* u = products + row * keys;                                                                               \
    A most = statistics[row / queries * all + begin + row % queries], inner = 0;                                      \
    for (long long c = threadIdx.x; c < seen; c += BLOCK) inner += exp(x[c] - most) * u[c];                           \
    inner = block_sum(inner, shared);                                                                                 \
    for (long long c = threadIdx.x; c < keys; c += BLOCK) {                                                           \
      A weight = c < seen ? exp(x[c] - most) : (A)0;                                                                  \
      weights[row * keys + c] = weight;                                                                               \
      slopes[row * keys + c] = c < seen ? weight * (u[c] - inner) * (A)scale : (A)0;                                  \
    }                                                                                                                 \
  }                                                                                                                   \
  extern "C" __global__ void scale_and_mask_##name(T* scores, long long queries, long long keys, long long seen,      \
                                                   double scale, long long count) {                                   \
    long long k = THREAD;                                                                                             \
    if (k < count)                                                                                                    \
      scores[k] = k % keys >= seen + k / keys % queries ? -(A)(1 / 0.0) : (A)scores[k] * (A)scale;                    \
  }                                                                                                                   \
  extern "C" __global__ void add_biases_##name(T* scores, long long queries, long long first, long long keys,         \
                                               long long count, long long head, long long power) {                    \
    long long row = blockIdx.x;                                                                                       \
    A slope = (A)slope_of(head + row / queries % count, power);                                                       \
    long long query = first + row % queries;                                                                          \
    T* x = scores + row * keys;                                                                                       \
    for (long long c = threadIdx.x; c < keys; c += BLOCK) x[c] = (A)x[c] + slope * (A)(c - query);                    \
  }
FOR_ALL_TYPES(ATTENTION)
