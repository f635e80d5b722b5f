// The two functions of CUDA's header, which is in a wheel of its own.
#pragma once
extern "C" cudaError_t cudaProfilerStart(void);
extern "C" cudaError_t cudaProfilerStop(void);
