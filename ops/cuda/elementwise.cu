// Activations that NumPy's kernels compute in compiled loops.
#include "common.cu"

#define ACTIVATIONS(T, name)                                                                                        \
  extern "C" __global__ void relu_##name(const T* x, T* y, long long count) {                                       \
    long long k = THREAD;                                                                                           \
    if (k < count) y[k] = x[k] < 0 ? (T)0 : x[k];                                                                   \
  }                                                                                                                 \
  extern "C" __global__ void relu_gradient_##name(const T* gy, const T* y, T* gx, long long count) {               \
    long long k = THREAD;                                                                                           \
    if (k < count) gx[k] = y[k] > 0 ? gy[k] : (T)0;                                                                 \
  }                                                                                                                 \
  extern "C" __global__ void gelu_##name(const T* x, T* y, long long count) {                                      \
    long long k = THREAD;                                                                                           \
    if (k < count) y[k] = x[k] * ((T)0.5 + (T)0.5 * erf(x[k] * (T)0.70710678118654752440));                         \
  }                                                                                                                 \
  extern "C" __global__ void gelu_gradient_##name(const T* gy, const T* x, T* gx, long long count) {               \
    long long k = THREAD;                                                                                           \
    if (k >= count) return;                                                                                         \
    T below = (T)0.5 + (T)0.5 * erf(x[k] * (T)0.70710678118654752440);                                              \
    gx[k] = gy[k] * (below + x[k] * (T)0.39894228040143267794 * exp((T)-0.5 * x[k] * x[k]));                        \
  }                                                                                                                 \
  extern "C" __global__ void add_bias_##name(T* y, const T* bias, long long width, long long count) {              \
    long long k = THREAD;                                                                                           \
    if (k < count) y[k] += bias[k % width];                                                                         \
  }
ACTIVATIONS(float, float32)
ACTIVATIONS(double, float64)
