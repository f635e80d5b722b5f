// What kernels made from expressions share (see ops/expressions/cuda_source.py). NaN wins, as in NumPy.
#include "../cuda/common.cu"

static __device__ float larger(float a, float b) { return b > a || b != b ? b : a; }
static __device__ double larger(double a, double b) { return b > a || b != b ? b : a; }
static __device__ float smaller(float a, float b) { return b < a || b != b ? b : a; }
static __device__ double smaller(double a, double b) { return b < a || b != b ? b : a; }
static __device__ float sign_of(float a) { return a != a ? a : (float)(a > 0) - (float)(a < 0); }
static __device__ double sign_of(double a) { return a != a ? a : (double)(a > 0) - (double)(a < 0); }
