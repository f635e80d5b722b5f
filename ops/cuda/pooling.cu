// Windows of images (n, c, rows, columns) that lie in memory with any steps. `Along` says where they are in one dimension:
// window k begins at k * stride and has `size` points, or, with a size of 0, goes from floor(k * extent / windows) to
// ceil((k + 1) * extent / windows). Points outside of the tile are padding, zeros.
#include "common.cu"

struct Along {
  int stride, size, extent, windows;  // of all the image
  int first, window_count, origin, points;  // the tile's windows and points; the first of each
  __device__ int begin(int k) const { return size ? k * stride : k * extent / windows; }
  __device__ int end(int k) const { return size ? k * stride + size : ((k + 1) * extent + windows - 1) / windows; }
  // The windows of this tile that have a point.
  __device__ int first_with(int point) const {
    int k = size ? (point < size ? 0 : (point - size) / stride + 1) : point * windows / extent;
    return k < first ? first : k;
  }
  __device__ int last_with(int point) const {
    int k = size ? point / stride : ((point + 1) * windows + extent - 1) / extent - 1;
    return k >= first + window_count ? first + window_count - 1 : k;
  }
};

#define ALONG(p)                                                                                               \
  int p##stride, int p##size, int p##extent, int p##windows, int p##first, int p##window_count, int p##origin, \
      int p##points
#define MAKE(p) \
  {p##stride, p##size, p##extent, p##windows, p##first, p##window_count, p##origin, p##points}
#define STEPS(p) long long p##n, long long p##c, long long p##h, long long p##w
#define AT(p, i0, i1, i2, i3) ((i0) * p##n + (i1) * p##c + (i2) * p##h + (i3) * p##w)
#define EACH(height, width)                                                                        \
  long long k = THREAD;                                                                            \
  if (k >= count) return;                                                                          \
  Along down = MAKE(d), right = MAKE(r);                                                           \
  long long c = k % channels, j = k / channels % (width), i = k / (channels * (width)) % (height); \
  long long n = k / (channels * (width) * (height));

// `all_indices` says where the maxima stand in the whole image, row by row.
#define POOLING(T, A, name)                                                                                           \
  extern "C" __global__ void mean_pool_##name(const T* x, T* y, STEPS(x), STEPS(y), ALONG(d), ALONG(r),               \
                                              long long channels, long long count) {                                  \
    EACH(down.window_count, right.window_count)                                                                       \
    int top = down.begin(down.first + (int)i), bottom = down.end(down.first + (int)i);                                \
    int left = right.begin(right.first + (int)j), past = right.end(right.first + (int)j);                             \
    A sum = 0;                                                                                                        \
    for (int a = top; a < bottom; ++a)                                                                                \
      for (int b = left; b < past; ++b) {                                                                             \
        int row = a - down.origin, column = b - right.origin;                                                         \
        if (row < 0 || column < 0 || row >= down.points || column >= right.points) continue;                          \
        sum += (A)x[AT(x, n, c, row, column)];                                                                        \
      }                                                                                                               \
    y[AT(y, n, c, i, j)] = sum / (A)((long long)(bottom - top) * (past - left));                                      \
  }                                                                                                                   \
  extern "C" __global__ void mean_pool_gradient_##name(const T* gy, T* gx, STEPS(y), STEPS(x), ALONG(d), ALONG(r),    \
                                                       long long channels, long long count) {                         \
    EACH(down.points, right.points)                                                                                   \
    int row = down.origin + (int)i, column = right.origin + (int)j;                                                   \
    A sum = 0;                                                                                                        \
    for (int a = down.first_with(row); a <= down.last_with(row); ++a)                                                 \
      for (int b = right.first_with(column); b <= right.last_with(column); ++b) {                                     \
        if (row >= down.end(a) || column >= right.end(b)) continue;                                                   \
        A size = (A)((long long)(down.end(a) - down.begin(a)) * (right.end(b) - right.begin(b)));                     \
        sum += (A)gy[AT(y, n, c, a - down.first, b - right.first)] / size;                                            \
      }                                                                                                               \
    gx[AT(x, n, c, i, j)] = sum;                                                                                      \
  }                                                                                                                   \
  extern "C" __global__ void most_pool_##name(const T* x, T* y, long long* all_indices, STEPS(x), STEPS(y), STEPS(z), \
                                              ALONG(d), ALONG(r), long long channels, long long count) {              \
    EACH(down.window_count, right.window_count)                                                                       \
    bool is_first = true;                                                                                             \
    A most = 0;                                                                                                       \
    long long at = 0;                                                                                                 \
    for (int a = down.begin(down.first + (int)i); a < down.end(down.first + (int)i); ++a)                             \
      for (int b = right.begin(right.first + (int)j); b < right.end(right.first + (int)j); ++b) {                     \
        A value = x[AT(x, n, c, a - down.origin, b - right.origin)];                                                  \
        if (!is_first && !(value > most) && !(value != value && most == most)) continue;                              \
        most = value;                                                                                                 \
        at = (long long)a * right.extent + b;                                                                         \
        is_first = false;                                                                                             \
      }                                                                                                               \
    y[AT(y, n, c, i, j)] = most;                                                                                      \
    all_indices[AT(z, n, c, i, j)] = at;                                                                              \
  }                                                                                                                   \
  extern "C" __global__ void most_pool_gradient_##name(const T* gy, const long long* all_indices, T* gx, STEPS(y),    \
                                                       STEPS(z), STEPS(x), ALONG(d), ALONG(r), long long channels,    \
                                                       long long count) {                                             \
    EACH(down.points, right.points)                                                                                   \
    int row = down.origin + (int)i, column = right.origin + (int)j;                                                   \
    A sum = 0;                                                                                                        \
    for (int a = down.first_with(row); a <= down.last_with(row); ++a)                                                 \
      for (int b = right.first_with(column); b <= right.last_with(column); ++b)                                       \
        if (all_indices[AT(z, n, c, a - down.first, b - right.first)] == (long long)row * right.extent + column)      \
          sum += (A)gy[AT(y, n, c, a - down.first, b - right.first)];                                                 \
    gx[AT(x, n, c, i, j)] = sum;                                                                                      \
  }
FOR_ALL_TYPES(POOLING)
