// Attention without a matrix of scores (Dao et al., NeurIPS 2022): a block has some rows of a head, goes through the
// others a tile at a time and makes their scores anew. What a causal mask hides is skipped, tile by tile. Sums are taken in
// one order: nothing is added by atomics, so some blocks make the gradients of queries and others those of keys, side by
// side in one launch, so that what both read is read from memory once.
//
// A head has D features at most, a multiple of 16. Exponentials are powers of 2, for which GPUs have an instruction.
#include "products.cu"

#define LOG2_OF_E 1.4426950408889634
#define LN_OF_2 0.6931471805599453

// Rows of a head, of the features that it has: `step` elements from one to the next, those of a row beside each other.
template <typename T>
struct Rows {
  T* data;
  long long step;
  int count, width;
};

// Which of all (batch, heads, points, features) an array is of a head: steps in elements.
#define STEPS(a) long long a##_batch, long long a##_row, long long a##_head
#define HEAD(a) (a + head / heads * a##_batch + head % heads * a##_head)

// Has the block copy N rows of a head, zeros where there are none, to a tile; they are there after `await_copies`.
template <typename T, int D, int N>
static __device__ void load_rows(T* tile, const Rows<const T>& from, int begin, bool by_vectors) {
  const int V = VECTOR(T), ACROSS = D / V, STEP = D + PAD(T);
  if (by_vectors) {
    for (int k = (int)threadIdx.x; k < N * ACROSS; k += THREADS) {
      int row = k / ACROSS, col = k % ACROSS * V;
      bool is_there = begin + row < from.count && col < from.width;
      copy_vector(tile + row * STEP + col, is_there ? from.data + (begin + row) * from.step + col : from.data, is_there);
    }
    return;
  }
  for (int k = (int)threadIdx.x; k < N * D; k += THREADS) {
    int row = k / D, col = k % D;
    bool is_there = begin + row < from.count && col < from.width;
    copy_element(tile + row * STEP + col, from.data + (begin + row) * from.step + col, is_there);
  }
}

template <typename T, typename P>
static __device__ void store_rows(const P& made, const Rows<T>& to, int begin) {
#pragma unroll
  for (int i = 0; i < P::I; ++i)
#pragma unroll
    for (int j = 0; j < P::J; ++j)
      if (begin + P::row(i) < to.count && P::col(j) < to.width)
        to.data[(begin + P::row(i)) * to.step + P::col(j)] = made.sums[i][j];
}

// How many keys query number `query` sees.
static __device__ int keys_seen(int query, int first, int keys, bool is_causal) {
  int own = first + query + 1;
  return is_causal && own < keys ? own : keys;
}

template <typename T, int D, int ROWS, int COLS>
static __device__ void attend(const Rows<const T>& q, const Rows<const T>& k, const Rows<const T>& v, const Rows<T>& y,
                              typename SumsOf<T>::type* statistics, int begin, int first, bool is_causal,
                              bool by_vectors, double scale) {
  typedef typename SumsOf<T>::type A;
  const int STEP = D + PAD(T);
  typedef Product<T, ROWS, COLS, false> Scores;
  __shared__ __align__(16) T queries[ROWS * STEP], keys[COLS * STEP], values[COLS * STEP], own[Scores::OWN];
  Scores scores;
  Product<T, ROWS, D, true> out;
  A most[Scores::I], total[Scores::I], by_2 = (A)(scale * LOG2_OF_E);
  out.clear();
#pragma unroll
  for (int i = 0; i < Scores::I; ++i) most[i] = -INFINITE(A), total[i] = 0;
  int seen = keys_seen((begin + ROWS < q.count ? begin + ROWS : q.count) - 1, first, k.count, is_causal);
  load_rows<T, D, ROWS>(queries, q, begin, by_vectors);
  load_rows<T, D, COLS>(keys, k, 0, by_vectors);
  for (int at = 0; at < seen; at += COLS) {
    await_copies();
    __syncthreads();  // the keys are there, and nobody reads the values any more
    load_rows<T, D, COLS>(values, v, at, by_vectors);
    scores.clear();
    scores.template add<D, false>(queries, STEP, keys, STEP);
#pragma unroll
    for (int i = 0; i < Scores::I; ++i) {
      int end = keys_seen(begin + Scores::row(i), first, k.count, is_causal) - at;
      A largest = -INFINITE(A);
#pragma unroll
      for (int j = 0; j < Scores::J; ++j) {
        if (Scores::col(j) >= end) scores.sums[i][j] = -INFINITE(A);
        largest = scores.sums[i][j] > largest ? scores.sums[i][j] : largest;
      }
      largest = max_of_row<Scores::LANES>(largest) * by_2;
      largest = largest > most[i] ? largest : most[i];
      A kept = exp2(most[i] - largest);
      most[i] = largest;
      total[i] *= kept;
#pragma unroll
      for (int j = 0; j < Scores::J; ++j) {
        scores.sums[i][j] = exp2(fma(scores.sums[i][j], by_2, -largest));
        total[i] += scores.sums[i][j];
      }
#pragma unroll
      for (int j = 0; j < out.J; ++j) out.sums[i][j] *= kept;
    }
    await_copies();
    __syncthreads();  // the values are there, and nobody reads the keys any more
    if (at + COLS < seen) load_rows<T, D, COLS>(keys, k, at + COLS, by_vectors);
    out.add_times(scores, values, STEP, own);
  }
#pragma unroll
  for (int i = 0; i < Scores::I; ++i) {
    A sum = sum_of_row<Scores::LANES>(total[i]);
#pragma unroll
    for (int j = 0; j < out.J; ++j) out.sums[i][j] /= sum;
    int row = begin + Scores::row(i);
    if (Scores::col(0) == 0 && row < q.count) statistics[row] = (most[i] + log2(sum)) * (A)LN_OF_2;
  }
  store_rows(out, y, begin);
}

// What a block of the gradients has in shared memory: two tiles of its rows, two of those that it goes through.
template <typename T, int D, int ROWS, int COLS>
struct Tiles {
  static const int STEP = D + PAD(T);
  __align__(16) T mine[2][ROWS * STEP];
  __align__(16) T others[2][COLS * STEP];
  __align__(16) T own[Product<T, ROWS, COLS, false>::OWN];
  typename SumsOf<T>::type levels[COLS], offsets[COLS];
};

// The gradient of queries.
template <typename T, int D, int ROWS, int COLS>
static __device__ void slopes_of_queries(Tiles<T, D, ROWS, COLS>& tiles, const Rows<const T>& gy, const Rows<const T>& y,
                                         const typename SumsOf<T>::type* statistics, const Rows<const T>& q,
                                         const Rows<const T>& k, const Rows<const T>& v, const Rows<T>& gq, int begin,
                                         int first, bool is_causal, bool by_vectors, double scale) {
  typedef typename SumsOf<T>::type A;
  const int STEP = D + PAD(T);
  typedef Product<T, ROWS, COLS, false> Scores;
  T *queries = tiles.mine[0], *slopes = tiles.mine[1], *keys = tiles.others[0], *values = tiles.others[1];
  T* own = tiles.own;
  Scores scores, products;
  Product<T, ROWS, D, true> out;
  A level[Scores::I], offset[Scores::I], by_2 = (A)(scale * LOG2_OF_E);
  out.clear();
  load_rows<T, D, ROWS>(queries, q, begin, by_vectors);
  load_rows<T, D, ROWS>(slopes, gy, begin, by_vectors);
  await_copies();
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Scores::I; ++i) {
    int row = begin + Scores::row(i), lane = Scores::col(0) * Scores::LANES / 8;
    A sum = 0;
    if (row < q.count)
      for (int e = lane; e < y.width; e += Scores::LANES)
        sum += (A)slopes[Scores::row(i) * STEP + e] * (A)y.data[row * y.step + e];
    offset[i] = sum_of_row<Scores::LANES>(sum);
    level[i] = row < q.count ? statistics[row] * (A)LOG2_OF_E : INFINITE(A);
  }
  int seen = keys_seen((begin + ROWS < q.count ? begin + ROWS : q.count) - 1, first, k.count, is_causal);
  for (int at = 0; at < seen; at += COLS) {
    load_rows<T, D, COLS>(keys, k, at, by_vectors);
    load_rows<T, D, COLS>(values, v, at, by_vectors);
    await_copies();
    __syncthreads();
    scores.clear();
    products.clear();
    scores.template add<D, false>(queries, STEP, keys, STEP);
    products.template add<D, false>(slopes, STEP, values, STEP);
#pragma unroll
    for (int i = 0; i < Scores::I; ++i) {
      int end = keys_seen(begin + Scores::row(i), first, k.count, is_causal) - at;
#pragma unroll
      for (int j = 0; j < Scores::J; ++j) {
        A weight = Scores::col(j) < end ? exp2(fma(scores.sums[i][j], by_2, -level[i])) : (A)0;
        scores.sums[i][j] = weight * (products.sums[i][j] - offset[i]) * (A)scale;
      }
    }
    out.add_times(scores, keys, STEP, own);
    __syncthreads();  // nobody reads the tiles any more
  }
  store_rows(out, gq, begin);
}

// The gradients of keys and values: the rows are keys, the columns queries. LANES threads sum gy y of a query.
template <typename T, int D, int ROWS, int COLS>
static __device__ void slopes_of_keys(Tiles<T, D, ROWS, COLS>& tiles, const Rows<const T>& gy, const Rows<const T>& y,
                                      const typename SumsOf<T>::type* statistics, const Rows<const T>& q,
                                      const Rows<const T>& k, const Rows<const T>& v, const Rows<T>& gk,
                                      const Rows<T>& gv, int begin, int first, bool is_causal, bool by_vectors,
                                      double scale) {
  typedef typename SumsOf<T>::type A;
  const int STEP = D + PAD(T), LANES = THREADS / COLS;
  typedef Product<T, ROWS, COLS, false> Scores;
  T *keys = tiles.mine[0], *values = tiles.mine[1], *queries = tiles.others[0], *slopes = tiles.others[1];
  T* own = tiles.own;
  A *levels = tiles.levels, *offsets = tiles.offsets;
  Scores scores, products;
  Product<T, ROWS, D, true> of_keys, of_values;
  A by_2 = (A)(scale * LOG2_OF_E);
  of_keys.clear();
  of_values.clear();
  load_rows<T, D, ROWS>(keys, k, begin, by_vectors);
  load_rows<T, D, ROWS>(values, v, begin, by_vectors);
  int at = is_causal && begin > first ? (begin - first) / COLS * COLS : 0;  // earlier queries see none of these keys
  int query = (int)threadIdx.x / LANES, lane = (int)threadIdx.x % LANES;
  for (; at < q.count; at += COLS) {
    load_rows<T, D, COLS>(queries, q, at, by_vectors);
    load_rows<T, D, COLS>(slopes, gy, at, by_vectors);
    await_copies();
    __syncthreads();
    A sum = 0;
    bool is_there = at + query < q.count;  // a query that is not there has weights of 0
    for (int e = is_there ? lane : y.width; e < y.width; e += LANES)
      sum += (A)slopes[query * STEP + e] * (A)y.data[(at + query) * y.step + e];
    sum = sum_of_row<LANES>(sum);
    if (lane == 0) {
      levels[query] = is_there ? statistics[at + query] * (A)LOG2_OF_E : INFINITE(A);
      offsets[query] = sum;
    }
    scores.clear();
    products.clear();
    scores.template add<D, false>(keys, STEP, queries, STEP);
    products.template add<D, false>(values, STEP, slopes, STEP);
    __syncthreads();  // all levels and offsets are there
#pragma unroll
    for (int i = 0; i < Scores::I; ++i)
#pragma unroll
      for (int j = 0; j < Scores::J; ++j) {
        int col = Scores::col(j);
        bool is_seen = !is_causal || begin + Scores::row(i) <= first + at + col;
        A weight = is_seen ? exp2(fma(scores.sums[i][j], by_2, -levels[col])) : (A)0;
        scores.sums[i][j] = weight;
        products.sums[i][j] = weight * (products.sums[i][j] - offsets[col]) * (A)scale;
      }
    of_values.add_times(scores, slopes, STEP, own);
    of_keys.add_times(products, queries, STEP, own);
    __syncthreads();  // nobody reads the tiles any more
  }
  store_rows(of_keys, gk, begin);
  store_rows(of_values, gv, begin);
}

// -- kernels -----------------------------------------------------------------------------------------------------------
//
// Blocks are heads by tiles; the queries that see the most keys come first. Of the gradients, blocks of queries and of keys
// take turns as long as there are both.

#define SHAPE                                                                                   \
  int heads, int queries, int keys, int width, int value_width, int first, long long is_causal, \
      long long by_vectors, double scale
#define PLACE(block, rows, tile_rows) \
  int tiles = (rows + tile_rows - 1) / tile_rows, tile = (block) % tiles, head = (block) / tiles;

// ROWS of queries see COLS keys at a time; for the gradients, ROWS_BACK see COLS_BACK.
#define FLASH(T, A, name, D, ROWS, COLS, ROWS_BACK, COLS_BACK)                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS) flash_forward_##name(                                                  \
      const T* q, const T* k, const T* v, T* y, A* statistics, STEPS(q), STEPS(k), STEPS(v), STEPS(y), SHAPE) {                \
    PLACE((int)blockIdx.x, queries, ROWS)                                                                                      \
    attend<T, D, ROWS, COLS>({HEAD(q), q_row, queries, width}, {HEAD(k), k_row, keys, width},                                  \
                 {HEAD(v), v_row, keys, value_width}, {HEAD(y), y_row, queries, value_width},                                  \
                 statistics + (long long)head * queries, (tiles - 1 - tile) * ROWS, first, is_causal, by_vectors, scale);      \
  }                                                                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS) flash_gradients_##name(                                                \
      const T* gy, const T* y, const A* statistics, const T* q, const T* k, const T* v, T* gq, T* gk, T* gv, STEPS(gy),        \
      STEPS(y), STEPS(q), STEPS(k), STEPS(v), STEPS(gq), STEPS(gk), STEPS(gv), int of_queries, int of_keys, SHAPE) {           \
    __shared__ Tiles<T, D, ROWS_BACK, COLS_BACK> shared;                                                                       \
    int both = 2 * (of_queries < of_keys ? of_queries : of_keys), block = (int)blockIdx.x;                                     \
    bool is_of_keys = block < both ? block % 2 : of_keys > of_queries;                                                         \
    block = block < both ? block / 2 : block - both / 2;                                                                       \
    PLACE(block, (is_of_keys ? keys : queries), ROWS_BACK)                                                                     \
    Rows<const T> slopes = {HEAD(gy), gy_row, queries, value_width}, result = {HEAD(y), y_row, queries, value_width},          \
                  query = {HEAD(q), q_row, queries, width}, key = {HEAD(k), k_row, keys, width},                               \
                  value = {HEAD(v), v_row, keys, value_width};                                                                 \
    Rows<T> to_query = {HEAD(gq), gq_row, queries, width}, to_key = {HEAD(gk), gk_row, keys, width},                           \
            to_value = {HEAD(gv), gv_row, keys, value_width};                                                                  \
    const A* kept = statistics + (long long)head * queries;                                                                    \
    if (is_of_keys)                                                                                                            \
      slopes_of_keys<T, D, ROWS_BACK, COLS_BACK>(shared, slopes, result, kept, query, key, value, to_key, to_value,            \
                                                 tile * ROWS_BACK, first, is_causal, by_vectors, scale);                       \
    else                                                                                                                       \
      slopes_of_queries<T, D, ROWS_BACK, COLS_BACK>(shared, slopes, result, kept, query, key, value, to_query,                 \
                                                    (tiles - 1 - tile) * ROWS_BACK, first, is_causal, by_vectors, scale);      \
  }
