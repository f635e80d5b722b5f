// Points of lines by index: arrays are (lines, points, width), an index is (lines, picks, width) or one for all of the
// width. A task has the points `lo` to `lo + points` of `extent`; an index out of range gives NaN, one of another task
// zero. The gradient gathers, too: each point adds up the picks of it in order, and NaN where an
// index is out of an extent that is not 0.
#include "common.cu"

#define GATHER(T, A, name, I, index)                                                                            \
  extern "C" __global__ void gather_##name##_##index(const T* x, const I* indices, T* y, long long lo,          \
                                                     long long extent, long long points, long long picks,       \
                                                     long long width, long long index_width, long long count) { \
    long long k = THREAD;                                                                                       \
    if (k >= count) return;                                                                                     \
    long long w = k % width, pick = k / width, line = pick / picks;                                             \
    long long wanted = (long long)indices[pick * index_width + w % index_width], at = wanted - lo;              \
    if (wanted < 0 || wanted >= extent)                                                                         \
      y[k] = (A)NOT_A_NUMBER;                                                                                   \
    else                                                                                                        \
      y[k] = at >= 0 && at < points ? (A)x[(line * points + at) * width + w] : (A)0;                            \
  }                                                                                                             \
  extern "C" __global__ void gather_gradient_##name##_##index(                                                  \
      const T* gy, const I* indices, T* gx, long long lo, long long extent, long long points, long long picks,  \
      long long width, long long index_width, long long count) {                                                \
    long long k = THREAD;                                                                                       \
    if (k >= count) return;                                                                                     \
    long long w = k % width, wanted = lo + k / width % points, line = k / (width * points);                     \
    A sum = 0;                                                                                                  \
    for (long long pick = line * picks; pick < (line + 1) * picks; ++pick) {                                    \
      long long index = (long long)indices[pick * index_width + w % index_width];                               \
      if (extent && (index < 0 || index >= extent)) sum = (A)NOT_A_NUMBER;                                      \
      if (index == wanted) sum += (A)gy[pick * width + w];                                                      \
    }                                                                                                           \
    gx[k] = sum;                                                                                                \
  }
#define GATHER_OF(T, A, name)    \
  GATHER(T, A, name, int, int32) \
  GATHER(T, A, name, long long, int64)
FOR_ALL_TYPES(GATHER_OF)
