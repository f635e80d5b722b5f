// Windows of channels-last images (images, height, width, channels); see ops/cpu/windows.py for what they compute.
#include "common.cu"

#define WINDOWS(T, A, name)                                                                                         \
  extern "C" __global__ void max_pool_##name(const T* x, T* y, int* index, long long in_height, long long in_width, \
                                             long long height, long long width, long long channels, long long top,  \
                                             long long left, int kh, int kw, int sh, int sw,                        \
                                             long long count) {                                                     \
    long long k = THREAD;                                                                                           \
    if (k >= count) return;                                                                                         \
    long long c = k % channels, w = k / channels % width, h = k / (channels * width) % height;                      \
    long long n = k / (channels * width * height);                                                                  \
    bool is_first = true;                                                                                           \
    A most = 0;                                                                                                     \
    int at = 0;                                                                                                     \
    for (int i = 0; i < kh; ++i)                                                                                    \
      for (int j = 0; j < kw; ++j) {                                                                                \
        long long row = top + h * sh + i, column = left + w * sw + j;                                               \
        if (row < 0 || row >= in_height || column < 0 || column >= in_width) continue;                              \
        A value = x[((n * in_height + row) * in_width + column) * channels + c];                                    \
        if (is_first || value > most || value != value) {                                                           \
          most = value;                                                                                             \
          at = i * kw + j;                                                                                          \
          is_first = false;                                                                                         \
        }                                                                                                           \
      }                                                                                                             \
    y[k] = most;                                                                                                    \
    index[k] = at;                                                                                                  \
  }                                                                                                                 \
  extern "C" __global__ void max_pool_gradient_##name(                                                              \
      const T* gy, const int* index, T* gx, long long in_height, long long in_width, long long height,              \
      long long width, long long channels, int top, int left, int kh, int kw, int sh,                               \
      int sw, long long count) {                                                                                    \
    long long k = THREAD;                                                                                           \
    if (k >= count) return;                                                                                         \
    long long c = k % channels, column = k / channels % in_width, row = k / (channels * in_width) % in_height;      \
    long long n = k / (channels * in_width * in_height);                                                            \
    A sum = gx[k];                                                                                                  \
    for (int i = 0; i < kh; ++i)                                                                                    \
      for (int j = 0; j < kw; ++j) {                                                                                \
        int down = (int)(row - top) - i, right = (int)(column - left) - j, h = down / sh, w = right / sw;           \
        if (down < 0 || right < 0 || down != h * sh || right != w * sw) continue;                                   \
        if (h >= height || w >= width) continue;                                                                    \
        long long window = ((n * height + h) * width + w) * channels + c;                                           \
        if (index[window] == i * kw + j) sum += (A)gy[window];                                                      \
      }                                                                                                             \
    gx[k] = sum;                                                                                                    \
  }
FOR_ALL_TYPES(WINDOWS)
