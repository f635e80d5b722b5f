// Activations that NumPy's kernels compute in compiled loops.
#include "common.cu"

#define ACTIVATIONS(T, A, name)                                                                       \
  extern "C" __global__ void relu_##name(const T* x, T* y, long long count) {                         \
    long long k = THREAD;                                                                             \
    if (k >= count) return;                                                                           \
    A value = x[k];                                                                                   \
    y[k] = value < 0 ? (A)0 : value;                                                                  \
  }                                                                                                   \
  extern "C" __global__ void relu_gradient_##name(const T* gy, const T* y, T* gx, long long count) {  \
    long long k = THREAD;                                                                             \
    if (k < count) gx[k] = (A)y[k] > 0 ? (A)gy[k] : (A)0;                                             \
  }                                                                                                   \
  extern "C" __global__ void gelu_##name(const T* x, T* y, long long count) {                         \
    long long k = THREAD;                                                                             \
    if (k >= count) return;                                                                           \
    A value = x[k];                                                                                   \
    y[k] = value * ((A)0.5 + (A)0.5 * erf(value * (A)0.70710678118654752440));                        \
  }                                                                                                   \
  extern "C" __global__ void gelu_gradient_##name(const T* gy, const T* x, T* gx, long long count) {  \
    long long k = THREAD;                                                                             \
    if (k >= count) return;                                                                           \
    A value = x[k], below = (A)0.5 + (A)0.5 * erf(value * (A)0.70710678118654752440);                 \
    gx[k] = (A)gy[k] * (below + value * (A)0.39894228040143267794 * exp((A)-0.5 * value * value));    \
  }                                                                                                   \
  extern "C" __global__ void add_bias_##name(T* y, const T* bias, long long width, long long count) { \
    long long k = THREAD;                                                                             \
    if (k < count) y[k] = (A)y[k] + (A)bias[k % width];                                               \
  }
FOR_ALL_TYPES(ACTIVATIONS)
