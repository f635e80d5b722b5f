// The driver: modules, and launches of kernels within the limits of a GPU.
#include "state.h"

#undef cuModuleGetGlobal
#undef cuMemGetAddressRange
#undef cuCtxCreate
#undef cuCtxDestroy
#undef cuLinkCreate
#undef cuLinkAddData
#undef cuLinkAddFile
#undef cuDevicePrimaryCtxRelease

static const int MOST_THREADS = 1024, MOST_REGISTERS = 65536;
static const unsigned MOST_SHARED = 49152, MOST_Y = 65535;

struct Kernel {
  std::string name;
  int device = 0, registers = 0;
  size_t shared_bytes = 0;
  std::map<int, size_t> parameters;  // bytes of every one
};

struct Module {
  int device;
  std::map<std::string, Kernel> kernels;
};

static std::map<void*, Module*>& modules = *new std::map<void*, Module*>;

// -- what a cubin says of its kernels: ELF64, with sections .text.K, .nv.info.K and .nv.shared.K -----------------------

template <class T>
static T read_at(const unsigned char* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

// Attributes of a kernel: format, number, and a value of 16 bits that is the size of what follows where the format is 4.
static void read_info(Kernel& kernel, const unsigned char* at, size_t bytes) {
  const int SIZED = 4, PARAMETER = 0x17;
  for (const unsigned char* end = at + bytes; at + 4 <= end;) {
    int kind = at[0], attribute = at[1];
    size_t size = read_at<uint16_t>(at + 2);
    if (kind == SIZED && attribute == PARAMETER) kernel.parameters[read_at<uint16_t>(at + 8)] = read_at<uint32_t>(at + 12) >> 18;
    at += 4 + (kind == SIZED ? size : 0);
  }
}

static void read_cubin(Module& module, const unsigned char* image) {
  const unsigned char* table = image + read_at<uint64_t>(image + 0x28);
  size_t entry = read_at<uint16_t>(image + 0x3a), count = read_at<uint16_t>(image + 0x3c);
  auto header = [&](size_t k) { return table + entry * k; };
  const unsigned char* names = image + read_at<uint64_t>(header(read_at<uint16_t>(image + 0x3e)) + 0x18);
  for (size_t k = 0; k < count; ++k) {
    std::string name = (const char*)names + read_at<uint32_t>(header(k));
    size_t bytes = read_at<uint64_t>(header(k) + 0x20);
    auto rest = [&](const char* prefix) {
      bool is_it = name.compare(0, strlen(prefix), prefix) == 0;
      return is_it ? &module.kernels[name.substr(strlen(prefix))] : nullptr;
    };
    if (Kernel* kernel = rest(".text.")) kernel->registers = read_at<uint32_t>(header(k) + 0x2c) >> 24;
    if (Kernel* kernel = rest(".nv.shared.")) kernel->shared_bytes = bytes;
    if (Kernel* kernel = rest(".nv.info.")) read_info(*kernel, image + read_at<uint64_t>(header(k) + 0x18), bytes);
  }
}

EXPORT CUresult cuModuleLoadData(CUmodule* made, const void* image) {
  in_step("a module is loaded");
  if (!state.captures.empty()) fault("a module is loaded during a capture");
  if (memcmp(image, "\177ELF", 4)) {
    fault("a module is no cubin");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  Module* module = new Module{state.device, {}};
  read_cubin(*module, (const unsigned char*)image);
  for (auto& each : module->kernels) {
    each.second.name = each.first;
    each.second.device = state.device;
  }
  modules[module] = module;
  *made = (CUmodule)module;
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleUnload(CUmodule module) {
  modules.erase(module);  // its kernels stay: a launch of one that is gone cannot be told from the address alone
  return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  auto& kernels = ((Module*)module)->kernels;
  auto found = kernels.find(name);
  if (found == kernels.end()) return CUDA_ERROR_NOT_FOUND;
  in_step("a kernel is loaded");
  *function = (CUfunction)&found->second;
  return CUDA_SUCCESS;
}

// -- launches --------------------------------------------------------------------------------------------------------

// Why a kernel cannot be launched so; empty: it can.
static std::string refusal(const Kernel& kernel, const unsigned grid[3], const unsigned block[3], unsigned shared) {
  long threads = (long)block[0] * block[1] * block[2];
  if (!grid[0] || !grid[1] || !grid[2] || !threads) return "no blocks or no threads";
  if (grid[0] > 0x7fffffffu || grid[1] > MOST_Y || grid[2] > MOST_Y) return "too many blocks";
  if (threads > MOST_THREADS || block[2] > 64) return "too many threads in a block";
  if (shared + kernel.shared_bytes > MOST_SHARED) return "too much shared memory";
  long registers = (kernel.registers + 7) / 8 * 8;
  if (registers * ((threads + 31) / 32 * 32) > MOST_REGISTERS) return "too many registers in a block";
  return "";
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** arguments,
                               void** extra) {
  const Kernel& kernel = *(Kernel*)function;
  unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  std::string why = refusal(kernel, grid, block, shared);
  Stream* found = find_stream(stream);
  if (kernel.device != state.device) why = "it was loaded on another device";
  if (found && found->device != state.device) why = "its stream is of another device";
  if (extra) why = "arguments in one buffer";
  if (!why.empty()) {
    fault("kernel " + kernel.name + format(" of %u x %u threads: ", grid_x, block_x) + why);
    return CUDA_ERROR_INVALID_VALUE;
  }
  Work work{format("kernel %d %u %u ", state.device, grid_x, block_x) + kernel.name, state.device, {}};
  for (auto& parameter : kernel.parameters) add_pointer(work.pointers, arguments[parameter.first], parameter.second);
  state.counts["kernels"]++;
  state.counts["pointers of kernels"] += (long)work.pointers.size();
  for (Address pointer : work.pointers) work.line += format(" %lx", pointer);
  return (CUresult)give(stream, work);
}

// -- facts -----------------------------------------------------------------------------------------------------------

EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "of the stub";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = (CUcontext)(Address)(state.device + 1);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = state.device;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  Stream* found = find_stream(stream);
  *context = (CUcontext)(Address)((found ? found->device : state.device) + 1);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  const Kernel& kernel = *(Kernel*)function;
  bool is_shared = attribute == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
  *value = is_shared ? (int)kernel.shared_bytes : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? kernel.registers : MOST_THREADS;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, size_t) {
  *blocks = 8;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction, CUoccupancyB2DSize, size_t, int) {
  *grid = 264;
  *block = 256;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* begin, size_t* bytes, CUdeviceptr pointer) {
  auto found = state.blocks.upper_bound((Address)pointer);
  if (found == state.blocks.begin() || !is_there((void*)pointer, 1)) return CUDA_ERROR_NOT_FOUND;
  --found;
  *begin = (CUdeviceptr)found->first;
  if (bytes) *bytes = found->second.bytes;
  return CUDA_SUCCESS;
}
