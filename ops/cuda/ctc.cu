// Connectionist temporal classification: a block for each sample, sums in logarithms; see ops/cpu/ctc.py.
#include "common.cu"

#define NEVER (-1 / 0.0)  // the logarithm of a probability of zero

static __device__ double log_sum(double a, double b, double c) {
  double top = a > b ? a : b;
  if (c > top) top = c;
  return top > NEVER ? top + log(exp(a - top) + exp(b - top) + exp(c - top)) : top;
}

#define CTC(T, A, name)                                                                                              \
  extern "C" __global__ void ctc_##name(const T* x, const int* targets, const int* frames, const int* labels,        \
                                        A* loss, A* gx, double* alphas, double* rest, long long length,              \
                                        long long classes, long long width, long long blank) {                       \
    long long b = blockIdx.x, states = 2 * width + 1;                                                                \
    long long count = frames[b] < length ? frames[b] : length, many = labels[b] < width ? labels[b] : width;         \
    long long last = 2 * many + 1;                                                                                   \
    const int* target = targets + b * width;                                                                         \
    x += b * length * classes, gx += b * length * classes, alphas += b * length * states;                            \
    double *shift = rest + b * (length + 3 * states), *now = shift + length, *next = now + states;                   \
    double* share = next + states;                                                                                   \
    for (long long t = threadIdx.x; t < count; t += BLOCK) {                                                         \
      double most = NEVER, total = 0;                                                                                \
      for (long long c = 0; c < classes; ++c) most = fmax(most, (double)(A)x[t * classes + c]);                      \
      for (long long c = 0; c < classes; ++c) total += exp((double)(A)x[t * classes + c] - most);                    \
      shift[t] = most + log(total);                                                                                  \
    }                                                                                                                \
    for (long long k = threadIdx.x; k < (length - count) * classes; k += BLOCK) gx[count * classes + k] = (A)0;      \
    __syncthreads();                                                                                                 \
    for (long long t = 0; t < count; ++t) {                                                                          \
      const double* before = alphas + (t - 1) * states;                                                              \
      for (long long s = threadIdx.x; s < last; s += BLOCK) {                                                        \
        long long k = LABEL(s);                                                                                      \
        double sum = t == 0 ? (s < 2 ? 0 : NEVER)                                                                    \
                            : log_sum(before[s], s > 0 ? before[s - 1] : NEVER,                                      \
                                      SKIPS(s) ? before[s - 2] : NEVER);                                             \
        alphas[t * states + s] = sum + (double)(A)x[t * classes + k] - shift[t];                                     \
      }                                                                                                              \
      __syncthreads();                                                                                               \
    }                                                                                                                \
    const double* end = alphas + (count - 1) * states + last - 1;                                                    \
    double whole = count ? log_sum(*end, last > 1 ? end[-1] : NEVER, NEVER) : many ? NEVER : 0;                      \
    if (threadIdx.x == 0) loss[b] = (A)-whole;                                                                       \
    for (long long s = threadIdx.x; s < last; s += BLOCK) now[s] = s >= last - 2 ? 0 : NEVER;                        \
    __syncthreads();                                                                                                 \
    for (long long t = count - 1; t >= 0; --t) {                                                                     \
      for (long long s = threadIdx.x; s < last; s += BLOCK) share[s] = exp(alphas[t * states + s] + now[s] - whole); \
      __syncthreads();                                                                                               \
      for (long long c = threadIdx.x; c < classes; c += BLOCK) {                                                     \
        double sum = exp((double)(A)x[t * classes + c] - shift[t]);                                                  \
        for (long long s = 0; s < last; ++s)                                                                         \
          if (LABEL(s) == c) sum -= share[s];                                                                        \
        gx[t * classes + c] = whole > NEVER ? (A)sum : (A)NOT_A_NUMBER;                                              \
      }                                                                                                              \
      for (long long s = threadIdx.x; s < last; s += BLOCK) {                                                        \
        double one = s + 1 < last ? now[s + 1] + LOG_OF(A, s + 1) : NEVER;                                           \
        double two = s + 2 < last && SKIPS(s + 2) ? now[s + 2] + LOG_OF(A, s + 2) : NEVER;                           \
        next[s] = log_sum(now[s] + LOG_OF(A, s), one, two);                                                          \
      }                                                                                                              \
      __syncthreads();                                                                                               \
      double* other = now;                                                                                           \
      now = next, next = other;                                                                                      \
    }                                                                                                                \
  }
#define LABEL(s) ((s) % 2 ? in_range(target[(s) / 2], classes, blank) : blank)
#define SKIPS(s) ((s) % 2 && (s) > 1 && target[(s) / 2] != target[(s) / 2 - 1])
#define LOG_OF(A, s) ((double)(A)x[t * classes + LABEL(s)] - shift[t])
static __device__ long long in_range(long long k, long long classes, long long blank) {
  return k >= 0 && k < classes ? k : blank;
}
FOR_ALL_TYPES(CTC)
