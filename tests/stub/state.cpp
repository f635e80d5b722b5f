// The state of the stub, and what Python asks of it.
#include "state.h"

#include <sys/mman.h>

#include <cstdarg>

State& state = *new State;

static const Address FIRST = 0x100000000000;      // of device 0
static const Address APART = (Address)1 << 41;    // from one device to the next
static const size_t TOTAL = (size_t)139 << 30;    // bytes of a device
static const size_t GRAIN = 512, MOST_FAULTS = 200;
static std::vector<Address>& next_address = *new std::vector<Address>;

std::string format(const char* text, ...) {
  char buffer[600];
  va_list rest;
  va_start(rest, text);
  vsnprintf(buffer, sizeof buffer, text, rest);
  va_end(rest);
  return buffer;
}

void fault(const std::string& what) {
  state.counts["faults"]++;
  if (state.faults.size() < MOST_FAULTS) state.faults.push_back(what);
}

void in_step(const char* what) {
  state.counts[what]++;
  if (state.is_step) fault(std::string("in a warm step: ") + what);
}

int device_count() {
  static const char* found = getenv("STUB_DEVICES");
  return found ? atoi(found) : 1;
}

// -- streams ---------------------------------------------------------------------------------------------------------

bool is_default(void* stream) { return (Address)stream <= 2; }

Stream* find_stream(void* stream) {
  auto found = state.streams.find(stream);
  return found == state.streams.end() ? nullptr : found->second;
}

cudaError_t invalidate(Capture* capture, cudaError_t error, const char* what) {
  capture->is_invalid = true;
  fault(std::string("a capture ends by: ") + what);
  return error;
}

cudaError_t give(void* stream, Work work) {
  if (is_default(stream)) {
    in_step("work on a default stream");
    if (!state.captures.empty()) fault("work on a default stream during a capture: " + work.line);
    work.device = state.device;
    check_pointers(work);
    return cudaSuccess;
  }
  Stream* found = find_stream(stream);
  if (!found) {
    fault("work on a stream that is not there: " + work.line);
    return cudaErrorInvalidResourceHandle;
  }
  work.device = found->device;
  check_pointers(work);
  state.counts["works"]++;
  Capture* capture = found->capture;
  if (!capture) {
    if (state.is_traced) state.trace.push_back(work.line);
    return cudaSuccess;
  }
  if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  capture->clocks[stream][stream] = ++capture->counts[stream];
  capture->works.push_back(std::move(work));
  return cudaSuccess;
}

// -- memory ----------------------------------------------------------------------------------------------------------

int device_of(Address address) {
  if (address < FIRST) return -1;
  Address device = (address - FIRST) / APART;
  return device < (Address)device_count() ? (int)device : -1;
}

static std::map<Address, Block>::iterator block_of(Address address) {
  auto found = state.blocks.upper_bound(address);
  if (found == state.blocks.begin()) return state.blocks.end();
  --found;
  return address < found->first + found->second.bytes ? found : state.blocks.end();
}

bool is_there(const void* begin, size_t bytes, int device) {
  auto block = block_of((Address)begin);
  if (block == state.blocks.end()) return false;
  if (device >= 0 && device_of((Address)begin) != device) return false;
  return (Address)begin + bytes <= block->first + block->second.bytes;
}

bool is_pinned(const void* begin, size_t bytes) {
  auto found = state.pinned.upper_bound((Address)begin);
  if (found == state.pinned.begin()) return false;
  --found;
  return (Address)begin + bytes <= found->first + found->second;
}

cudaError_t take_memory(void** pointer, size_t bytes, bool is_mapped) {
  while ((int)next_address.size() < device_count()) {
    next_address.push_back(FIRST + next_address.size() * APART);
    state.used.push_back(0);
    void* wanted = (void*)next_address.back();
    void* given = mmap(wanted, APART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (given != wanted) fault("the addresses of a device are taken by something else");
  }
  size_t whole = (bytes + GRAIN - 1) / GRAIN * GRAIN;
  size_t& used = state.used[state.device];
  Address& next = next_address[state.device];
  if (!is_mapped && used + bytes > TOTAL) return cudaErrorMemoryAllocation;
  *pointer = (void*)next;
  state.blocks[next] = {bytes, is_mapped};
  if (!is_mapped) used += bytes;
  next += whole + GRAIN;  // what runs over the end hits nothing
  return cudaSuccess;
}

void check_pointers(const Work& work) {
  for (Address pointer : work.pointers) {
    int device = device_of(pointer);
    if (block_of(pointer) == state.blocks.end())
      fault(format("memory that is gone, or never was: %#lx in ", pointer) + work.line);
    else if (device != work.device && !state.peers.count({work.device, device}))
      fault(format("memory of device %d on device %d without access: ", device, work.device) + work.line);
    else if (device != work.device)
      state.counts["memory of a peer"]++;
  }
}

void add_pointer(std::vector<Address>& found, const void* argument, size_t bytes) {
  Address word = 0;
  if (bytes >= 8) memcpy(&word, argument, 8);
  if (device_of(word) >= 0) found.push_back(word);
}

// -- what Python asks ------------------------------------------------------------------------------------------------

static std::string& answer = *new std::string;

static const char* joined(std::vector<std::string>& lines) {
  answer.clear();
  for (auto& line : lines) answer += line + "\n";
  lines.clear();
  return answer.c_str();
}

EXPORT const char* stub_take_faults() {
  state.counts["faults"] = 0;
  return joined(state.faults);
}

EXPORT const char* stub_take_trace() { return joined(state.trace); }

EXPORT void stub_trace(int is_on) { state.is_traced = is_on; }

EXPORT void stub_step(int is_on) { state.is_step = is_on; }

EXPORT long stub_count(const char* what) {
  std::string name = what;
  if (name == "streams") return (long)state.streams.size();
  if (name == "events") return (long)state.events.size();
  if (name == "blocks") return (long)state.blocks.size();
  if (name == "bytes") {
    long total = 0;
    for (size_t used : state.used) total += (long)used;
    return total;
  }
  return state.counts[name];
}
