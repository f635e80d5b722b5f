// One step of an optimizer in one pass. Rates and corrections that change from step to step are read from the device.
// With `skip` (a null pointer: none), a step whose gradients are not all finite changes nothing.
#include "common.cu"

#define SKIPS(skip) ((skip) && *(skip) >= 1)

#define OPTIMIZERS(T, A, name)                                                                                        \
  static __device__ void sgd_element(T* p, const T* g, T* v, long long k, T rate, double momentum,                    \
                                     long long nesterov, double decay) {                                              \
    T gradient = g[k] + (T)decay * p[k];                                                                              \
    if (v) {                                                                                                          \
      v[k] = (T)momentum * v[k] + gradient;                                                                           \
      gradient = nesterov ? gradient + (T)momentum * v[k] : v[k];                                                     \
    }                                                                                                                 \
    p[k] -= rate * gradient;                                                                                          \
  }                                                                                                                   \
  static __device__ void adam_element(T* p, const T* g, T* m, T* v, long long k, T rate, double correction,           \
                                      double root, double beta1, double beta2, double eps, double decay,              \
                                      long long is_decoupled) {                                                       \
    T gradient = is_decoupled ? g[k] : g[k] + (T)decay * p[k];                                                        \
    T keep = is_decoupled ? (T)1 - rate * (T)decay : (T)1;                                                            \
    m[k] = (T)beta1 * m[k] + ((T)1 - (T)beta1) * gradient;                                                            \
    v[k] = (T)beta2 * v[k] + ((T)1 - (T)beta2) * (gradient * gradient);                                               \
    p[k] = keep * p[k] - (T)(rate / correction) * (m[k] / (sqrt(v[k]) / (T)root + (T)eps));                           \
  }                                                                                                                   \
  extern "C" __global__ void sgd_##name(T* p, const T* g, T* v, const T* rate, const T* skip, double momentum,    \
                                        long long nesterov, double decay, long long count) {                          \
    long long k = THREAD;                                                                                             \
    if (k < count && !SKIPS(skip)) sgd_element(p, g, v, k, *rate, momentum, nesterov, decay);                         \
  }                                                                                                                   \
  extern "C" __global__ void adam_##name(T* p, const T* g, T* m, T* v, const T* rate, const T* skip,              \
                                         const double* correction, const double* root, double beta1, double beta2,    \
                                         double eps, double decay, long long is_decoupled, long long count) {         \
    long long k = THREAD;                                                                                             \
    if (k < count && !SKIPS(skip))                                                                                    \
      adam_element(p, g, m, v, k, *rate, *correction, *root, beta1, beta2, eps, decay, is_decoupled);                 \
  }                                                                                                                   \
  /* Many parameters: a block for each part of one. A row of `table` has the addresses of its arrays and its size;    \
     one of `parts` the number of a parameter, and the first element of the part. */                                  \
  extern "C" __global__ void sgd_many_##name(const long long* table, const long long* parts, const T* rate,           \
                                             const T* skip, double momentum, long long nesterov, double decay,    \
                                             long long part) {                                                        \
    const long long* row = table + parts[2 * blockIdx.x] * 4;                                                         \
    long long begin = parts[2 * blockIdx.x + 1], end = begin + part < row[3] ? begin + part : row[3];                 \
    if (SKIPS(skip)) return;                                                                                          \
    for (long long k = begin + threadIdx.x; k < end; k += BLOCK)                                                      \
      sgd_element((T*)row[0], (const T*)row[1], (T*)row[2], k, *rate, momentum, nesterov, decay);                     \
  }                                                                                                                   \
  extern "C" __global__ void adam_many_##name(const long long* table, const long long* parts, const T* rate,          \
                                              const T* skip, const double* correction, const double* root,        \
                                              double beta1, double beta2, double eps, double decay,                   \
                                              long long is_decoupled, long long part) {                               \
    const long long* row = table + parts[2 * blockIdx.x] * 5;                                                         \
    long long begin = parts[2 * blockIdx.x + 1], end = begin + part < row[4] ? begin + part : row[4];                 \
    if (SKIPS(skip)) return;                                                                                          \
    for (long long k = begin + threadIdx.x; k < end; k += BLOCK)                                                      \
      adam_element((T*)row[0], (const T*)row[1], (T*)row[2], (T*)row[3], k, *rate, *correction, *root, beta1, beta2,  \
                   eps, decay, is_decoupled);                                                                         \
  }
OPTIMIZERS(float, float, float32)
OPTIMIZERS(double, double, float64)
