// One step of an optimizer in one pass. Rates and corrections that change from step to step are read from the device.
#include "common.cu"

#define OPTIMIZERS(T, name)                                                                                           \
  extern "C" __global__ void sgd_##name(T* p, const T* g, const T* rate, double decay, long long count) {            \
    long long k = THREAD;                                                                                             \
    if (k < count) p[k] -= *rate * (g[k] + (T)decay * p[k]);                                                          \
  }                                                                                                                   \
  extern "C" __global__ void sgd_momentum_##name(T* p, const T* g, T* v, const T* rate, double momentum,              \
                                                 long long nesterov, double decay, long long count) {                \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    T gradient = g[k] + (T)decay * p[k];                                                                              \
    v[k] = (T)momentum * v[k] + gradient;                                                                             \
    p[k] -= *rate * (nesterov ? gradient + (T)momentum * v[k] : v[k]);                                                \
  }                                                                                                                   \
  extern "C" __global__ void adam_##name(T* p, const T* g, T* m, T* v, const T* rate, const double* correction,       \
                                         const double* root, double beta1, double beta2, double eps, double decay,    \
                                         long long is_decoupled, long long count) {                                  \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    T gradient = is_decoupled ? g[k] : g[k] + (T)decay * p[k];                                                        \
    T keep = is_decoupled ? (T)1 - *rate * (T)decay : (T)1;                                                           \
    m[k] = (T)beta1 * m[k] + ((T)1 - (T)beta1) * gradient;                                                            \
    v[k] = (T)beta2 * v[k] + ((T)1 - (T)beta2) * (gradient * gradient);                                               \
    p[k] = keep * p[k] - (T)(*rate / *correction) * (m[k] / (sqrt(v[k]) / (T)*root + (T)eps));                        \
  }
OPTIMIZERS(float, float32)
OPTIMIZERS(double, float64)
