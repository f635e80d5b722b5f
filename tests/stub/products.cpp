// cuBLAS and cuBLASLt: the arguments of products by their documentation.
#include "state.h"

static const int SUCCESS = 0, BAD_VALUE = 7, FAILED = 14, UNSUPPORTED = 15;
static const size_t MOST_WORKSPACE = 64 << 20;

static size_t bytes_of(int type) {
  static const std::map<int, size_t> known = {{CUDA_R_32F, 4}, {CUDA_R_64F, 8}, {CUDA_R_16F, 2}, {CUDA_R_16BF, 2}};
  auto found = known.find(type);
  return found == known.end() ? 0 : found->second;
}

// Whether operands of these types are multiplied, summed as `compute` says and written as `result`.
static bool is_supported(int first, int second, int result, int compute) {
  const int IN_FLOAT = 68, IN_DOUBLE = 70, IN_TF32 = 77;
  if (first != second) return false;
  if (compute == IN_DOUBLE) return first == CUDA_R_64F && result == CUDA_R_64F;
  bool is_half = first == CUDA_R_16F || first == CUDA_R_16BF;
  if (compute == IN_TF32) return first == CUDA_R_32F && result == CUDA_R_32F;
  return compute == IN_FLOAT && (first == CUDA_R_32F || is_half) && (result == first || (is_half && result == CUDA_R_32F));
}

struct Matrix {
  const void* begin;
  int type;
  long rows, columns, leading, step, count;

  size_t reach() const { return bytes_of(type) * ((count - 1) * step + leading * (columns - 1) + rows); }
};

// What is wrong with a matrix on a device; empty: nothing.
static std::string wrong(const char* name, const Matrix& m, int device) {
  if (m.rows < 0 || m.columns < 0 || m.count < 0) return std::string(name) + " has negative extents";
  if (m.leading < (m.rows > 1 ? m.rows : 1)) return std::string(name) + format(" has %ld rows and a leading dimension of %ld", m.rows, m.leading);
  if (m.step < 0 || !bytes_of(m.type)) return std::string(name) + " has a negative step, or no type";
  if ((Address)m.begin % bytes_of(m.type)) return std::string(name) + " is not aligned";
  if (m.rows && m.columns && m.count && !is_there(m.begin, m.reach(), device)) return std::string(name) + " runs over the end of its memory, or is not on this device";
  return "";
}

// A workspace belongs to one stream: products on two that use it side by side would spoil each other's sums.
static void note_workspace(const void* workspace, size_t bytes, void* stream, int device) {
  static auto& owners = *new std::map<std::pair<Address, size_t>, void*>;  // an address is never given out twice
  if (!bytes) return;
  if ((Address)workspace % 256 || bytes > MOST_WORKSPACE || !is_there(workspace, bytes, device)) fault("a workspace is not aligned, too large, or not on this device");
  auto owner = owners.insert({{(Address)workspace, bytes}, stream}).first;
  if (owner->second != stream && find_stream(owner->second)) fault("a workspace is used by two streams");
  owner->second = stream;
}

// -- handles ---------------------------------------------------------------------------------------------------------

struct BlasHandle {
  int device;
  void* stream = nullptr;
  const void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

static int make_handle(void** made) {
  in_step("a handle is made");
  if (!state.captures.empty()) fault("a handle is made during a capture");
  state.counts["handles"]++;
  *made = new BlasHandle{state.device};
  return SUCCESS;
}
static int destroy_handle(void* handle) {
  state.counts["handles"]--;
  delete (BlasHandle*)handle;
  return SUCCESS;
}
EXPORT int cublasCreate_v2(void** made) { return make_handle(made); }
EXPORT int cublasDestroy_v2(void* handle) { return destroy_handle(handle); }
EXPORT int cublasLtCreate(void** made) { return make_handle(made); }
EXPORT int cublasLtDestroy(void* handle) { return destroy_handle(handle); }
EXPORT int cublasSetStream_v2(void* handle, void* stream) {
  *(BlasHandle*)handle = BlasHandle{((BlasHandle*)handle)->device, stream};  // that takes the workspace away
  return SUCCESS;
}
EXPORT int cublasSetWorkspace_v2(void* handle, const void* workspace, size_t bytes) {
  ((BlasHandle*)handle)->workspace = workspace;
  ((BlasHandle*)handle)->workspace_bytes = bytes;
  return SUCCESS;
}

static bool is_here(const BlasHandle& handle, void* stream) {
  Stream* found = find_stream(stream);
  bool is_right = found && found->device == handle.device && state.device == handle.device;
  if (!is_right) fault("a handle is used on another device than its own, or on a default stream");
  return is_right;
}

// -- cuBLAS ----------------------------------------------------------------------------------------------------------

EXPORT int cublasGemmStridedBatchedEx(void* h, int turn_a, int turn_b, int m, int n, int k, const void*, const void* a,
                                      int type_a, int leading_a, long long step_a, const void* b, int type_b,
                                      int leading_b, long long step_b, const void*, void* c, int type_c, int leading_c,
                                      long long step_c, int count, int compute, int) {
  BlasHandle& handle = *(BlasHandle*)h;
  std::string what = format("product %d %d %d %d %d %d %d %d ", state.device, m, n, k, count, type_a, type_c, compute);
  if (!is_here(handle, handle.stream)) return BAD_VALUE;
  if (!handle.workspace_bytes) fault("cuBLAS has no workspace of ours: it would take memory");
  note_workspace(handle.workspace, handle.workspace_bytes, handle.stream, handle.device);
  Matrix first{a, type_a, turn_a ? k : m, turn_a ? m : k, leading_a, step_a, count};
  Matrix second{b, type_b, turn_b ? n : k, turn_b ? k : n, leading_b, step_b, count};
  Matrix result{c, type_c, m, n, leading_c, step_c, count};
  bool is_apart = step_c >= (long long)leading_c * (n - 1) + m || leading_c >= step_c * (count - 1) + m;
  if (count > 1 && (step_c < m || !is_apart)) fault("results of a product overlap: " + what);
  std::string why = wrong("A", first, handle.device) + wrong("B", second, handle.device) + wrong("C", result, handle.device);
  if (!why.empty()) {
    fault(what + why);
    return BAD_VALUE;
  }
  if (!is_supported(type_a, type_b, type_c, compute)) {
    fault(what + format("types %d, %d to %d", type_a, type_b, type_c));
    return UNSUPPORTED;
  }
  state.counts["products"]++;
  return give(handle.stream, Work{what + "gemm", state.device, {(Address)a, (Address)b, (Address)c}}) ? FAILED : SUCCESS;
}

// -- cuBLASLt --------------------------------------------------------------------------------------------------------

typedef std::map<int, std::vector<char>> Attributes;
struct LtDescription {
  int compute, scale;
  Attributes attributes;
};
struct LtLayout {
  int type;
  unsigned long rows, columns;
  long leading;
  Attributes attributes;
};
enum { TRANSPOSE_A = 3, TRANSPOSE_B = 4, EPILOGUE = 7, BIAS = 8, AUX = 11, AUX_LEADING = 12 };  // of a description
enum { COUNT = 5, STEP = 6 };                                                                    // of a layout

template <class T>
static T value_of(const Attributes& attributes, int number, T otherwise) {
  auto found = attributes.find(number);
  if (found != attributes.end()) memcpy(&otherwise, found->second.data(), sizeof otherwise);
  return otherwise;
}
static int set_attribute(Attributes& attributes, int number, const void* value, size_t bytes) {
  attributes[number].assign((const char*)value, (const char*)value + bytes);
  return SUCCESS;
}

EXPORT int cublasLtMatmulDescCreate(void** made, int compute, int scale) {
  state.counts["descriptions"]++;
  *made = new LtDescription{compute, scale, {}};
  return SUCCESS;
}
EXPORT int cublasLtMatmulDescDestroy(void* it) {
  state.counts["descriptions"]--;
  delete (LtDescription*)it;
  return SUCCESS;
}
EXPORT int cublasLtMatmulDescSetAttribute(void* it, int number, const void* value, size_t bytes) {
  return set_attribute(((LtDescription*)it)->attributes, number, value, bytes);
}
EXPORT int cublasLtMatrixLayoutCreate(void** made, int type, unsigned long rows, unsigned long columns, long leading) {
  state.counts["descriptions"]++;
  *made = new LtLayout{type, rows, columns, leading, {}};
  return SUCCESS;
}
EXPORT int cublasLtMatrixLayoutDestroy(void* it) {
  state.counts["descriptions"]--;
  delete (LtLayout*)it;
  return SUCCESS;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(void* it, int number, const void* value, size_t bytes) {
  return set_attribute(((LtLayout*)it)->attributes, number, value, bytes);
}
EXPORT int cublasLtMatmulPreferenceCreate(void** made) {
  state.counts["descriptions"]++;
  *made = new Attributes;
  return SUCCESS;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void* it) {
  state.counts["descriptions"]--;
  delete (Attributes*)it;
  return SUCCESS;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void* it, int number, const void* value, size_t bytes) {
  return set_attribute(*(Attributes*)it, number, value, bytes);
}

// Like cuBLASLt, none for a product of float64 with an epilogue of GELU, and none where STUB_REFUSES is set.
EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, void* description, void* a, void*, void*, void*, void*, int, void* result, int* found) {
  const int FIRST_GELU = 32, RELU_BIT = 2, BIAS_BIT = 4;
  state.counts["heuristics"]++;
  if (!state.captures.empty()) {
    fault("an algorithm is looked for during a capture");
    return FAILED;
  }
  unsigned epilogue = value_of(((LtDescription*)description)->attributes, EPILOGUE, 1u);
  bool is_refused = getenv("STUB_REFUSES") || (((LtLayout*)a)->type == CUDA_R_64F && (epilogue & ~(RELU_BIT | BIAS_BIT | 1u)) >= FIRST_GELU);
  *found = !is_refused;
  memset(result, 0, 96);
  return is_refused ? UNSUPPORTED : SUCCESS;
}

static Matrix matrix_of(const LtLayout& layout, const void* begin) {
  long count = value_of(layout.attributes, COUNT, 1), step = value_of(layout.attributes, STEP, 0LL);
  return {begin, layout.type, (long)layout.rows, (long)layout.columns, layout.leading, step, count};
}

EXPORT int cublasLtMatmul(void* h, void* description, const void*, const void* a, void* layout_a, const void* b, void* layout_b,
                          const void*, const void* c, void*, void* d, void* layout_d, const void*, void* workspace,
                          size_t workspace_bytes, void* stream) {
  BlasHandle& handle = *(BlasHandle*)h;
  const Attributes& asked = ((LtDescription*)description)->attributes;
  Matrix first = matrix_of(*(LtLayout*)layout_a, a), second = matrix_of(*(LtLayout*)layout_b, b), result = matrix_of(*(LtLayout*)layout_d, d);
  long k = value_of(asked, TRANSPOSE_A, 0) ? first.rows : first.columns;
  int compute = ((LtDescription*)description)->compute;
  unsigned epilogue = value_of(asked, EPILOGUE, 1u);
  std::string what = format("product %d %ld %ld %ld %ld %d %d %d lt%u", state.device, result.rows, result.columns, k, result.count, first.type, result.type, compute, epilogue);
  if (!is_here(handle, stream)) return BAD_VALUE;
  note_workspace(workspace, workspace_bytes, stream, handle.device);
  std::string why = wrong("A", first, handle.device) + wrong("B", second, handle.device) + wrong("D", result, handle.device);
  if (c != d) why += "C is not D";
  Work work{what, state.device, {(Address)a, (Address)b, (Address)d}};
  for (int number : {BIAS, AUX})
    if (const void* pointer = value_of(asked, number, (const void*)nullptr)) {
      if (!is_there(pointer, 1, handle.device)) why += "a bias, or what is kept for the gradient, is not on this device";
      work.pointers.push_back((Address)pointer);
    }
  if (!why.empty() || !is_supported(first.type, second.type, result.type, compute)) {
    fault(what + " " + (why.empty() ? format("types %d, %d to %d", first.type, second.type, result.type) : why));
    return why.empty() ? UNSUPPORTED : BAD_VALUE;
  }
  state.counts["products"]++;
  return give(stream, work) ? FAILED : SUCCESS;
}
