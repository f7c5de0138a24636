#include "anneal/tests/engine/custom/test_kernels.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "anneal/engine/kernel_library.h"
#include "anneal/graph/program/program.h"

namespace anneal::testing {
namespace {

KernelRecord& record() { return kernel_record(); }

int64_t count(const anneal_tensor& tensor) {
  int64_t elements = 1;
  for (int32_t axis = 0; axis < tensor.rank; ++axis) elements *= tensor.dims[axis];
  return elements;
}
const float* floats(const anneal_tensor& tensor) { return static_cast<const float*>(tensor.data); }
float* results(const anneal_node* node, int output = 0) {
  return static_cast<float*>(node->outputs[output].data);
}

anneal_code say(anneal_error* error, anneal_code code, const char* text) {
  std::snprintf(error->message, sizeof(error->message), "%s", text);
  return code;
}

anneal_code same_as_input(const anneal_node* node, anneal_error*) {
  for (int32_t i = 0; i < node->output_count; ++i) node->outputs[i] = node->inputs[0];
  return ANNEAL_OK;
}
anneal_code copy_input(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  std::memcpy(node->outputs[0].data, node->inputs[0].data,
              static_cast<size_t>(count(node->inputs[0])) * sizeof(float));
  return ANNEAL_OK;
}

// Scale: y = x * alpha + sum of `bias` + sum of the tensor `table` + length of `text`.
struct Scale {
  float alpha, offset;
  std::string source;
};
anneal_code infer_scale(const anneal_node* node, anneal_error* error) {
  record().last_dtype = node->inputs[0].dtype;
  if (node->inputs[0].dtype != ANNEAL_F32) return say(error, ANNEAL_UNSUPPORTED, "only f32");
  return same_as_input(node, error);
}
anneal_code create_scale(const anneal_node* node, void** state, anneal_error* error) {
  auto* made = new Scale{anneal_float_named(node, "alpha", 1), 0, {}};
  if (const auto* bias = anneal_attribute_named(node, "bias"))
    for (int32_t i = 0; i < bias->count; ++i) made->offset += static_cast<float>(bias->ints[i]);
  if (const auto* text = anneal_attribute_named(node, "text"))
    made->offset += static_cast<float>(std::strlen(text->strings[0]));
  if (const auto* table = anneal_attribute_named(node, "table"))
    for (int64_t i = 0; i < count(*table->tensor); ++i) made->offset += floats(*table->tensor)[i];
  if (anneal_int_named(node, "refuse", 0) != 0) {
    delete made;
    return say(error, ANNEAL_UNSUPPORTED, "not this node");
  }
  char source[512];
  std::snprintf(source, sizeof(source),
                "KERNEL($name, 128)(In<f32> x, Out<f32> y, i64 count) {\n"
                "const i64 i = i64(blockIdx.x) * 128 + threadIdx.x;\n"
                "if (i < count) y[i] = x[i] * %.9ef + %.9ef;\n}\n",
                static_cast<double>(made->alpha), static_cast<double>(made->offset));
  made->source = source;
  ++record().states;
  *state = made;
  return ANNEAL_OK;
}
void destroy_scale(void* state) {
  --record().states;
  delete static_cast<Scale*>(state);
}
anneal_code run_scale(void* state, const anneal_node* node, const anneal_run* run, anneal_error*) {
  struct Job {
    const Scale* scale;
    const float* x;
    float* y;
  } job{static_cast<const Scale*>(state), floats(node->inputs[0]), results(node)};
  run->parallel_for(
      run->team, count(node->inputs[0]), 16,
      [](void* argument, int64_t begin, int64_t end, int32_t) {
        const Job& all = *static_cast<Job*>(argument);
        for (int64_t i = begin; i < end; ++i)
          all.y[i] = all.x[i] * all.scale->alpha + all.scale->offset;
      },
      &job);
  return ANNEAL_OK;
}
const char* source_of_scale(void* state, const anneal_node*) {
  return static_cast<const Scale*>(state)->source.c_str();
}
anneal_code launch_scale(void*, const anneal_node* node, anneal_launch* launch, anneal_error*) {
  launch->values[0] = count(node->inputs[0]);
  launch->value_count = 1;
  launch->grid[0] = static_cast<uint32_t>((launch->values[0] + 127) / 128);
  launch->block[0] = 128;
  return ANNEAL_OK;
}
anneal_code launch_too_many(void*, const anneal_node*, anneal_launch* launch, anneal_error*) {
  launch->block[0] = 2048;
  return ANNEAL_OK;
}

// Halves: every second element along axis 0, whose size is found when the input's is known.
anneal_code infer_halves(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  int64_t& rows = node->outputs[0].dims[0];
  rows = rows < 0 ? ANNEAL_OPEN_SIZE : rows / 2;
  return ANNEAL_OK;
}
anneal_code run_halves(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  const int64_t rows = node->outputs[0].dims[0];
  const int64_t columns = rows == 0 ? 0 : count(node->outputs[0]) / rows;
  for (int64_t i = 0; i < rows; ++i)
    std::memcpy(results(node) + i * columns, floats(node->inputs[0]) + 2 * i * columns,
                static_cast<size_t>(columns) * sizeof(float));
  return ANNEAL_OK;
}

const char* source_of_halves(void*, const anneal_node*) {
  return "KERNEL($name, 64)(In<f32> x, Out<f32> y, i64 columns) {\n"
         "for (i64 i = threadIdx.x; i < columns; i += 64)\n"
         "y[i64(blockIdx.x) * columns + i] = x[i64(blockIdx.x) * 2 * columns + i];\n}\n";
}
anneal_code launch_halves(void*, const anneal_node* node, anneal_launch* launch, anneal_error*) {
  launch->grid[0] = static_cast<uint32_t>(node->outputs[0].dims[0]);
  launch->block[0] = 64;
  launch->values[0] = node->inputs[0].dims[1];
  launch->value_count = 1;
  return ANNEAL_OK;
}

anneal_code run_counted(void* state, const anneal_node* node, const anneal_run* run,
                        anneal_error* error) {
  ++record().runs;
  return copy_input(state, node, run, error);
}

// Threads: the sum of each row, with a workspace of one number for each thread.
anneal_code infer_rows(const anneal_node* node, anneal_error*) {
  node->outputs[0] = node->inputs[0];
  node->outputs[0].rank = 1;
  return ANNEAL_OK;
}
anneal_code prepare_threads(void*, const anneal_node* node, uint64_t* bytes, anneal_error* error) {
  if (node->threads < 1 || node->inputs[0].data) return say(error, ANNEAL_INTERNAL, "wrong node");
  *bytes = static_cast<uint64_t>(node->threads) * sizeof(float);
  return ANNEAL_OK;
}
anneal_code run_threads(void*, const anneal_node* node, const anneal_run* run,
                        anneal_error* error) {
  struct Job {
    const anneal_node* node;
    float* sums;
    std::atomic<int> parts, wrong;
  } job{node, static_cast<float*>(run->workspace), {0}, {0}};
  if (reinterpret_cast<uintptr_t>(run->workspace) % 64 != 0)
    return say(error, ANNEAL_INTERNAL, "the workspace is not aligned");
  run->parallel_for(
      run->team, node->inputs[0].dims[0], 1,
      [](void* argument, int64_t begin, int64_t end, int32_t thread) {
        Job& all = *static_cast<Job*>(argument);
        ++all.parts;
        if (thread < 0 || thread >= all.node->threads) ++all.wrong;
        const int64_t columns = all.node->inputs[0].dims[1];
        for (int64_t i = begin; i < end; ++i) {
          float& sum = all.sums[thread];
          sum = 0;
          for (int64_t k = 0; k < columns; ++k) sum += floats(all.node->inputs[0])[i * columns + k];
          results(all.node)[i] = sum;
        }
      },
      &job);
  record().parts = job.parts.load();
  return job.wrong == 0 ? ANNEAL_OK : say(error, ANNEAL_INTERNAL, "a thread beyond the team");
}

// Pair: two outputs, x and x + its second input, which may be absent.
anneal_code infer_pair(const anneal_node* node, anneal_error* error) {
  if (node->input_count > 1 && node->inputs[1].dtype != 0 && node->inputs[1].rank != 0)
    return say(error, ANNEAL_INVALID_MODEL, "input 1 is no scalar");
  return same_as_input(node, error);
}
anneal_code run_pair(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  const bool has = node->input_count > 1 && node->inputs[1].dtype != 0;
  const float more = has ? floats(node->inputs[1])[0] : 100;
  for (int64_t i = 0; i < count(node->inputs[0]); ++i) {
    results(node)[i] = floats(node->inputs[0])[i];
    results(node, 1)[i] = floats(node->inputs[0])[i] + more;
  }
  return ANNEAL_OK;
}

// AddRows: the sum of two tensors.
anneal_code run_add_rows(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  for (int64_t i = 0; i < count(node->inputs[0]); ++i)
    results(node)[i] = floats(node->inputs[0])[i] + floats(node->inputs[1])[i];
  return ANNEAL_OK;
}

// Half: y = x * 2 in the type of x.
float wide(const anneal_tensor& tensor, int64_t i) {
  if (tensor.dtype == ANNEAL_F32) return floats(tensor)[i];
  const auto* bits = static_cast<const uint16_t*>(tensor.data);
  return tensor.dtype == ANNEAL_BF16
             ? std::bit_cast<float>(static_cast<uint32_t>(bits[i]) << 16)
             : load_scalar(DataType::kF16, reinterpret_cast<const std::byte*>(bits + i))
                   .as<float>();
}
anneal_code infer_half(const anneal_node* node, anneal_error* error) {
  record().last_dtype = node->inputs[0].dtype;
  if (node->input_count > 1 && node->inputs[1].dtype != node->inputs[0].dtype)
    return say(error, ANNEAL_UNSUPPORTED, "inputs of several types");
  return same_as_input(node, error);
}
anneal_code run_half(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  record().run_dtype = node->inputs[0].dtype;
  const anneal_tensor &x = node->inputs[0], &y = node->outputs[0];
  const auto dtype = static_cast<DataType>(y.dtype);
  for (int64_t i = 0; i < count(x); ++i)
    store_scalar(dtype, Scalar::of(2 * wide(x, i)),
                 static_cast<std::byte*>(y.data) + i * static_cast<int64_t>(size_of(dtype)));
  return ANNEAL_OK;
}
anneal_code create_half(const anneal_node* node, void** state, anneal_error* error) {
  if (anneal_int_named(node, "only_f32", 0) != 0 && node->inputs[0].dtype != ANNEAL_F32)
    return say(error, ANNEAL_UNSUPPORTED, "only f32");
  const bool half = node->inputs[0].dtype == ANNEAL_F16;
  *state = const_cast<char*>(half ? "KERNEL($name, 64)(In<h16> x, Out<h16> y, i64 count) {\n"
                                    "const i64 i = i64(blockIdx.x) * 64 + threadIdx.x;\n"
                                    "if (i < count) y[i] = to_h16(2 * to_f32(x[i]));\n}\n"
                                  : "KERNEL($name, 64)(In<f32> x, Out<f32> y, i64 count) {\n"
                                    "const i64 i = i64(blockIdx.x) * 64 + threadIdx.x;\n"
                                    "if (i < count) y[i] = 2 * x[i];\n}\n");
  return ANNEAL_OK;
}
const char* source_of_half(void* state, const anneal_node*) {
  return static_cast<const char*>(state);
}
anneal_code launch_half(void*, const anneal_node* node, anneal_launch* launch, anneal_error*) {
  record().run_dtype = node->inputs[0].dtype;
  launch->values[0] = count(node->inputs[0]);
  launch->value_count = 1;
  launch->grid[0] = static_cast<uint32_t>((launch->values[0] + 63) / 64);
  launch->block[0] = 64;
  return ANNEAL_OK;
}

// Total: x divided by the sum of all of it, in three launches: sums of 64 elements each, their sum,
// and the quotients.
constexpr int64_t kPartOfTotal = 64;
anneal_code run_total(void*, const anneal_node* node, const anneal_run*, anneal_error*) {
  float total = 0;
  for (int64_t i = 0; i < count(node->inputs[0]); ++i) total += floats(node->inputs[0])[i];
  for (int64_t i = 0; i < count(node->inputs[0]); ++i)
    results(node)[i] = floats(node->inputs[0])[i] / total;
  return ANNEAL_OK;
}
const char* source_of_total(void*, const anneal_node*) {
  return "KERNEL($name, 64)(In<f32> x, Out<f32> y, Out<f32> sums, i64 phase, i64 count, i64 parts) "
         "{\n"
         "const i64 i = i64(blockIdx.x) * 64 + threadIdx.x;\n"
         "if (phase == 0 && i < parts) {\n"
         "f32 sum = 0;\n"
         "for (i64 k = 64 * i; k < 64 * i + 64 && k < count; ++k) sum += x[k];\n"
         "sums[i] = sum;\n"
         "}\n"
         "if (phase == 1 && i == 0) {\n"
         "f32 sum = 0;\n"
         "for (i64 k = 0; k < parts; ++k) sum += sums[k];\n"
         "sums[parts] = sum;\n"
         "}\n"
         "if (phase == 2 && i < count) y[i] = x[i] / sums[parts];\n"
         "}\n";
}
anneal_code launch_total(void*, const anneal_node* node, anneal_launch* launch, anneal_error*) {
  const int64_t all = count(node->inputs[0]), parts = (all + kPartOfTotal - 1) / kPartOfTotal;
  const int64_t threads = launch->index == 0 ? parts : launch->index == 1 ? 1 : all;
  launch->count = 3;
  launch->workspace_bytes = static_cast<uint64_t>(parts + 1) * sizeof(float);
  launch->values[0] = launch->index;
  launch->values[1] = all;
  launch->values[2] = parts;
  launch->value_count = 3;
  launch->grid[0] = static_cast<uint32_t>((threads + 63) / 64);
  launch->block[0] = 64;
  return ANNEAL_OK;
}
anneal_code launch_endless(void* state, const anneal_node* node, anneal_launch* launch,
                           anneal_error* error) {
  launch_total(state, node, launch, error);
  launch->count = 1 << 20;
  return ANNEAL_OK;
}

// Hostile ones.
anneal_code infer_negative(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  node->outputs[0].dims[0] = -7;
  return ANNEAL_OK;
}
anneal_code infer_computed(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  node->outputs[0].dims[0] *= 2;
  return ANNEAL_OK;
}
anneal_code infer_open(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  node->outputs[0].dims[0] = ANNEAL_OPEN_SIZE;
  return ANNEAL_OK;
}
anneal_code infer_fails(const anneal_node*, anneal_error* error) {
  return say(error, ANNEAL_INVALID_ARGUMENT, "infer does not like it");
}
anneal_code infer_moody(const anneal_node* node, anneal_error* error) {
  if (record().mood == 1) return say(error, ANNEAL_UNSUPPORTED, "not any more");
  same_as_input(node, error);
  if (record().mood == 2) node->outputs[0].dtype = ANNEAL_F64;
  return ANNEAL_OK;
}
anneal_code infer_unknown_code(const anneal_node*, anneal_error*) {
  return static_cast<anneal_code>(99);
}
anneal_code infer_nothing(const anneal_node*, anneal_error*) { return ANNEAL_OK; }
anneal_code infer_rank(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  node->outputs[0].rank = 9;
  return ANNEAL_OK;
}
// Open sizes: the same shape. Sizes of a run: another one.
anneal_code infer_liar(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  if (node->inputs[0].dims[0] >= 0) ++node->outputs[0].dims[0];
  return ANNEAL_OK;
}
anneal_code infer_other_rank(const anneal_node* node, anneal_error* error) {
  same_as_input(node, error);
  if (node->inputs[0].dims[0] >= 0) node->outputs[0].rank = 8;
  return ANNEAL_OK;
}
anneal_code create_fails(const anneal_node*, void**, anneal_error* error) {
  return say(error, ANNEAL_IO, "no table file");
}
void destroy_nothing(void*) {}
anneal_code prepare_too_much(void*, const anneal_node*, uint64_t* bytes, anneal_error*) {
  *bytes = ~uint64_t{0};
  return ANNEAL_OK;
}
anneal_code run_fails_on_negative(void* state, const anneal_node* node, const anneal_run* run,
                                  anneal_error* error) {
  if (floats(node->inputs[0])[0] < 0) return say(error, ANNEAL_DEVICE, "below 0");
  return copy_input(state, node, run, error);
}

anneal_kernel kernel(const char* op, uint64_t flags, decltype(anneal_kernel::infer) infer,
                     decltype(anneal_kernel::run) run) {
  anneal_kernel made = {};
  made.size = sizeof(made);
  made.domain = "test";
  made.op = op;
  made.flags = flags;
  made.infer = infer;
  made.run = run;
  return made;
}

std::vector<anneal_kernel> all_kernels() {
  const uint64_t pure = ANNEAL_KERNEL_PURE;
  anneal_kernel scale = kernel("Scale", pure, infer_scale, run_scale);
  scale.row_inputs = 1;
  scale.version = 3;
  scale.create = create_scale;
  scale.destroy = destroy_scale;
  anneal_kernel scale_on_cpu = scale;
  scale_on_cpu.op = "ScaleOnCpu";
  scale.cuda_source = source_of_scale;
  scale.cuda_launch = launch_scale;
  anneal_kernel too_many = scale;
  too_many.op = "TooManyThreads";
  too_many.cuda_launch = launch_too_many;
  anneal_kernel threads = kernel("Threads", pure, infer_rows, run_threads);
  threads.prepare = prepare_threads;
  anneal_kernel no_create = kernel("CreateFails", pure, same_as_input, copy_input);
  no_create.create = create_fails;
  no_create.destroy = destroy_nothing;
  anneal_kernel greedy = kernel("Greedy", pure, same_as_input, copy_input);
  greedy.prepare = prepare_too_much;
  anneal_kernel add_rows = kernel("AddRows", pure, same_as_input, run_add_rows);
  add_rows.row_inputs = 3;
  anneal_kernel halves = kernel("Halves", pure, infer_halves, run_halves);
  halves.cuda_source = source_of_halves;
  halves.cuda_launch = launch_halves;
  anneal_kernel half_on_cpu =
      kernel("HalfOnCpu", pure | ANNEAL_KERNEL_F16 | ANNEAL_KERNEL_BF16, infer_half, run_half);
  half_on_cpu.create = create_half;
  half_on_cpu.destroy = destroy_nothing;
  anneal_kernel half = half_on_cpu;
  half.op = "Half";
  half.flags = pure | ANNEAL_KERNEL_F16;
  half.cuda_source = source_of_half;
  half.cuda_launch = launch_half;
  anneal_kernel total = kernel("Total", pure | ANNEAL_KERNEL_LAUNCHES, same_as_input, run_total);
  total.cuda_source = source_of_total;
  total.cuda_launch = launch_total;
  anneal_kernel endless = total;
  endless.op = "Endless";
  endless.cuda_launch = launch_endless;
  return {scale,
          half,
          half_on_cpu,
          total,
          endless,
          scale_on_cpu,
          too_many,
          threads,
          no_create,
          greedy,
          add_rows,
          halves,
          kernel("Counted", 0, same_as_input, run_counted),
          kernel("Mixes", pure, same_as_input, copy_input),
          kernel("Pair", pure, infer_pair, run_pair),
          kernel("Negative", pure, infer_negative, copy_input),
          kernel("Computed", pure, infer_computed, copy_input),
          kernel("Open", pure, infer_open, copy_input),
          kernel("Fails", pure, infer_fails, copy_input),
          kernel("Promises", pure | ANNEAL_KERNEL_F16, infer_scale, copy_input),
          kernel("Moody", pure, infer_moody, copy_input),
          kernel("UnknownCode", pure, infer_unknown_code, copy_input),
          kernel("Nothing", pure, infer_nothing, copy_input),
          kernel("Rank", pure, infer_rank, copy_input),
          kernel("Liar", pure, infer_liar, copy_input),
          kernel("OtherRank", pure, infer_other_rank, copy_input),
          kernel("RunFails", pure, same_as_input, run_fails_on_negative)};
}

}  // namespace

KernelRecord& kernel_record() {
  static KernelRecord record;
  return record;
}

CustomOperators test_operators(int32_t since, int32_t version) {
  std::vector<anneal_kernel> kernels = all_kernels();
  kernels[0].since = since;
  kernels[0].version = version;
  anneal_kernels table = {};
  table.size = sizeof(table);
  table.name = "test_kernels";
  table.kernels = kernels.data();
  table.count = static_cast<int32_t>(kernels.size());
  return operators_of(&table, "test_kernels.so");
}

}  // namespace anneal::testing
