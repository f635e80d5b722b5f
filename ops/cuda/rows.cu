// Softmax over rows and its gradient, a block for each row; the gates of LSTMs and GRUs and theirs, a thread for each
// element.
#include "common.cu"

template <typename A>
static __device__ A sigmoid(A x) {
  return (A)0.5 + (A)0.5 * tanh((A)0.5 * x);
}

#define SOFTMAX_ROWS(T, A, name)                                                                                      \
  extern "C" __global__ void softmax_##name(const T* x, T* y, long long width) {                                      \
    __shared__ A shared[BLOCK];                                                                                       \
    const T* row = x + blockIdx.x * width;                                                                            \
    T* out = y + blockIdx.x * width;                                                                                  \
    A most = row[0], sum = 0;                                                                                         \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                            \
      if ((A)row[c] > most || (A)row[c] != (A)row[c]) most = row[c];                                                  \
    most = block_max(most, shared);                                                                                   \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += exp((A)row[c] - most);                              \
    sum = block_sum(sum, shared);                                                                                     \
    for (long long c = threadIdx.x; c < width; c += BLOCK) out[c] = exp((A)row[c] - most) / sum;                      \
  }                                                                                                                   \
  extern "C" __global__ void softmax_gradient_##name(const T* gy, const T* y, T* gx, long long width) {               \
    __shared__ A shared[BLOCK];                                                                                       \
    long long begin = blockIdx.x * width;                                                                             \
    A sum = 0;                                                                                                        \
    for (long long c = threadIdx.x; c < width; c += BLOCK) sum += (A)gy[begin + c] * (A)y[begin + c];                 \
    sum = block_sum(sum, shared);                                                                                     \
    for (long long c = threadIdx.x; c < width; c += BLOCK)                                                            \
      gx[begin + c] = ((A)gy[begin + c] - sum) * (A)y[begin + c];                                                     \
  }                                                                                                                   \
  /* Gates lie as (samples, 4, hidden) in the order i, f, g, o. */                                                    \
  extern "C" __global__ void lstm_cell_##name(const T* gates, const T* c, T* new_h, T* new_c, T* active,              \
                                              long long hidden, long long count) {                                    \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long at = k / hidden * 4 * hidden + k % hidden;                                                              \
    A i = sigmoid((A)gates[at]), f = sigmoid((A)gates[at + hidden]);                                                  \
    A g = tanh((A)gates[at + 2 * hidden]), o = sigmoid((A)gates[at + 3 * hidden]);                                    \
    active[at] = i;                                                                                                   \
    active[at + hidden] = f;                                                                                          \
    active[at + 2 * hidden] = g;                                                                                      \
    active[at + 3 * hidden] = o;                                                                                      \
    A state = f * (A)c[k] + i * g;                                                                                    \
    new_c[k] = state;                                                                                                 \
    new_h[k] = o * tanh(state);                                                                                       \
  }                                                                                                                   \
  /* A gradient that does not flow is a null pointer. */                                                              \
  extern "C" __global__ void lstm_cell_gradient_##name(const T* gh, const T* flowing, const T* c, const T* new_c,     \
                                                       const T* active, T* ggates, T* gc, long long hidden,           \
                                                       long long count) {                                             \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long at = k / hidden * 4 * hidden + k % hidden;                                                              \
    A i = active[at], f = active[at + hidden], g = active[at + 2 * hidden], o = active[at + 3 * hidden];              \
    A squashed = tanh((A)new_c[k]), above = gh ? (A)gh[k] : (A)0;                                                     \
    A state = (flowing ? (A)flowing[k] : (A)0) + above * o * ((A)1 - squashed * squashed);                            \
    ggates[at] = state * g * (i * ((A)1 - i));                                                                        \
    ggates[at + hidden] = state * (A)c[k] * (f * ((A)1 - f));                                                         \
    ggates[at + 2 * hidden] = state * i * ((A)1 - g * g);                                                             \
    ggates[at + 3 * hidden] = above * squashed * (o * ((A)1 - o));                                                    \
    gc[k] = state * f;                                                                                                \
  }
FOR_ALL_TYPES(SOFTMAX_ROWS)

// Step t of an LSTM: gates lie as (samples, steps, 4, hidden), states as (samples, steps, hidden). What there is not is
// a null pointer: the product with the state before (samples, 4, hidden), biases (4, hidden), first state (samples,
// hidden), and gradients.
#define LSTM_STEP(T, A, name)                                                                                         \
  extern "C" __global__ void lstm_step_##name(const T* inputs, const T* product, const T* bias, const T* other,       \
                                              const T* c, T* hs, T* cs, T* active, long long hidden, long long steps, \
                                              long long t, long long count) {                                         \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long n = k / hidden, unit = k % hidden, step = n * steps + t, here = step * hidden + unit;                   \
    A gates[4];                                                                                                       \
    for (int j = 0; j < 4; ++j) {                                                                                     \
      long long row = j * hidden + unit;                                                                              \
      gates[j] = (A)inputs[step * 4 * hidden + row] + (product ? (A)product[n * 4 * hidden + row] : (A)0) +           \
                 (bias ? (A)bias[row] : (A)0) + (other ? (A)other[row] : (A)0);                                       \
    }                                                                                                                 \
    A i = sigmoid(gates[0]), f = sigmoid(gates[1]), g = tanh(gates[2]), o = sigmoid(gates[3]);                        \
    T* out = active + step * 4 * hidden + unit;                                                                       \
    out[0] = i;                                                                                                       \
    out[hidden] = f;                                                                                                  \
    out[2 * hidden] = g;                                                                                              \
    out[3 * hidden] = o;                                                                                              \
    A state = f * (t ? (A)cs[here - hidden] : c ? (A)c[k] : (A)0) + i * g;                                            \
    cs[here] = state;                                                                                                 \
    hs[here] = o * tanh(state);                                                                                       \
  }                                                                                                                   \
  extern "C" __global__ void lstm_step_gradient_##name(const T* ghs, const T* gh, const T* flowing, const T* c,       \
                                                       const T* cs, const T* active, T* ggates, T* gc,                \
                                                       long long hidden, long long steps, long long t,                \
                                                       long long count) {                                             \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long n = k / hidden, unit = k % hidden, step = n * steps + t, here = step * hidden + unit;                   \
    const T* gates = active + step * 4 * hidden + unit;                                                               \
    T* out = ggates + step * 4 * hidden + unit;                                                                       \
    A i = gates[0], f = gates[hidden], g = gates[2 * hidden], o = gates[3 * hidden], squashed = tanh((A)cs[here]);    \
    A above = (ghs ? (A)ghs[here] : (A)0) + (gh ? (A)gh[k] : (A)0);                                                   \
    A old = t ? (A)cs[here - hidden] : c ? (A)c[k] : (A)0;                                                            \
    A state = (flowing ? (A)flowing[k] : (A)0) + above * o * ((A)1 - squashed * squashed);                            \
    out[0] = state * g * (i * ((A)1 - i));                                                                            \
    out[hidden] = state * old * (f * ((A)1 - f));                                                                     \
    out[2 * hidden] = state * i * ((A)1 - g * g);                                                                     \
    out[3 * hidden] = above * squashed * (o * ((A)1 - o));                                                            \
    gc[k] = state * f;                                                                                                \
  }
FOR_ALL_TYPES(LSTM_STEP)

// Gates lie as (samples, 3, hidden) in the order r, z, n: those from the input, and those from the state.
#define GRU(T, A, name)                                                                                               \
  extern "C" __global__ void gru_cell_##name(const T* from_x, const T* from_h, const T* h, T* new_h, long long hidden,\
                                             long long count) {                                                       \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long at = k / hidden * 3 * hidden + k % hidden;                                                              \
    A r = sigmoid((A)from_x[at] + (A)from_h[at]);                                                                     \
    A z = sigmoid((A)from_x[at + hidden] + (A)from_h[at + hidden]);                                                   \
    A n = tanh((A)from_x[at + 2 * hidden] + r * (A)from_h[at + 2 * hidden]);                                          \
    new_h[k] = n + z * ((A)h[k] - n);                                                                                 \
  }                                                                                                                   \
  extern "C" __global__ void gru_cell_gradient_##name(const T* g, const T* from_x, const T* from_h, const T* h, T* gx,\
                                                      T* gh, T* gstate, long long hidden, long long count) {          \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long at = k / hidden * 3 * hidden + k % hidden;                                                              \
    A above = g[k], scaled = from_h[at + 2 * hidden];                                                                 \
    A r = sigmoid((A)from_x[at] + (A)from_h[at]);                                                                     \
    A z = sigmoid((A)from_x[at + hidden] + (A)from_h[at + hidden]);                                                   \
    A n = tanh((A)from_x[at + 2 * hidden] + r * scaled);                                                              \
    A gn = above * ((A)1 - z) * ((A)1 - n * n), gr = gn * scaled * r * ((A)1 - r);                                    \
    A gz = ((A)h[k] - n) * above * z * ((A)1 - z);                                                                    \
    gx[at] = gr;                                                                                                      \
    gx[at + hidden] = gz;                                                                                             \
    gx[at + 2 * hidden] = gn;                                                                                         \
    gh[at] = gr;                                                                                                      \
    gh[at + hidden] = gz;                                                                                             \
    gh[at + 2 * hidden] = gn * r;                                                                                     \
    gstate[k] = above * z;                                                                                            \
  }
FOR_ALL_TYPES(GRU)
