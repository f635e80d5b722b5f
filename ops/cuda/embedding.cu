// Sums of rows of a table by index, in bags of one index or more. An index out of range makes its sum NaN; one of another
// task's rows counts as zero.
//
// The gradient sorts the indices, so that equal ones follow each other, and sums the rows of each: in chunks of the sorted
// list, then over the chunks that one index has. The order of a sum is fixed by the indices alone.
#include "common.cu"

typedef unsigned long long Key;  // a row of the table, behind all of them where it is no row, and a place in the indices
#define ROW(key) ((long long)((key) >> 32))
#define SORTED 2048  // keys of a run that one block sorts, two for each thread
#define CHUNK 32     // keys of a chunk

// Runs of sorted keys: a bitonic sort in shared memory.
#define SORT(I, index)                                                                                    \
  extern "C" __global__ void sort_runs_##index(const I* indices, Key* keys, long long lo, long long rows, \
                                               long long count) {                                         \
    __shared__ Key run[SORTED];                                                                           \
    long long begin = (long long)blockIdx.x * SORTED;                                                     \
    for (int k = (int)threadIdx.x; k < SORTED; k += SORTED / 2) {                                         \
      long long row = begin + k < count ? (long long)indices[begin + k] - lo : rows;                      \
      row = row < 0 || row > rows ? rows : row;                                                           \
      run[k] = begin + k < count ? (Key)row << 32 | (Key)(begin + k) : ~(Key)0;                           \
    }                                                                                                     \
    for (int size = 2; size <= SORTED; size *= 2)                                                         \
      for (int half = size / 2; half; half /= 2) {                                                        \
        __syncthreads();                                                                                  \
        int t = (int)threadIdx.x, low = 2 * t - (t & (half - 1)), high = low + half;                      \
        Key a = run[low], b = run[high];                                                                  \
        if ((a > b) == !(low & size)) run[low] = b, run[high] = a;                                        \
      }                                                                                                   \
    __syncthreads();                                                                                      \
    for (int k = (int)threadIdx.x; k < SORTED; k += SORTED / 2)                                           \
      if (begin + k < count) keys[begin + k] = run[k];                                                    \
  }
SORT(int, int32)
SORT(long long, int64)

// Merges runs of `length` keys, `together` of them into one: a key stands behind those of all runs that are smaller.
extern "C" __global__ void merge_runs(const Key* keys, Key* merged, long long length, int together,
                                      long long count) {
  long long k = THREAD;
  if (k >= count) return;
  Key mine = keys[k];
  long long own = k / length, first = own - own % together, place = first * length + (k - own * length);
  for (int n = 0; n < together; ++n) {
    long long begin = (first + n) * length, low = begin, high = begin + length < count ? begin + length : count;
    if (first + n == own || begin >= count) continue;
    while (low < high) {
      long long middle = (low + high) / 2;
      if (keys[middle] < mine)
        low = middle + 1;
      else
        high = middle;
    }
    place += low - begin;
  }
  merged[place] = mine;
}

// Whether the keys at k and before it are of one row.
static __device__ bool goes_on(const Key* keys, long long k, long long count) {
  return k > 0 && k < count && ROW(keys[k]) == ROW(keys[k - 1]);
}

#define EMBEDDING(T, W, A, name, I, index)                                                                   \
  /* A block for each sum. */                                                                                \
  extern "C" __global__ void sum_rows_##name##_##index(const I* indices, const W* table, T* y, long long lo, \
                                                       long long rows, int width, long long extent,          \
                                                       int bag) {                                            \
    const I* mine = indices + (long long)blockIdx.x * bag;                                                   \
    for (int e = (int)threadIdx.x; e < width; e += (int)blockDim.x) {                                        \
      A sum = 0;                                                                                             \
      for (int n = 0; n < bag; ++n) {                                                                        \
        long long wanted = (long long)mine[n], row = wanted - lo;                                            \
        if (wanted < 0 || wanted >= extent) sum = (A)NOT_A_NUMBER;                                           \
        if (row >= 0 && row < rows) sum += (A)table[row * width + e];                                        \
      }                                                                                                      \
      y[(long long)blockIdx.x * width + e] = sum;                                                            \
    }                                                                                                        \
  }
// A block for each chunk. A sum that is whole is added to its row of the table; else it goes to the pieces: of a row that
// began in an earlier chunk to the first of two, of one that goes on in the next to the second. BY_PLACE: sums are not
// added, but put where the keys of their rows begin in the sorted list.
template <typename T, typename W, typename A, bool BY_PLACE>
static __device__ void sum_chunk(const T* gy, const Key* keys, W* table, A* pieces, long long rows, int width,
                                 unsigned bag, long long count) {
  long long begin = (long long)blockIdx.x * CHUNK, end = begin + CHUNK < count ? begin + CHUNK : count;
  for (int e = (int)threadIdx.x; e < width; e += (int)blockDim.x) {
    bool is_begun = goes_on(keys, begin, count);
    long long place = begin;
    A sum = 0;
    for (long long k = begin; k < end; ++k) {
      long long row = ROW(keys[k]);
      if (row >= rows) break;  // of another task, as all behind it
      sum += (A)gy[(long long)((unsigned)keys[k] / bag) * width + e];
      bool is_last = !goes_on(keys, k + 1, count);
      if (!is_last && k + 1 < end) continue;
      if (is_begun || !is_last)
        pieces[((long long)blockIdx.x * 2 + !is_begun) * width + e] = sum;
      else if (BY_PLACE)
        table[place * width + e] = sum;
      else
        table[row * width + e] = (A)table[row * width + e] + sum;
      is_begun = false;
      place = k + 1;
      sum = 0;
    }
  }
}

// A block for each chunk: the row that begins in it and goes on gets its pieces.
template <typename W, typename A, bool BY_PLACE>
static __device__ void sum_piece(const A* pieces, const Key* keys, W* table, long long rows, long long width,
                                 long long count) {
  long long end = ((long long)blockIdx.x + 1) * CHUNK, first = end - CHUNK, place = end - 1;
  if (!goes_on(keys, end, count)) return;
  long long row = ROW(keys[end]);
  if (row >= rows || (goes_on(keys, first, count) && ROW(keys[first]) == row)) return;  // it began before
  while (place > first && goes_on(keys, place, count)) --place;
  for (int e = (int)threadIdx.x; e < width; e += (int)blockDim.x) {
    A sum = pieces[((long long)blockIdx.x * 2 + 1) * width + e];
    long long at = end;
    do {
      sum += pieces[at / CHUNK * 2 * width + e];
      at += CHUNK;
    } while (goes_on(keys, at, count) && ROW(keys[at]) == row);
    if (BY_PLACE)
      table[place * width + e] = sum;
    else
      table[row * width + e] = (A)table[row * width + e] + sum;
  }
}

#define SEGMENTS(T, W, A, name)                                                                                   \
  extern "C" __global__ void sum_chunks_##name(const T* gy, const Key* keys, W* table, A* pieces, long long rows, \
                                               int width, unsigned bag, long long count) {                        \
    sum_chunk<T, W, A, false>(gy, keys, table, pieces, rows, width, bag, count);                                  \
  }                                                                                                               \
  extern "C" __global__ void sum_pieces_##name(const A* pieces, const Key* keys, W* table, long long rows,        \
                                               int width, long long count) {                                      \
    sum_piece<W, A, false>(pieces, keys, table, rows, width, count);                                              \
  }

// Rows that are looked up, in their order: of each, the first place of its keys has the sum of its gradients, and the row
// itself, which is taken from the table and put back; the other places have nothing.
#define ROWS(T, name)                                                                                              \
  extern "C" __global__ void place_chunks_##name(const T* gy, const Key* keys, T* sums, T* pieces, long long rows, \
                                                 int width, unsigned bag, long long count) {                       \
    sum_chunk<T, T, T, true>(gy, keys, sums, pieces, rows, width, bag, count);                                     \
  }                                                                                                                \
  extern "C" __global__ void place_pieces_##name(const T* pieces, const Key* keys, T* sums, long long rows,        \
                                                 int width, long long count) {                                     \
    sum_piece<T, T, true>(pieces, keys, sums, rows, width, count);                                                 \
  }                                                                                                                \
  extern "C" __global__ void take_rows_##name(const T* table, const Key* keys, T* work, long long rows,            \
                                              int width, long long count) {                                        \
    long long row = ROW(keys[blockIdx.x]);                                                                         \
    if (row >= rows || goes_on(keys, blockIdx.x, count)) return;                                                   \
    for (int e = (int)threadIdx.x; e < width; e += (int)blockDim.x)                                                \
      work[(long long)blockIdx.x * width + e] = table[row * width + e];                                            \
  }                                                                                                                \
  extern "C" __global__ void put_rows_##name(const T* work, const Key* keys, T* table, long long rows,             \
                                             int width, long long count) {                                         \
    long long row = ROW(keys[blockIdx.x]);                                                                         \
    if (row >= rows || goes_on(keys, blockIdx.x, count)) return;                                                   \
    for (int e = (int)threadIdx.x; e < width; e += (int)blockDim.x)                                                \
      table[row * width + e] = work[(long long)blockIdx.x * width + e];                                            \
  }
ROWS(float, float32)
ROWS(double, float64)
// A table of float32 may have rows of half size.
#define EMBEDDING_OF(T, W, A, name)          \
  EMBEDDING(T, W, A, name, int, int32)       \
  EMBEDDING(T, W, A, name, long long, int64) \
  SEGMENTS(T, W, A, name)
EMBEDDING_OF(float, float, float, float32_float32)
EMBEDDING_OF(double, double, double, float64_float64)
EMBEDDING_OF(float16, float, float, float16_float32)
EMBEDDING_OF(bfloat16, float, float, bfloat16_float32)
EMBEDDING_OF(float16, float16, float, float16_float16)
EMBEDDING_OF(bfloat16, bfloat16, float, bfloat16_bfloat16)
