// Products of tiles in shared memory, which a block of 128 threads sums into registers. float and double are multiplied
// by each thread for itself; float16, bfloat16 and tf32 by the matrix units of the GPU, summed in float (`mma`, from
// sm_80 on).
//
// `Product<T, ROWS, COLS, B_IS_BY_DEPTH>` says which sums a thread has: sum(i, j) is that of row(i) and col(j). The lanes
// of a warp share rows, LANES of them each row. Rows of a tile in memory are PAD elements longer than their contents, so
// that a warp reads eight of them without a conflict of banks.
#ifndef TASKFLOW_PRODUCTS
#define TASKFLOW_PRODUCTS

#include "common.cu"

#define THREADS 128
#define INFINITE(A) ((A)(1 / 0.0))
#define VECTOR(T) (16 / (int)sizeof(T))  // elements that are moved at once
#define PAD(T) VECTOR(T)

template <typename T>
struct SumsOf {
  typedef float type;
};
template <>
struct SumsOf<double> {
  typedef double type;
};

static __device__ int lane_of_warp() { return (int)threadIdx.x % 32; }

// -- copies into shared memory -----------------------------------------------------------------------------------------

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// 16 bytes to shared memory, or zeros; they are there for this thread after `await_copies`.
static __device__ void copy_vector(void* to, const void* from, bool is_there) {
  unsigned target = (unsigned)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}
static __device__ void await_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
struct __align__(16) Vector {
  unsigned words[4];
};
static __device__ void copy_vector(void* to, const void* from, bool is_there) {
  Vector zeros = {{0, 0, 0, 0}};
  *(Vector*)to = is_there ? *(const Vector*)from : zeros;
}
static __device__ void await_copies() {}
#endif

template <typename T>
static __device__ void copy_element(T* to, const T* from, bool is_there) {
  *to = is_there ? *from : (T)0.0f;
}

// -- by each thread for itself -----------------------------------------------------------------------------------------

// So many numbers that are read from shared memory at once.
template <typename A, int COUNT>
struct __align__(sizeof(A) * COUNT < 16 ? sizeof(A) * COUNT : 16) Several {
  A values[COUNT];
};

template <typename T, int ROWS_OF_TILE, int COLS_OF_TILE, bool B_IS_BY_DEPTH>
struct Product {
  typedef T A;
  static const int ROWS = ROWS_OF_TILE, COLS = COLS_OF_TILE, LANES = 8;
  static const int I = ROWS / 16, J = COLS / 8;
  static const int W = B_IS_BY_DEPTH ? (COLS % 32 ? 2 : 4) : 1;  // columns beside each other
  static const int OWN = ROWS * (COLS + PAD(T));                           // elements of memory for `times`
  A sums[I][J];

  static __device__ int row(int i) { return (int)threadIdx.x / 8 + 16 * i; }
  static __device__ int col(int j) { return j / W * 8 * W + (int)threadIdx.x % 8 * W + j % W; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < I; ++i)
#pragma unroll
      for (int j = 0; j < J; ++j) sums[i][j] = 0;
  }

  // Adds a b, summed over DEPTH: tiles of a by (row, depth), or by (depth, row); of b by (col, depth), or by (depth, col).
  // Short sums first: long ones of float32 lose digits.
  template <int DEPTH, bool A_IS_BY_DEPTH>
  __device__ void add(const T* a, int a_step, const T* b, int b_step) {
    const int SHORT = DEPTH % 32 ? DEPTH % 16 ? DEPTH : 16 : 32;
#pragma unroll 1
    for (int k = 0; k < DEPTH; k += SHORT) {
      Product part;
      part.clear();
      part.template add_short<SHORT, A_IS_BY_DEPTH>(a + (A_IS_BY_DEPTH ? k * a_step : k), a_step,
                                                    b + (B_IS_BY_DEPTH ? k * b_step : k), b_step);
#pragma unroll
      for (int i = 0; i < I; ++i)
#pragma unroll
        for (int j = 0; j < J; ++j) sums[i][j] += part.sums[i][j];
    }
  }

  template <int DEPTH, bool A_IS_BY_DEPTH>
  __device__ void add_short(const T* a, int a_step, const T* b, int b_step) {
    const int K = A_IS_BY_DEPTH ? 1 : 4;
#pragma unroll 4
    for (int k = 0; k < DEPTH; k += K) {
      Several<A, K> left[I], right[J];
#pragma unroll
      for (int i = 0; i < I; ++i)
        left[i] = *(const Several<A, K>*)(A_IS_BY_DEPTH ? a + k * a_step + row(i) : a + row(i) * a_step + k);
#pragma unroll
      for (int j = 0; j < J; j += W)
        if (!B_IS_BY_DEPTH) right[j] = *(const Several<A, K>*)(b + col(j) * b_step + k);
#pragma unroll
      for (int n = 0; n < K; ++n) {
#pragma unroll
        for (int j = 0; j < J; j += W)
          if (B_IS_BY_DEPTH) {
            Several<A, W> found = *(const Several<A, W>*)(b + (k + n) * b_step + col(j));
#pragma unroll
            for (int w = 0; w < W; ++w) right[j + w].values[n] = found.values[w];
          }
#pragma unroll
        for (int i = 0; i < I; ++i)
#pragma unroll
          for (int j = 0; j < J; ++j) sums[i][j] = fma(left[i].values[n], right[j].values[n], sums[i][j]);
      }
    }
  }

  // Adds s b, with the rows of s that this warp has; `own` is memory of the block that is used for nothing else.
  template <typename S>
  __device__ void add_times(const S& s, const T* b, int b_step, T* own) {
    const int step = S::COLS + PAD(T);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < S::I; ++i)
#pragma unroll
      for (int j = 0; j < S::J; ++j) own[row(i) * step + S::col(j)] = s.sums[i][j];
    __syncwarp();
    add<S::COLS, false>(own, step, b, b_step);
  }
};

// -- by matrix units ---------------------------------------------------------------------------------------------------

// Four matrices of 8 by 8 elements of 16 bits: lane k has the address of row k % 8 of number k / 8, and gets of each
// those at (k / 4, 2 (k % 4)) and behind it; or at (2 (k % 4), k / 4) and below it.
template <bool IS_TURNED>
static __device__ void load_matrices(unsigned (&out)[4], const void* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
  unsigned from = (unsigned)__cvta_generic_to_shared(row);
  if (IS_TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(from)
                 : "memory");
#else
  int lane = lane_of_warp(), across = lane / 4, along = 2 * (lane % 4);
  for (int m = 0; m < 4; ++m) {
    unsigned halves[2];
    for (int n = 0; n < 2; ++n) {
      unsigned long long address =
          __shfl_sync(ALL_LANES, (unsigned long long)row, 8 * m + (IS_TURNED ? along + n : across));
      halves[n] = ((const unsigned short*)address)[IS_TURNED ? across : along + n];
    }
    out[m] = halves[0] | halves[1] << 16;
  }
#endif
}

// sums += a b of 16 rows, 8 columns and a depth of 16. Lane k has of the sums (k / 4, 2 (k % 4)), the one behind it, and
// those 8 rows below; of a the same places of its four quarters, upper left, lower left, upper right, lower right; of b
// (2 (k % 4), k / 4), the one below it, and those 8 rows below.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MULTIPLY_MATRICES(T, type)                                                                              \
  static __device__ void multiply_matrices(T, float (&sums)[4], const unsigned (&a)[4], const unsigned* b) {    \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                         \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                         \
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                           \
  }
MULTIPLY_MATRICES(float16, "f16")
MULTIPLY_MATRICES(bfloat16, "bf16")
#else
template <typename T>
static __device__ float half_of(unsigned word, int high) {
  T value;
  value.bits = (unsigned short)(word >> 16 * high);
  return value;
}
template <typename T>
static __device__ void multiply_matrices(T, float (&sums)[4], const unsigned (&a)[4], const unsigned* b) {
  int lane = lane_of_warp();
  for (int part = 0; part < 2; ++part)    // of the depth
    for (int k = 0; k < 4; ++k)           // lanes that have a row of a, and a column of b
      for (int col = 0; col < 2; ++col) {
        unsigned right = __shfl_sync(ALL_LANES, b[part], (2 * (lane % 4) + col) * 4 + k);
        for (int row = 0; row < 2; ++row) {
          unsigned left = __shfl_sync(ALL_LANES, a[2 * part + row], lane / 4 * 4 + k);
          for (int high = 0; high < 2; ++high)
            sums[2 * row + col] += half_of<T>(left, high) * half_of<T>(right, high);
        }
      }
}
#endif

template <typename T, int COLS_OF_TILE, bool B_IS_BY_DEPTH>
struct MatrixProduct {
  typedef float A;
  static const int ROWS = 64, COLS = COLS_OF_TILE, LANES = 4, I = 2, J = COLS / 4, OWN = 1;
  A sums[I][J];

  static __device__ int row(int i) { return (int)threadIdx.x / 32 * 16 + lane_of_warp() / 4 + 8 * i; }
  static __device__ int col(int j) { return j / 2 * 8 + lane_of_warp() % 4 * 2 + j % 2; }

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < I; ++i)
#pragma unroll
      for (int j = 0; j < J; ++j) sums[i][j] = 0;
  }

  template <int DEPTH, bool A_IS_BY_DEPTH>
  __device__ void add(const T* a, int a_step, const T* b, int b_step) {
    int lane = lane_of_warp(), first = (int)threadIdx.x / 32 * 16;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      unsigned left[4];
      if (A_IS_BY_DEPTH)
        load_matrices<true>(left, a + (k + lane % 8 + lane / 16 * 8) * a_step + first + lane / 8 % 2 * 8);
      else
        load_matrices<false>(left, a + (first + lane % 16) * a_step + k + lane / 16 * 8);
      add_slice(left, b, b_step, k);
    }
  }

  template <typename S>
  __device__ void add_times(const S& s, const T* b, int b_step, T*) {
#pragma unroll
    for (int k = 0; k < S::COLS; k += 16) {
      unsigned left[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        int j = k / 4 + n / 2 * 2;
        T low = (T)s.sums[n % 2][j], high = (T)s.sums[n % 2][j + 1];
        left[n] = low.bits | (unsigned)high.bits << 16;
      }
      add_slice(left, b, b_step, k);
    }
  }

  // Adds what a depth of 16 from k on gives.
  __device__ void add_slice(const unsigned (&left)[4], const T* b, int b_step, int k) {
    int lane = lane_of_warp();
#pragma unroll
    for (int c = 0; c < COLS; c += 16) {
      unsigned right[4];
      if (B_IS_BY_DEPTH)
        load_matrices<true>(right, b + (k + lane % 8 + lane / 8 % 2 * 8) * b_step + c + lane / 16 * 8);
      else
        load_matrices<false>(right, b + (c + lane % 8 + lane / 16 * 8) * b_step + k + lane / 8 % 2 * 8);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        int j = c / 4 + 2 * n;
        float found[4] = {sums[0][j], sums[0][j + 1], sums[1][j], sums[1][j + 1]};
        multiply_matrices(T(), found, left, right + 2 * n);
        sums[0][j] = found[0];
        sums[0][j + 1] = found[1];
        sums[1][j] = found[2];
        sums[1][j + 1] = found[3];
      }
    }
  }
};
template <int ROWS, int COLS, bool B_IS_BY_DEPTH>
struct Product<float16, ROWS, COLS, B_IS_BY_DEPTH> : MatrixProduct<float16, COLS, B_IS_BY_DEPTH> {
  static_assert(ROWS == 64, "16 rows for each of four warps");
};
template <int ROWS, int COLS, bool B_IS_BY_DEPTH>
struct Product<bfloat16, ROWS, COLS, B_IS_BY_DEPTH> : MatrixProduct<bfloat16, COLS, B_IS_BY_DEPTH> {
  static_assert(ROWS == 64, "16 rows for each of four warps");
};

// -- float, rounded to TensorFloat-32 ----------------------------------------------------------------------------------

struct tf32 {  // a float whose last 13 bits do not count in products
  float value;
  tf32() = default;
  __device__ tf32(float number) { value = number; }
  __device__ operator float() const { return value; }
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
static __device__ unsigned rounded_bits(float value) {
  unsigned bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// As `multiply_matrices` with a depth of 8: of a, lane k has (k / 4, k % 4), the one 8 rows below, and those 4 columns
// behind; of b (k % 4, k / 4), and the one 4 rows below.
static __device__ void multiply_rounded(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
static __device__ unsigned rounded_bits(float value) {
  FloatBits all;
  all.value = value;
  return (all.bits + 0x1000u) & ~0x1FFFu;
}
static __device__ void multiply_rounded(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  int lane = lane_of_warp();
  for (int part = 0; part < 2; ++part)
    for (int k = 0; k < 4; ++k)
      for (int col = 0; col < 2; ++col) {
        FloatBits right, left;
        right.bits = __shfl_sync(ALL_LANES, b[part], (2 * (lane % 4) + col) * 4 + k);
        for (int row = 0; row < 2; ++row) {
          left.bits = __shfl_sync(ALL_LANES, a[2 * part + row], lane / 4 * 4 + k);
          sums[2 * row + col] += left.value * right.value;
        }
      }
}
#endif

template <int ROWS_OF_TILE, int COLS_OF_TILE, bool B_IS_BY_DEPTH>
struct Product<tf32, ROWS_OF_TILE, COLS_OF_TILE, B_IS_BY_DEPTH> : MatrixProduct<tf32, COLS_OF_TILE, B_IS_BY_DEPTH> {
  static_assert(ROWS_OF_TILE == 64, "16 rows for each of four warps");
  using MatrixProduct<tf32, COLS_OF_TILE, B_IS_BY_DEPTH>::sums;

  template <int DEPTH, bool A_IS_BY_DEPTH>
  __device__ void add(const tf32* a, int a_step, const tf32* b, int b_step) {
    int lane = lane_of_warp(), first = (int)threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 8) {
      unsigned left[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        int row = first + n % 2 * 8, depth = k + lane % 4 + n / 2 * 4;
        left[n] = rounded_bits(A_IS_BY_DEPTH ? a[depth * a_step + row] : a[row * a_step + depth]);
      }
      add_slice(left, b, b_step, k + lane % 4, 4);
    }
  }

  // The sums of a lane lie beside each other: of each slice, it takes the even numbers of the depth first.
  template <typename S>
  __device__ void add_times(const S& s, const tf32* b, int b_step, tf32*) {
    int lane = lane_of_warp();
#pragma unroll
    for (int k = 0; k < S::COLS; k += 8) {
      unsigned left[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) left[n] = rounded_bits(s.sums[n % 2][k / 4 + n / 2]);
      add_slice(left, b, b_step, k + lane % 4 * 2, 1);
    }
  }

  // Adds a slice of a, times rows `depth` and `depth + apart` of b.
  __device__ void add_slice(const unsigned (&left)[4], const tf32* b, int b_step, int depth, int apart) {
#pragma unroll
    for (int c = 0; c < COLS_OF_TILE; c += 8) {
      int col = c + lane_of_warp() / 4, j = c / 4;
      unsigned right[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        int at = depth + n * apart;
        right[n] = rounded_bits(B_IS_BY_DEPTH ? b[at * b_step + col] : b[col * b_step + at]);
      }
      float found[4] = {sums[0][j], sums[0][j + 1], sums[1][j], sums[1][j + 1]};
      multiply_rounded(found, left, right);
      sums[0][j] = found[0];
      sums[0][j + 1] = found[1];
      sums[1][j] = found[2];
      sums[1][j + 1] = found[3];
    }
  }
};

// Over the lanes that have a row, for all of them.
template <int LANES, typename A>
static __device__ A sum_of_row(A value) {
#pragma unroll
  for (int n = 1; n < LANES; n *= 2) value += __shfl_xor_sync(ALL_LANES, value, n);
  return value;
}
template <int LANES, typename A>
static __device__ A max_of_row(A value) {
#pragma unroll
  for (int n = 1; n < LANES; n *= 2) {
    A other = __shfl_xor_sync(ALL_LANES, value, n);
    value = other > value ? other : value;
  }
  return value;
}

#endif
