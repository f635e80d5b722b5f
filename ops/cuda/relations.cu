// Segments of edges, a thread for each element that is written; arrays are (rows, heads, features). Sums are taken in
// the order of the edges. Indices and targets are those of a region, of which a task has the rows from `first` on.
#include "common.cu"

#define RELATIONS(T, A, name)                                                                                          \
  extern "C" __global__ void sum_rows_##name(const T* x, const long long* borders, const int* index,                   \
                                             const int* order, const T* weight, T* y, long long first,                 \
                                             long long at, long long heads, long long scales, long long width,         \
                                             long long count) {                                                        \
    long long n = THREAD;                                                                                              \
    if (n >= count) return;                                                                                            \
    long long line = heads * width, j = n / line, h = scales > 1 ? n % line / width : 0;                               \
    const T* from = x + n % line;                                                                                      \
    A sum = 0;                                                                                                         \
    for (long long k = borders[j] - borders[0]; k < borders[j + 1] - borders[0]; ++k) {                                \
      A value = (A)from[(index ? index[k] - first : k) * line];                                                        \
      if (weight) value *= (A)weight[(order ? order[k] - at : k) * scales + h];                                        \
      sum += value;                                                                                                    \
    }                                                                                                                  \
    y[n] = (T)sum;                                                                                                     \
  }                                                                                                                    \
  extern "C" __global__ void largest_rows_##name(const T* x, const long long* borders, T* y, long long line,           \
                                                 long long count) {                                                    \
    long long n = THREAD;                                                                                              \
    if (n >= count) return;                                                                                            \
    long long j = n / line, begin = borders[j] - borders[0], end = borders[j + 1] - borders[0];                        \
    const T* from = x + n % line;                                                                                      \
    A most = begin < end ? (A)from[begin * line] : (A)0;                                                               \
    for (long long k = begin + 1; k < end; ++k) {                                                                      \
      A value = (A)from[k * line];                                                                                     \
      if (value > most || value != value) most = value;                                                                \
    }                                                                                                                  \
    y[n] = (T)most;                                                                                                    \
  }                                                                                                                    \
  extern "C" __global__ void take_rows_##name(const T* x, const int* index, T* y, long long first,                     \
                                              long long line, long long count) {                                       \
    long long n = THREAD;                                                                                              \
    if (n < count) y[n] = x[(index[n / line] - first) * line + n % line];                                              \
  }                                                                                                                    \
  extern "C" __global__ void edge_products_##name(const T* gy, const T* x, const int* targets,                         \
                                                  const int* sources, T* y, long long first, long long at,             \
                                                  long long heads, long long width, long long count) {                 \
    long long n = THREAD;                                                                                              \
    if (n >= count) return;                                                                                            \
    long long k = n / heads, h = n % heads;                                                                            \
    const T *a = gy + ((targets[k] - first) * heads + h) * width, *b = x + ((sources[k] - at) * heads + h) * width;    \
    A sum = 0;                                                                                                         \
    for (long long f = 0; f < width; ++f) sum += (A)a[f] * (A)b[f];                                                    \
    y[n] = (T)sum;                                                                                                     \
  }                                                                                                                    \
  extern "C" __global__ void edge_softmax_##name(const T* x, const int* targets, T* y, long long first,                \
                                                 long long rows, long long heads, long long count) {                   \
    long long n = THREAD, begin = n / heads, h = n % heads, end = begin;                                               \
    if (n >= count * heads || (begin && targets[begin] == targets[begin - 1])) return;                                 \
    A most = (A)x[n], total = 0;                                                                                       \
    for (; end < count && targets[end] == targets[begin]; ++end)                                                       \
      if ((A)x[end * heads + h] > most) most = (A)x[end * heads + h];                                                  \
    for (long long k = begin; k < end; ++k) total += exp((A)x[k * heads + h] - most);                                  \
    for (long long k = begin; k < end; ++k)                                                                            \
      if (k >= first && k < first + rows)                                                                              \
        y[(k - first) * heads + h] = (T)(exp((A)x[k * heads + h] - most) / total);                                     \
  }                                                                                                                    \
  extern "C" __global__ void edge_softmax_gradient_##name(const T* gy, const T* y, const int* targets, T* gx,          \
                                                          long long first, long long rows, long long heads,            \
                                                          long long count) {                                           \
    long long n = THREAD, begin = n / heads, h = n % heads, end = begin;                                               \
    if (n >= count * heads || (begin && targets[begin] == targets[begin - 1])) return;                                 \
    A total = 0;                                                                                                       \
    for (; end < count && targets[end] == targets[begin]; ++end)                                                       \
      total += (A)gy[end * heads + h] * (A)y[end * heads + h];                                                         \
    for (long long k = begin; k < end; ++k)                                                                            \
      if (k >= first && k < first + rows)                                                                              \
        gx[(k - first) * heads + h] = (T)((A)y[k * heads + h] * ((A)gy[k * heads + h] - total));                       \
  }                                                                                                                    \
  extern "C" __global__ void largest_gradient_##name(const T* gy, const T* y, const T* m, const int* targets, T* gm,   \
                                                     long long vertex, long long first, long long rows,                \
                                                     long long line, long long count) {                                \
    long long n = THREAD, begin = n / line, f = n % line, end = begin, equal = 0;                                      \
    if (n >= count * line || (begin && targets[begin] == targets[begin - 1])) return;                                  \
    long long at = (targets[begin] - vertex) * line + f;                                                               \
    A most = (A)y[at];                                                                                                 \
    for (; end < count && targets[end] == targets[begin]; ++end) equal += (A)m[end * line + f] == most;                \
    A share = equal ? (A)gy[at] / (A)equal : (A)0;                                                                     \
    for (long long k = begin; k < end; ++k)                                                                            \
      if (k >= first && k < first + rows) gm[(k - first) * line + f] = (T)((A)m[k * line + f] == most ? share : (A)0); \
  }
FOR_ALL_TYPES(RELATIONS)
