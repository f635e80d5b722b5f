// Devices, memory and copies of the runtime. What is copied from a device is zero.
#include <glob.h>
#include <unistd.h>

#include "state.h"

// -- devices ---------------------------------------------------------------------------------------------------------

EXPORT const char* cudaGetErrorName(cudaError_t error) {
  static const std::map<int, const char*> names = {
      {0, "cudaSuccess"},
      {1, "cudaErrorInvalidValue"},
      {2, "cudaErrorMemoryAllocation"},
      {400, "cudaErrorInvalidResourceHandle"},
      {704, "cudaErrorPeerAccessAlreadyEnabled"},
      {801, "cudaErrorNotSupported"},
      {900, "cudaErrorStreamCaptureUnsupported"},
      {901, "cudaErrorStreamCaptureInvalidated"},
      {902, "cudaErrorStreamCaptureMerge"},
      {904, "cudaErrorStreamCaptureUnjoined"},
      {905, "cudaErrorStreamCaptureIsolation"},
      {907, "cudaErrorCapturedEvent"},
  };
  auto found = names.find(error);
  return found == names.end() ? "cudaErrorUnknown" : found->second;
}
EXPORT const char* cudaGetErrorString(cudaError_t) { return "of the stub"; }
EXPORT cudaError_t cudaGetLastError() { return cudaSuccess; }
EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13020;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = state.device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  state.device = device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}

// Those of an H200.
EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  static const std::map<int, int> known = {
      {cudaDevAttrMaxThreadsPerBlock, 1024},
      {cudaDevAttrMaxBlockDimX, 1024},
      {cudaDevAttrMaxBlockDimY, 1024},
      {cudaDevAttrMaxBlockDimZ, 64},
      {cudaDevAttrMaxGridDimX, 2147483647},
      {cudaDevAttrMaxGridDimY, 65535},
      {cudaDevAttrMaxGridDimZ, 65535},
      {cudaDevAttrMaxSharedMemoryPerBlock, 49152},
      {cudaDevAttrWarpSize, 32},
      {cudaDevAttrClockRate, 1980000},
      {cudaDevAttrMultiProcessorCount, 132},
      {cudaDevAttrMemoryClockRate, 3201000},
      {cudaDevAttrGlobalMemoryBusWidth, 6144},
      {cudaDevAttrL2CacheSize, 62914560},
      {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 233472},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, 232448},
      {cudaDevAttrKernelExecTimeout, 0},
      {cudaDevAttrComputeMode, 0},
      {cudaDevAttrComputeCapabilityMajor, 9},
      {cudaDevAttrComputeCapabilityMinor, 0},
  };
  auto found = known.find(attribute);
  *value = found == known.end() ? 1 : found->second;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetByPCIBusId(int* device, const char*) {
  *device = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  snprintf(text, bytes, "0000:%02x:00.0", 0x3c + device);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  memset(found, 0, sizeof *found);
  strcpy(found->name, "NVIDIA H200");
  found->major = 9;
  found->multiProcessorCount = 132;
  found->totalGlobalMem = (size_t)139 << 30;
  found->pciBusID = 0x3c + device;
  found->warpSize = 32;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  in_step("access to a peer is asked for");
  if (!state.captures.empty()) fault("access to a peer is asked for during a capture");
  return state.peers.insert({state.device, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
}
EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  state.peers.erase({state.device, peer});
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit) {
  *value = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStart() { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop() { return cudaSuccess; }

// -- memory of other processes: a file beside the others says who maps what --------------------------------------------

struct Handle {
  long process;
  Address begin;
  size_t bytes;
  int device;
};
static std::map<Address, std::string>& mapped = *new std::map<Address, std::string>;  // memory -> its file

static std::string file_of(const Handle& handle) {
  const char* folder = getenv("STUB_FOLDER");
  return std::string(folder ? folder : "/tmp") + format("/stub-%ld-%lx.", handle.process, handle.begin);
}

static bool is_mapped_by_others(Address begin) {
  glob_t found;
  bool is_it = glob((file_of({getpid(), begin, 0, 0}) + "*").c_str(), 0, nullptr, &found) == 0;
  globfree(&found);
  return is_it;
}

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  auto block = state.blocks.upper_bound((Address)pointer);
  if (!is_there(pointer, 1)) return cudaErrorInvalidValue;
  --block;
  Handle found{getpid(), block->first, block->second.bytes, device_of(block->first)};
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &found, sizeof found);
  return cudaSuccess;
}

EXPORT cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned) {
  in_step("memory is mapped");
  Handle found;
  memcpy(&found, &handle, sizeof found);
  if (found.process == getpid()) {
    fault("a process maps its own memory");
    return cudaErrorInvalidValue;
  }
  // CUDA maps whole grains: a block that shares its last one lends its neighbours, too.
  if (found.bytes % (2 << 20)) fault(format("memory of %zu bytes is shared, no multiple of 2 MiB", found.bytes));
  take_memory(pointer, found.bytes, true);
  std::string file = file_of(found) + std::to_string(getpid());
  fclose(fopen(file.c_str(), "w"));
  mapped[(Address)*pointer] = file;
  return cudaSuccess;
}

EXPORT cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  auto found = mapped.find((Address)pointer);
  if (found == mapped.end()) return cudaErrorInvalidValue;
  unlink(found->second.c_str());
  mapped.erase(found);
  state.blocks.erase((Address)pointer);
  return cudaSuccess;
}

// -- memory ----------------------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  in_step("memory is taken");
  return take_memory(pointer, bytes, false);
}
EXPORT cudaError_t cudaFree(void* pointer) {
  if (!pointer) return cudaSuccess;
  in_step("memory is given back");
  auto found = state.blocks.find((Address)pointer);
  if (found == state.blocks.end() || found->second.is_mapped) {
    fault("memory is given back that was not taken");
    return cudaErrorInvalidValue;
  }
  if (is_mapped_by_others(found->first)) fault("memory is given back that another process maps");
  state.used[device_of(found->first)] -= found->second.bytes;
  state.blocks.erase(found);
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
  in_step("memory of the host is taken");
  if (posix_memalign(pointer, 4096, bytes ? bytes : 1)) return cudaErrorMemoryAllocation;
  state.pinned[(Address)*pointer] = bytes;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFreeHost(void* pointer) {
  if (state.pinned.erase((Address)pointer)) free(pointer);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  cudaDeviceProp facts;
  cudaGetDeviceProperties(&facts, state.device);
  *total = facts.totalGlobalMem;
  *free_bytes = *total - (state.device < (int)state.used.size() ? state.used[state.device] : 0);
  return cudaSuccess;
}
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* pointer) {
  memset(found, 0, sizeof *found);
  bool is_device = is_there(pointer, 1), is_host = is_pinned(pointer, 1);
  found->type = is_device ? cudaMemoryTypeDevice : is_host ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  found->device = is_device ? device_of((Address)pointer) : 0;
  found->devicePointer = (void*)pointer;
  found->hostPointer = is_host ? (void*)pointer : nullptr;
  return cudaSuccess;
}

// -- copies ----------------------------------------------------------------------------------------------------------

// Whether both ends are there; a host's end becomes zero where a device is the source.
static bool copy_ends(void* target, const void* source, size_t bytes, bool needs_pinned) {
  bool to = device_of((Address)target) >= 0, from = device_of((Address)source) >= 0;
  bool is_right = (!to || is_there(target, bytes)) && (!from || is_there(source, bytes));
  if (!is_right) fault(format("a copy of %zu bytes runs over the end of its memory", bytes));
  if (needs_pinned && ((!to && !is_pinned(target, bytes)) || (!from && !is_pinned(source, bytes)))) {
    fault(format("a copy of %zu bytes on a stream between a device and memory that is not pinned", bytes));
    is_right = false;
  }
  return is_right;
}

static void fill_host(void* target, const void* source, size_t bytes) {
  if (device_of((Address)target) >= 0) return;
  if (device_of((Address)source) >= 0)
    memset(target, 0, bytes);
  else
    memcpy(target, source, bytes);
}

EXPORT cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  in_step("the host waits for a copy");
  for (Capture* capture : state.captures) invalidate(capture, cudaErrorStreamCaptureUnsupported, "the host waits for a copy");
  if (!copy_ends(target, source, bytes, false)) return cudaErrorInvalidValue;
  fill_host(target, source, bytes);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (!copy_ends(target, source, bytes, !is_default(stream))) return cudaErrorInvalidValue;
  const char* way = device_of((Address)target) < 0 ? "out" : device_of((Address)source) < 0 ? "in" : "within";
  Work work{format("copy %d %zu ", state.device, bytes) + way, state.device, {}};
  Stream* found = find_stream(stream);
  if (!found || !found->capture) fill_host(target, source, bytes);
  for (Address end : {(Address)target, (Address)source})  // the two ends of a copy need no access to each other
    if (device_of(end) >= 0) work.line += format(" %lx", end);
  return give(stream, work);
}
EXPORT cudaError_t cudaMemset(void* target, int, size_t bytes) {
  in_step("the host fills memory");
  if (!is_there(target, bytes)) fault("a fill runs over the end of its memory");
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemsetAsync(void* target, int, size_t bytes, cudaStream_t stream) {
  if (!is_there(target, bytes)) fault("a fill runs over the end of its memory");
  return give(stream, Work{format("fill %d %zu %lx", state.device, bytes, (Address)target), state.device, {(Address)target}});
}
