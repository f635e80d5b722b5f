// Mixtures of experts: choices of rows, slots of choices, and rows of tokens to slots and back; see ops/cpu/experts.py.
#include "common.cu"

#define INSIDE(slot, e, place) ((slot) >= 0 && (e) >= 0 && (e) < experts && (place) >= 0 && (place) < tile_places)

// A thread for each row.
#define CHOICES(T, A, name)                                                                                  \
  extern "C" __global__ void top_k_##name(const T* p, T* weights, int* choices, long long normalize,         \
                                          double threshold, long long experts, long long k,                  \
                                         long long count) {                                                  \
    long long row = THREAD;                                                                                  \
    if (row >= count) return;                                                                                \
    A total = 0;                                                                                             \
    for (long long j = 0; j < k; ++j) {                                                                      \
      long long best = -1;                                                                                   \
      for (long long e = 0; e < experts; ++e) {                                                              \
        if (best >= 0 && !((A)p[row * experts + e] > (A)p[row * experts + best])) continue;                  \
        bool is_taken = false;                                                                               \
        for (long long i = 0; i < j; ++i) is_taken |= choices[row * k + i] == e;                             \
        if (!is_taken) best = e;                                                                             \
      }                                                                                                      \
      choices[row * k + j] = (int)best;                                                                      \
      weights[row * k + j] = p[row * experts + best];                                                        \
    }                                                                                                        \
    for (long long j = 0; j < k; ++j) {                                                                      \
      if (threshold > 0 && j && (A)weights[row * k + j] < (A)threshold) {                                    \
        weights[row * k + j] = (A)0;                                                                         \
        choices[row * k + j] = -1;                                                                           \
      }                                                                                                      \
      total += (A)weights[row * k + j];                                                                      \
    }                                                                                                        \
    for (long long j = 0; normalize && j < k; ++j) weights[row * k + j] = (A)weights[row * k + j] / total;   \
  }                                                                                                          \
  extern "C" __global__ void top_k_gradient_##name(const T* gweights, const int* choices, const T* p, T* gp, \
                                                   long long normalize, long long experts, long long k,      \
                                                   long long count) {                                        \
    long long row = THREAD;                                                                                  \
    if (row >= count) return;                                                                                \
    for (long long e = 0; e < experts; ++e) gp[row * experts + e] = (A)0;                                    \
    A total = normalize ? 0 : 1, shared = 0;                                                                 \
    for (long long j = 0; normalize && j < k; ++j) {                                                         \
      if (choices[row * k + j] < 0) continue;                                                                \
      A chosen = p[row * experts + choices[row * k + j]];                                                    \
      total += chosen;                                                                                       \
      shared += (A)gweights[row * k + j] * chosen;                                                           \
    }                                                                                                        \
    if (normalize) shared /= total;                                                                          \
    for (long long j = 0; j < k; ++j)                                                                        \
      if (choices[row * k + j] >= 0)                                                                         \
        gp[row * experts + choices[row * k + j]] = ((A)gweights[row * k + j] - shared) / total;              \
  }
FOR_ALL_TYPES(CHOICES)

// A thread for each expert of each group takes its choices in order, first choices first.
#define SLOTS(I, index)                                                                                           \
  extern "C" __global__ void fill_slots_##index(const I* choices, const int* starts, I* slots, long long experts, \
                                                long long capacity, long long first, long long places,            \
                                                long long rows, long long k, long long count) {                   \
    long long at = THREAD;                                                                                        \
    if (at >= count) return;                                                                                      \
    long long e = at % experts, group = at / experts, used = 0;                                                   \
    long long begin = starts ? starts[e] : e * places, room = starts ? starts[e + 1] - starts[e] : capacity;      \
    for (long long j = 0; j < k; ++j)                                                                             \
      for (long long row = group * rows; row < (group + 1) * rows; ++row) {                                       \
        if (e == 0 && choices[row * k + j] < 0) slots[row * k + j] = (I)-2;                                       \
        if (choices[row * k + j] != e) continue;                                                                  \
        slots[row * k + j] = used < room ? (I)(begin + first + group * capacity + used) : (I)-1;                  \
        ++used;                                                                                                   \
      }                                                                                                           \
  }
SLOTS(int, int32)
SLOTS(long long, int64)

// A thread for each expert of each group counts the choices before its own, and numbers these, first choices first.
#define SORT(I, index)                                                                                             \
  extern "C" __global__ void sort_choices_##index(const I* choices, int* slots, int* starts, long long experts,    \
                                                  long long first, long long rows, long long k, long long count) { \
    long long at = THREAD;                                                                                         \
    if (at >= count) return;                                                                                       \
    long long e = at % experts, group = at / experts, begin = 0, own = 0;                                          \
    for (long long n = group * rows * k; n < (group + 1) * rows * k; ++n) {                                        \
      begin += choices[n] >= 0 && choices[n] < e;                                                                  \
      if (e == 0 && (choices[n] < 0 || choices[n] >= experts)) slots[n] = -2;                                      \
    }                                                                                                              \
    for (long long j = 0; j < k; ++j)                                                                              \
      for (long long row = group * rows; row < (group + 1) * rows; ++row)                                          \
        if (choices[row * k + j] == e) slots[row * k + j] = (int)(first + group * rows * k + begin + own++);       \
    starts[group * (experts + 1) + e] = (int)begin;                                                                \
    if (e == experts - 1) starts[group * (experts + 1) + experts] = (int)(begin + own);                            \
  }
SORT(int, int32)
SORT(long long, int64)

// The experts' layers of rows: a thread for each element of the result. `bias` and `x` may be null pointers.
#define ROWS_LINEAR(T, A, name)                                                                                      \
  extern "C" __global__ void rows_linear_##name(                                                                     \
      const T* x, const T* weight, const T* bias, const int* starts, T* y, long long low, long long group_low,       \
      long long expert_low, long long experts, long long table, long long group_rows, long long depth,               \
      long long width, long long matrix, long long by_column, long long by_depth, long long count) {                 \
    long long at = THREAD;                                                                                           \
    if (at >= count) return;                                                                                         \
    long long row = low + at / width, column = at % width, e = 0;                                                    \
    const int* ends = starts + (row / group_rows - group_low) * table + 1;                                           \
    while (e < table - 1 && ends[e] <= row % group_rows) ++e;                                                        \
    bool is_here = e < table - 1 && e >= expert_low && e < expert_low + experts;                                     \
    A sum = 0;                                                                                                       \
    const T* from = weight + (e - expert_low) * matrix + column * by_column;                                         \
    for (long long i = 0; is_here && i < depth; ++i) sum += (A)x[at / width * depth + i] * (A)from[i * by_depth];    \
    if (is_here && bias) sum += (A)bias[(e - expert_low) * width + column];                                          \
    y[at] = (T)sum;                                                                                                  \
  }                                                                                                                  \
  extern "C" __global__ void rows_gradient_##name(const T* gy, const T* x, const int* starts, T* out, long long low, \
                                                  long long high, long long group_low, long long expert_low,         \
                                                  long long groups, long long table, long long group_rows,           \
                                                  long long width, long long depth, long long count) {               \
    long long at = THREAD;                                                                                           \
    if (at >= count) return;                                                                                         \
    long long e = expert_low + at / (width * depth), column = at / depth % width, i = at % depth;                    \
    A sum = 0;                                                                                                       \
    for (long long g = 0; g < groups; ++g) {                                                                         \
      long long base = (group_low + g) * group_rows;                                                                 \
      long long begin = base + starts[g * table + e], end = base + starts[g * table + e + 1];                        \
      for (long long row = begin < low ? low : begin; row < end && row < high; ++row)                                \
        sum += (A)gy[(row - low) * width + column] * (x ? (A)x[(row - low) * depth + i] : (A)1);                     \
    }                                                                                                                \
    out[at] = (T)sum;                                                                                                \
  }
FOR_ALL_TYPES(ROWS_LINEAR)

// `weights` may be a null pointer, for ones. No two choices have one slot.
#define ROWS(T, A, name, I, index)                                                                                   \
  extern "C" __global__ void scatter_##name##_##index(                                                               \
      const T* x, const I* slots, const A* weights, T* y, long long expert_lo, long long place_lo, long long places, \
      long long experts, long long tile_places, long long k, long long width, long long count) {                     \
    long long at = THREAD;                                                                                           \
    if (at >= count) return;                                                                                         \
    long long choice = at / width, d = at % width, slot = slots[choice];                                             \
    long long e = slot / places - expert_lo, place = slot % places - place_lo;                                       \
    if (!INSIDE(slot, e, place)) return;                                                                             \
    A weight = weights ? weights[choice] : (A)1;                                                                     \
    y[(e * tile_places + place) * width + d] = weight * (A)x[choice / k * width + d];                                \
  }                                                                                                                  \
  extern "C" __global__ void gather_##name##_##index(                                                                \
      const T* x, const I* slots, const A* weights, T* y, long long expert_lo, long long place_lo, unsigned places,  \
      long long experts, long long tile_places, long long k, long long width, long long count) {                     \
    long long at = THREAD;                                                                                           \
    if (at >= count) return;                                                                                         \
    long long row = at / width, d = at % width;                                                                      \
    A total = 0;                                                                                                     \
    for (long long choice = row * k; choice < (row + 1) * k; ++choice) {                                             \
      long long slot = slots[choice], e = (unsigned)slot / places, place = slot - e * places - place_lo;             \
      e -= expert_lo; /* there are fewer than 2^32 slots */                                                          \
      if (INSIDE(slot, e, place))                                                                                    \
        total += (weights ? weights[choice] : (A)1) * (A)x[(e * tile_places + place) * width + d];                   \
    }                                                                                                                \
    y[at] = total;                                                                                                   \
  }                                                                                                                  \
  /* A block for each choice. */                                                                                     \
  extern "C" __global__ void gather_products_##name##_##index(                                                       \
      const T* gy, const T* x, const I* slots, A* out, long long expert_lo, long long place_lo, long long places,    \
      long long experts, long long tile_places, long long k, long long width) {                                      \
    __shared__ A shared[BLOCK];                                                                                      \
    long long slot = slots[blockIdx.x], e = slot / places - expert_lo, place = slot % places - place_lo;             \
    A total = 0;                                                                                                     \
    if (INSIDE(slot, e, place))                                                                                      \
      for (long long d = threadIdx.x; d < width; d += BLOCK)                                                         \
        total += (A)gy[blockIdx.x / k * width + d] * (A)x[(e * tile_places + place) * width + d];                    \
    total = block_sum(total, shared);                                                                                \
    if (threadIdx.x == 0) out[blockIdx.x] = total;                                                                   \
  }
#define ROWS_OF(T, A, name)    \
  ROWS(T, A, name, int, int32) \
  ROWS(T, A, name, long long, int64)
FOR_ALL_TYPES(ROWS_OF)

// A block for each expert of this task: its fraction of all `total` choices.
#define LOAD(T, A, name, I, index)                                                                                     \
  extern "C" __global__ void expert_load_##name##_##index(const I* choices, T* load, long long lo, long long count,    \
                                                          long long total) {                                           \
    __shared__ long long shared[BLOCK];                                                                                \
    long long own = 0;                                                                                                 \
    for (long long k = threadIdx.x; k < count; k += BLOCK) own += (long long)choices[k] == lo + (long long)blockIdx.x; \
    own = block_sum(own, shared);                                                                                      \
    if (threadIdx.x == 0) load[blockIdx.x] = (A)own / (A)total;                                                        \
  }
#define LOAD_OF(T, A, name)    \
  LOAD(T, A, name, int, int32) \
  LOAD(T, A, name, long long, int64)
FOR_ALL_TYPES(LOAD_OF)

// One block: how many choices got no slot.
#define DROPPED(I, index)                                                                             \
  extern "C" __global__ void count_dropped_##index(const I* slots, long long* out, long long count) { \
    __shared__ long long shared[BLOCK];                                                               \
    long long own = 0;                                                                                \
    for (long long k = threadIdx.x; k < count; k += BLOCK) own += slots[k] == -1;                     \
    own = block_sum(own, shared);                                                                     \
    if (threadIdx.x == 0) *out = own;                                                                 \
  }
DROPPED(int, int32)
DROPPED(long long, int64)
