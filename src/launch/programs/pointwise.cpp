#include "launch/programs/pointwise.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "cutlass_fused/program/rows/print.hpp"
#include "checks/status.hpp"
#include "launch/allocate.hpp"
#include "launch/programs/by_pytorch.hpp"
#include "launch/programs/linking.hpp"
#include "link/background.hpp"
#include "link/compile.hpp"
#include "link/driver.hpp"
#include "link/kernel.hpp"
#include "link/once.hpp"

namespace cutlass_fused {
namespace {

using program::Kind;
using program::Memory;
using program::Pointwise;
using program::PointwiseParams;
using program::Program;
using program::Rows;

struct Call {
  std::vector<Tensor> tensors;  // as they are read
  std::vector<Memory> memories;
  PointwiseParams params{};
};

Call make_call(Program const& program, std::vector<ProgramInput> const& inputs,
               Results const& results, std::vector<Tensor> const& outputs, int64_t rows,
               int64_t columns) {
  Call call;
  for (size_t i = 0; i < inputs.size(); ++i) {
    program::Element const& element = inputs[i].element;
    call.tensors.push_back(make_readable(element, inputs[i].tensor, rows, columns));
    Tensor const& tensor = call.tensors.back();
    call.params.inputs[i] = tensor.const_data_ptr();
    call.params.input_strides[i] = stride_of(element, tensor);
    if (element.kind == Kind::kRow || element.kind == Kind::kTile) {
      call.memories.push_back({element.type, reinterpret_cast<uintptr_t>(tensor.const_data_ptr()),
                               call.params.input_strides[i]});
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    call.params.outputs[i] = outputs[i].mutable_data_ptr();
    // Written one by one, and once for all rows.
    if (program.widths[i] > 1 || results.is_sum(i)) continue;
    call.memories.push_back(
        {results.types[i], reinterpret_cast<uintptr_t>(outputs[i].mutable_data_ptr()), columns});
  }
  return call;
}

// Whether the order of elements says nothing to the program, so that all are one row.
bool is_flat(std::vector<ProgramInput> const& inputs, Call const& call, int64_t columns) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    Kind const kind = inputs[i].element.kind;
    bool const is_contiguous = kind == Kind::kTile && call.params.input_strides[i] == columns;
    if (kind != Kind::kScalar && !is_contiguous) return false;
  }
  return true;
}

constexpr int64_t kMost = (int64_t{1} << 31) - program::kThreads;

std::string arch_of(Device const& device) {
  return "sm_" + std::to_string(device.compute_capability);
}

// What a kernel differs by, beside its program.
std::string name_variant(std::vector<program::Element> const& inputs, Results const& results,
                         int piece, std::string const& arch) {
  std::string name = arch + ' ' + std::to_string(piece);
  for (program::Element const& element : inputs) {
    name += static_cast<char>('a' + 4 * static_cast<int>(element.type) +
                              static_cast<int>(element.kind));
  }
  name += ' ';
  for (size_t i = 0; i < results.types.size(); ++i) {
    name += static_cast<char>((results.is_sum(i) ? 'A' : 'a') + static_cast<int>(results.types[i]));
  }
  return name + '\n';
}

using KernelPointer = std::shared_ptr<link::Kernel const>;

// On the current GPU.
KernelPointer make_kernel(std::string const& source, char const* name, std::string const& arch) {
  LoadScope const scope;
  KernelPointer const kernel = link::find_kernel(source, name, arch);
  if (kernel->kernel != nullptr) link::prepare_kernel(*kernel);
  return kernel;
}

// `variant`: name_variant's. `name`: of the kernel in what `print` gives. Null: it is not there
// yet, and the call may not wait.
KernelPointer find_kernel(char const* op, std::string const& text, std::string const& variant,
                          char const* name, std::function<std::string()> const& print,
                          Device const& device, LinkWhen when) {
  static auto& once = link::keep_once<KernelPointer>();
  std::string const arch = arch_of(device);
  std::string const key = std::to_string(device.index) + ' ' + variant + text;
  if (auto const found = once.peek(key)) return *found;
  bool const is_captured = is_capturing(device);
  if (is_captured) link::wait_for_background(key);
  if (when != LinkWhen::kNow && !is_captured && !once.has(key)) {
    if (link::is_in_background(key)) return nullptr;
    std::string const source = print();
    if (!link::is_kept(source, arch)) {
      if (when == LinkWhen::kLater) {
        link::start_in_background(key, [key, source, name, arch, index = device.index] {
          (void)cudaSetDevice(index);  // a thread's first call chooses its GPU
          once.get(key, [&] { return make_kernel(source, name, arch); });
        });
      }
      return nullptr;
    }
  }
  return once.get(key, [&] {
    std::string const source = print();
    check_capture(op, device, "of tensors of these dtypes that lie alike",
                  [&] { return link::is_kept(source, arch); });
    return make_kernel(source, name, arch);
  });
}

// Of sums: what blocks leave, and how many of each strip have arrived.
struct Workspace {
  std::optional<Tensor> memory;
  float* partials = nullptr;
  unsigned* arrived = nullptr;
};

void clear(char const* op, void* memory, int64_t bytes, cudaStream_t stream) {
  STD_TORCH_CHECK(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), stream) == cudaSuccess, op,
                  ": cannot clear counters: ", cudaGetErrorString(cudaGetLastError()));
}

// So many columns are 128 times as many.
constexpr int64_t kStripsOfStream = 4096;
// Of all graphs that are captured on a GPU.
constexpr int64_t kStripsOfGraphs = 1 << 18;

// Zeros, as kernels leave them. They stay, and are not PyTorch's: what it allocates for a graph, or
// in front of one, must not outlive the graph. On a stream of their own, as the caller's may be
// captured.
unsigned* make_counters(char const* op, int64_t count) {
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  LoadScope const scope;
  cudaError_t error = cudaMalloc(&memory, count * sizeof(unsigned));
  if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaMemsetAsync(memory, 0, count * sizeof(unsigned), stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  if (stream != nullptr) cudaStreamDestroy(stream);
  if (error != cudaSuccess) {
    if (memory != nullptr) cudaFree(memory);
    cudaGetLastError();
  }
  STD_TORCH_CHECK(error == cudaSuccess, op, ": cannot make counters: ", cudaGetErrorString(error));
  return static_cast<unsigned*>(memory);
}

// Those of a stream, whose kernels run one after the other.
unsigned* find_counters(char const* op, int32_t device, cudaStream_t stream) {
  static auto& lock = *new std::mutex;
  static auto& kept = *new std::map<std::pair<int32_t, cudaStream_t>, unsigned*>;
  std::lock_guard<std::mutex> const guard(lock);
  std::pair<int32_t, cudaStream_t> const key(device, stream);
  auto found = kept.find(key);
  if (found == kept.end()) found = kept.emplace(key, make_counters(op, kStripsOfStream)).first;
  return found->second;
}

// Those of one call in a graph, which may be replayed beside what its stream runs. Nobody says when
// a graph is gone, so that they are given out once. Null: all are.
unsigned* take_counters(char const* op, int32_t device, int64_t count) {
  struct Left {
    unsigned* next = nullptr;
    int64_t count = kStripsOfGraphs;
  };
  static auto& lock = *new std::mutex;
  static auto& kept = *new std::map<int32_t, Left>;
  std::lock_guard<std::mutex> const guard(lock);
  Left& left = kept[device];
  if (count > left.count) return nullptr;
  if (left.next == nullptr) left.next = make_counters(op, kStripsOfGraphs);
  left.count -= count;
  return std::exchange(left.next, left.next + count);
}

// Where none are kept for a call they are its own, and cleared in front of it. The default stream
// of a thread has the same name in all threads.
Workspace make_workspace(char const* op, Tensor const& like, program::PointwiseGrid const& grid,
                         int64_t partials, Device const& device) {
  Workspace workspace;
  if (partials == 0) return workspace;
  cudaStream_t const stream = current_stream(device);
  if (grid.grid_x <= kStripsOfStream) {
    if (is_capturing(device)) {
      workspace.arrived = take_counters(op, like.get_device_index(), grid.grid_x);
    } else if (stream != cudaStreamPerThread) {
      workspace.arrived = find_counters(op, like.get_device_index(), stream);
    }
  }
  bool const has_own = workspace.arrived == nullptr;
  workspace.memory = allocate(like, {partials + (has_own ? grid.grid_x : 0)}, ScalarType::Float);
  workspace.partials = static_cast<float*>(workspace.memory->mutable_data_ptr());
  if (has_own) {
    workspace.arrived = reinterpret_cast<unsigned*>(workspace.partials + partials);
    clear(op, workspace.arrived, int64_t{grid.grid_x} * 4, stream);
  }
  return workspace;
}

// The kernel in driver calls, on the current GPU. Of what it is given it reads what it has
// parameters for. It starts while the kernel before it in the stream ends, where the GPU can do
// that: it waits for that one's end first.
void launch(char const* op, link::Kernel const& kernel, PointwiseParams params,
            program::PointwiseGrid const& grid, Device const& device, Workspace workspace = {}) {
  CUlaunchConfig config{};
  config.gridDimX = grid.grid_x;
  config.gridDimY = grid.grid_y;
  config.gridDimZ = 1;
  config.blockDimX = grid.block_x;
  config.blockDimY = grid.block_y;
  config.blockDimZ = 1;
  config.hStream = reinterpret_cast<CUstream>(current_stream(device));
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = device.compute_capability >= 90 ? 1 : 0;
  void* arguments[] = {&params, &workspace.partials, &workspace.arrived};
  link::Driver const& driver = *link::find_driver();
  CUresult const result =
      driver.launch(&config, reinterpret_cast<CUfunction>(kernel.kernel), arguments, nullptr);
  STD_TORCH_CHECK(result == CUDA_SUCCESS, op, ": cannot launch: ", describe(driver, result));
}

void check_sizes(char const* op, int64_t rows, int64_t columns) {
  STD_TORCH_CHECK(rows < kMost && columns < kMost, op, ": there must be fewer than ", kMost,
                  " rows and elements of a row, got ", rows, " and ", columns);
}

// Why the kernel cannot be made; empty: it has run. Nothing: it is not there yet.
using Refusal = std::optional<std::string>;

Refusal run_elements(char const* op, std::string const& text, Program const& program,
                     std::vector<ProgramInput> const& inputs, Pointwise pointwise, Call& call,
                     int64_t rows, int64_t columns, Device const& device, LinkWhen when) {
  int const sums = pointwise.count_sums();
  bool const is_one_row = sums == 0 && is_flat(inputs, call, columns);
  Walk const walk = choose_walk(call.memories, is_one_row, rows, columns, sums);
  pointwise.piece = walk.piece;
  call.params.output_stride = walk.columns;
  int64_t const pieces = walk.columns / walk.piece;
  check_sizes(op, walk.rows, pieces);
  call.params.rows = static_cast<int>(walk.rows);
  call.params.pieces = static_cast<int>(pieces);
  std::string const variant = name_variant(pointwise.inputs, {pointwise.outputs, pointwise.sums},
                                           walk.piece, arch_of(device));
  KernelPointer const kernel = find_kernel(
      op, text, variant, "cutlass_fused_pointwise",
      [&] { return print_pointwise(program, pointwise); }, device, when);
  if (kernel == nullptr) return {};
  if (kernel->kernel == nullptr) return kernel->error;
  if (sums == 0) {
    launch(op, *kernel, call.params,
           program::choose_grid(call.params.rows, call.params.pieces, device.sm_count), device);
    return "";
  }
  program::PointwiseGrid const grid =
      program::choose_sum_grid(walk.rows, pieces, walk.piece, device.sm_count, is_light(program));
  int64_t const partials = program::count_partials(grid, walk.piece, sums);
  launch(op, *kernel, call.params, grid, device,
         make_workspace(op, call.tensors[0], grid, partials, device));
  return "";
}

// The same of a program of rows.
Refusal run_rows(char const* op, std::string const& text, Program const& program,
                 Pointwise const& pointwise, Call& call, int64_t rows, Device const& device,
                 LinkWhen when) {
  Rows const plan = make_rows(program, pointwise.inputs, pointwise.outputs, call.memories);
  std::string const refusal = program::refuse_rows(program, plan);
  if (!refusal.empty()) return refusal;
  int const of_block = program::rows_of_block(plan.threads);
  check_sizes(op, rows, program.columns);
  call.params.rows = static_cast<int>(rows);
  std::string const variant =
      name_variant(plan.inputs, {plan.outputs}, plan.piece, arch_of(device));
  KernelPointer const kernel = find_kernel(
      op, text, variant, "cutlass_fused_rows", [&] { return print_rows(program, plan); }, device,
      when);
  if (kernel == nullptr) return {};
  if (kernel->kernel == nullptr) return kernel->error;
  auto const blocks = static_cast<unsigned>((rows + of_block - 1) / of_block);
  auto const block_x = static_cast<unsigned>(plan.threads);
  launch(op, *kernel, call.params, {block_x, static_cast<unsigned>(of_block), blocks, 1}, device);
  return "";
}

Refusal run_kernel(char const* op, std::string const& text, Program const& program,
                   std::vector<ProgramInput> const& inputs, Results const& results,
                   std::vector<Tensor> const& outputs, int64_t rows, int64_t columns,
                   Device const& device, LinkWhen when) {
  // Driver calls take the current context, which a thread has once the runtime has set its GPU.
  STD_TORCH_CHECK(cudaSetDevice(device.index) == cudaSuccess, op,
                  ": cannot set GPU cuda:", device.index);
  Call call = make_call(program, inputs, results, outputs, rows, columns);
  Pointwise pointwise;
  for (ProgramInput const& input : inputs) pointwise.inputs.push_back(input.element);
  pointwise.outputs = results.types;
  pointwise.sums = results.sums;
  if (program.is_of_rows()) return run_rows(op, text, program, pointwise, call, rows, device, when);
  return run_elements(op, text, program, inputs, pointwise, call, rows, columns, device, when);
}

}  // namespace

Walk choose_walk(std::vector<Memory> memories, bool is_flat, int64_t rows, int64_t columns,
                 int sums) {
  Walk const walk{program::choose_piece(memories, columns, sums), rows, columns};
  if (!is_flat) return walk;
  for (Memory& memory : memories) memory.stride = 0;
  int const piece = program::choose_piece(memories, rows * columns);
  bool const is_better = piece >= walk.piece && rows * columns / piece < kMost;
  return is_better ? Walk{piece, 1, rows * columns} : walk;
}

std::vector<Tensor> run_pointwise(char const* op, std::string const& text,
                                  program::Program const& program,
                                  std::vector<ProgramInput> const& inputs, Results const& results,
                                  std::vector<Tensor> const& outputs, int64_t rows, int64_t columns,
                                  Device const& device, LinkWhen when) {
  std::optional<std::string> const error =
      run_kernel(op, text, program, inputs, results, outputs, rows, columns, device, when);
  if (error && error->empty()) return outputs;
  if (error) warn_of_link(op, "runs by PyTorch's ops, as it cannot be compiled", *error);
  std::vector<Tensor> operands;
  for (size_t i = 1; i < inputs.size(); ++i) operands.push_back(inputs[i].tensor);
  return run_by_pytorch(op, inputs[0].tensor, operands, text, name_results(results),
                        error.value_or("it is being linked"));
}

}  // namespace cutlass_fused
