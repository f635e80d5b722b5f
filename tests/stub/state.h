// What the stub knows: devices, memory, streams, events and captures, and the faults that were found so far.
//
// It stands where libcuda, libcudart, libcublas and libcublasLt stand, and looks at the arguments of each call by the
// rules of CUDA. Nothing is computed: device memory is a range of addresses that nobody can read, kept for each device,
// and an address is never given out twice. So any word within these ranges is a pointer, of a known device, and it is
// known whether it points to memory that is there.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#define EXPORT extern "C"

typedef uintptr_t Address;

// One thing that a stream is given. A graph looks at its pointers again whenever it is launched.
struct Work {
  std::string line;               // of the trace
  int device;                     // of its stream
  std::vector<Address> pointers;  // into device memory
};

// How far every stream is known to be.
typedef std::map<void*, long> Clock;

struct Capture {
  void* lead;
  bool is_active = true, is_invalid = false;
  std::map<void*, Clock> clocks;  // of every stream that takes part
  Clock counts;                   // works of every stream so far
  std::vector<Work> works;
};

struct Stream {
  int device;
  bool is_blocking;
  Capture* capture = nullptr;
};

struct Event {
  int device;
  bool is_timed, is_recorded = false;
  Capture* capture = nullptr;  // in which it was recorded
  Clock clock;
};

struct Graph {
  std::vector<Work> works;
};

struct Block {
  size_t bytes;
  bool is_mapped;  // of another process
};

struct State {
  int device = 0;
  std::map<void*, Stream*> streams;
  std::map<void*, Event*> events;
  std::map<Address, Block> blocks;   // device memory by its first address
  std::map<Address, size_t> pinned;  // memory of the host
  std::vector<size_t> used;          // bytes of every device
  std::set<std::pair<int, int>> peers;
  std::set<Capture*> captures;  // that are active
  std::map<std::string, long> counts;
  std::vector<std::string> faults;
  std::vector<std::string> trace;
  bool is_traced = false, is_step = false;
};

extern State& state;  // it, and all tables of the stub, outlive what Python gives back when it ends

// Things that are wrong. `in_step` is about what a step must not do once it is warm.
void fault(const std::string& what);
void in_step(const char* what);

std::string format(const char* text, ...);

int device_count();
Stream* find_stream(void* stream);  // null: a default stream, or none at all
bool is_default(void* stream);
cudaError_t invalidate(Capture* capture, cudaError_t error, const char* what);

// Give a stream something to do; the default streams take it, too, with a note.
cudaError_t give(void* stream, Work work);

// Device memory.
int device_of(Address address);  // -1: of the host
bool is_there(const void* begin, size_t bytes, int device = -1);
bool is_pinned(const void* begin, size_t bytes);
cudaError_t take_memory(void** pointer, size_t bytes, bool is_mapped);
// Pointers of a work: memory that is gone, or of a device that this one has no access to.
void check_pointers(const Work& work);

// Note an argument of a kernel that is, or begins with, a pointer into device memory (CuPy's arrays do; what comes later
// in its structures may be left unset).
void add_pointer(std::vector<Address>& found, const void* argument, size_t bytes);
