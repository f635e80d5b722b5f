// Attention wants the rows of a head one behind the other: (batch, heads, points, features) without gaps, of arrays that
// are (batch, points, heads, features) in memory, and results back. Up to four arrays in one launch; a thread moves a
// vector of 8 features where addresses and steps allow it, by 16 bytes at a time.
#include "common.cu"

template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Lanes {
  T at[N];
};

// Where vector `k` of an array by heads lies in the other one: in vectors, with steps of batch, point and head.
static __device__ unsigned across(unsigned k, unsigned points, unsigned heads, unsigned width, unsigned batch_step,
                                  unsigned point_step, unsigned head_step) {
  unsigned lane = k % width, row = k / width, point = row % points, line = row / points;
  return line / heads * batch_step + point * point_step + line % heads * head_step + lane;
}

template <typename S, typename T, int N, bool IS_GATHERED>
static __device__ void move_heads(const S* from, T* to, unsigned k, unsigned other) {
  Lanes<S, N> read = ((const Lanes<S, N>*)from)[IS_GATHERED ? other : k];
  Lanes<T, N> written;
  for (int j = 0; j < N; ++j) written.at[j] = (T)read.at[j];
  ((Lanes<T, N>*)to)[IS_GATHERED ? k : other] = written;
}

#define ARRAY(S, T, n)                                                                                      \
  const S *x##n, T *y##n, unsigned count##n, unsigned points##n, unsigned width##n, unsigned batch_step##n, \
      unsigned point_step##n, unsigned head_step##n

#define MOVE(S, T, N, GATHERS, n)                                                                                 \
  if (k < count##n) {                                                                                             \
    unsigned other = across((unsigned)k, points##n, heads, width##n, batch_step##n, point_step##n, head_step##n); \
    move_heads<S, T, N, GATHERS>(x##n, y##n, (unsigned)k, other);                                                 \
    return;                                                                                                       \
  }                                                                                                               \
  k -= count##n;

#define HEADS(kind, S, T, N, GATHERS, name)                                                                      \
  extern "C" __global__ void kind##_##N##_##name(ARRAY(S, T, 0), ARRAY(S, T, 1), ARRAY(S, T, 2), ARRAY(S, T, 3), \
                                                 unsigned heads) {                                               \
    long long k = THREAD;                                                                                        \
    MOVE(S, T, N, GATHERS, 0) MOVE(S, T, N, GATHERS, 1) MOVE(S, T, N, GATHERS, 2) MOVE(S, T, N, GATHERS, 3)      \
  }

#define HEADS_OF(T, A, name)                 \
  HEADS(gather_heads, T, T, 1, true, name)   \
  HEADS(gather_heads, T, T, 8, true, name)   \
  HEADS(scatter_heads, T, T, 1, false, name) \
  HEADS(scatter_heads, T, T, 8, false, name) \
  HEADS(scatter_sums, A, T, 1, false, name)  \
  HEADS(scatter_sums, A, T, 8, false, name)
FOR_ALL_TYPES(HEADS_OF)
