// Pairs of features turned by angle = position * base^(-2 f / features), scaled by `factor` and a ramp, which is computed
// in float64; see ops/attention/rotary.py.
// Arrays are (samples, positions, heads, features) without gaps; the two of a pair are `apart` elements apart, and pairs
// follow each other by `step`.
#include "common.cu"

#define ROTARY(T, A, name)                                                                                            \
  extern "C" __global__ void turn_##name(const T* x, T* y, long long positions, long long heads, long long pairs,     \
                                         long long step, long long apart, long long first_position,                   \
                                         long long first_pair, long long all_pairs, double base, double factor,       \
                                         double offset, double per_frequency, double per_pair, double magnitude,      \
                                         double sign, long long count) {                                              \
    long long k = THREAD;                                                                                             \
    if (k >= count) return;                                                                                           \
    long long f = k % pairs, row = k / pairs, position = row / heads % positions;                                     \
    double frequency = pow(base, -2.0 * (first_pair + f) / (2.0 * all_pairs));                                        \
    double ramp = offset + per_frequency * frequency + per_pair * (first_pair + f);                                   \
    double kept = fmin(fmax(ramp, 0.0), 1.0);                                                                         \
    double angle = (first_position + position) * (frequency * (kept + (1.0 - kept) / factor));                        \
    A cosine = (A)(magnitude * cos(angle)), sine = (A)(sign * magnitude * sin(angle));                                \
    long long at = row * 2 * pairs + f * step;                                                                        \
    A a = x[at], b = x[at + apart];                                                                                   \
    y[at] = a * cosine - b * sine;                                                                                    \
    y[at + apart] = b * cosine + a * sine;                                                                            \
  }
FOR_ALL_TYPES(ROTARY)
