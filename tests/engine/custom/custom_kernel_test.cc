// Operators of libraries of kernels, from the ONNX node to results: imported, optimized, saved,
// loaded and run; and callbacks that fail or lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <utility>

#include "anneal/kernels/cpu/backend.h"
#include "anneal/tests/engine/custom/custom_models.h"

namespace anneal::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CustomKernel, RunsWithItsAttributes) {
  const auto engine = engine_of(scale_model());
  EXPECT_THAT(kernels_of(*engine), ElementsAre("cpu.custom.reference"));
  ExecutionContext context(engine);
  const Tensor x = tensor({3, 4});
  EXPECT_EQ(run_one(context, x), mapped(x, scaled));
}

TEST(CustomKernel, EachStateIsDestroyed) {
  const int before = kernel_record().states;
  {
    const auto engine = engine_of(scale_model());
    EXPECT_GT(kernel_record().states, before);
  }
  EXPECT_EQ(kernel_record().states, before);
}

TEST(CustomKernel, WithoutALibraryTheImportSaysWhatToDo) {
  const ModelBuilder model = scale_model();
  EXPECT_THAT(error_of([&] { import_bytes(model.bytes(), ""); }),
              AllOf(HasSubstr("unsupported"), HasSubstr("Scale (test 1)"), HasSubstr("node1"),
                    HasSubstr("--library")));
}

TEST(CustomKernel, WithoutItsLibraryAnEngineDoesNotLoad) {
  const EngineFile file = build(imported(scale_model()));
  EXPECT_THAT(
      error_of([&] { loaded(file, "cpu", {}); }),
      AllOf(HasSubstr("unsupported"), HasSubstr("step \"node1\""), HasSubstr("test.Scale"),
            HasSubstr("version 3"), HasSubstr("\"test_kernels\""), HasSubstr("--library FILE")));
  EXPECT_THAT(error_of([&] { loaded(file, "cpu", test_operators(1, 4)); }),
              AllOf(HasSubstr("version 3"), HasSubstr("was given version 4"),
                    HasSubstr("build the engine again")));
}

TEST(CustomKernel, TheLatestOfTheOpsetIsTaken) {
  CustomOperators operators = test_operators(1, 1);
  for (const auto& each : test_operators(5, 5)) operators.push_back(each);
  const auto version_at = [&](int64_t opset) {
    ModelBuilder model = scale_model();
    auto* import = model.model.add_opset_import();
    import->set_domain("test");
    import->set_version(opset);
    const Graph graph = imported(model, operators);
    return std::get<Custom>(graph.layer(graph.layers()[0]).op).version;
  };
  EXPECT_EQ(version_at(4), 1);
  EXPECT_EQ(version_at(5), 5);
  EXPECT_EQ(version_at(9), 5);
  EXPECT_THAT(error_of([] { imported(scale_model(), test_operators(2)); }), HasSubstr("test 1"));
}

anneal_code infer_any(const anneal_node*, anneal_error*) { return ANNEAL_OK; }
anneal_code run_any(void*, const anneal_node*, const anneal_run*, anneal_error*) {
  return ANNEAL_OK;
}
anneal_kernel kernel_named(const char* op) {
  anneal_kernel kernel = {};
  kernel.size = sizeof(kernel);
  kernel.op = op;
  kernel.infer = infer_any;
  kernel.run = run_any;
  return kernel;
}

TEST(CustomKernel, OurOwnOperatorsStay) {
  const anneal_kernel kernel = kernel_named("Relu");
  anneal_kernels table = {};
  table.size = sizeof(table);
  table.kernels = &kernel;
  table.count = 1;
  ModelBuilder model;
  model.input("x", {"3", "4"}).output("y");
  model.node("Relu", {"x"}, {"y"});
  const Graph graph = imported(model, operators_of(&table, "l.so"));
  EXPECT_TRUE(std::holds_alternative<Pointwise>(graph.layer(graph.layers()[0]).op));
}

TEST(CustomKernel, TextAndBytesKeepTheOp) {
  const Graph graph = imported(scale_model());
  const Op& op = graph.layer(graph.layers()[0]).op;
  SizeTable sizes;
  const std::string text = to_string(op, sizes);
  EXPECT_THAT(text,
              AllOf(HasSubstr("Custom domain=\"test\" type=\"Scale\""), HasSubstr("\"alpha\":f[2]"),
                    HasSubstr("\"bias\":i[1,2]"), HasSubstr("\"text\":s[\"four\"]"),
                    HasSubstr("\"table\":t\"f32[2] 0000803e0000003f\"")));
  Op parsed = op_from_text(text, sizes);
  EXPECT_EQ(to_string(parsed, sizes), text);
  std::get<Custom>(parsed).definition = std::get<Custom>(op).definition;
  EXPECT_EQ(parsed, op);

  ByteWriter to;
  save(to, op);
  const std::vector<std::byte> bytes = to.take();
  ByteReader from(bytes, "op");
  Op read = load_op(from);
  EXPECT_EQ(to_string(read, sizes), text);
  // Every prefix is refused.
  for (size_t size = 0; size < bytes.size(); ++size) {
    ByteReader cut(std::span<const std::byte>(bytes).first(size), "op");
    EXPECT_THAT(error_of([&] { load_op(cut); }), HasSubstr("incompatible_plan")) << size;
  }
  for (const char* wrong :
       {"Custom attributes=[\"a\"]", "Custom attributes=[\"a\":f[x]]",
        "Custom attributes=[\"a\":q[1]]", "Custom attributes=[a:f[1]]",
        "Custom attributes=[\"a\":t\"f32[2] 00\"]", "Custom attributes=[\"a\":t\"f32[-2] \"]",
        "Custom domain=x", "Custom domain=\"x"})
    EXPECT_THAT(error_of([&] { op_from_text(wrong, sizes); }), HasSubstr("invalid_argument"))
        << wrong;
}

TEST(CustomKernel, ABatchThatIsOpenRunsInParts) {
  const auto engine = engine_of(scale_model("N"));
  EXPECT_TRUE(plan_of(*engine).batch_split.has_value());
  EXPECT_FALSE(plan_of(*engine_of(one_node("Mixes", "N"))).batch_split.has_value());
  ExecutionContext context(engine, {.threads = 2, .micro_batch = 3});
  for (const int64_t rows : {1, 2, 16, 7}) {
    const Tensor x = tensor({rows, 4});
    EXPECT_EQ(run_one(context, x), mapped(x, scaled)) << rows;
  }
}

// The rows of a constant are none of the batch, though they may be as many.
TEST(CustomKernel, AFixedBatchRunsInPartsWhereAllItsInputsHaveRows) {
  for (const bool is_constant : {false, true}) {
    ModelBuilder model;
    model.input("x", {"8", "4"}).output("y");
    model.floats("w", {8, 4}, numbers(32));
    model.node("Neg", {"x"}, {"negative"});
    custom_node(model, "AddRows", {"x", is_constant ? "w" : "negative"}, {"y"});
    const auto engine = engine_of(model);
    EXPECT_EQ(plan_of(*engine).batch_split.has_value(), !is_constant);
    ExecutionContext context(engine, {.threads = 2, .micro_batch = 3});
    const Tensor x = tensor({8, 4});
    EXPECT_EQ(run_one(context, x),
              mapped(x, [&](float value) { return is_constant ? 2 * value : 0; }));
  }
}

TEST(CustomKernel, SizesThatAreFoundInTheRun) {
  ModelBuilder model;
  model.input("x", {"N", "4"}).output("y");
  custom_node(model, "Halves", {"x"}, {"half"});
  model.node("Neg", {"half"}, {"negative"});
  custom_node(model, "Halves", {"negative"}, {"y"});
  for (const char* target : {"cpu", "emulated"}) {
    const auto engine = engine_of(model, target);
    EXPECT_EQ(engine->outputs()[0].dims[0], -1);
    ExecutionContext context(engine);
    for (const int64_t rows : {8, 5, 1, 12, 8}) {
      const Tensor x = tensor({rows, 4});
      const std::vector<float> y = run_one(context, x);
      EXPECT_EQ(context.output("y").dims, (Dims{rows / 2 / 2, 4}));
      for (size_t i = 0; i < y.size(); ++i)
        EXPECT_EQ(y[i], -x.as<float>()[i / 4 * 16 + i % 4]) << target << ", " << rows;
    }
  }
}

TEST(CustomKernel, KnownSizesNeedNoRun) {
  const auto engine = engine_of(one_node("Halves", "6"));
  EXPECT_EQ(engine->outputs()[0].dims, (Dims{3, 4}));
}

TEST(CustomKernel, PureOnesAreFoldedAndMerged) {
  for (const bool is_pure : {true, false}) {
    const std::string op = is_pure ? "Mixes" : "Counted";
    ModelBuilder model;
    model.input("x", {"2", "4"}).output("y").output("z");
    model.floats("c", {2, 4}, numbers(8));
    custom_node(model, op, {"c"}, {"constant"});
    custom_node(model, op, {"x"}, {"a"});
    custom_node(model, op, {"x"}, {"b"});
    model.node("Add", {"a", "constant"}, {"y"});
    model.node("Mul", {"b", "constant"}, {"z"});
    const int runs = kernel_record().runs;
    const EngineFile file = build(imported(model));
    EXPECT_EQ(kernel_record().runs, runs) << "a build runs what is not pure";
    int64_t steps = 0;
    for (const Step& step : file.plans[0].steps)
      steps += std::holds_alternative<Custom>(step.op) ? 1 : 0;
    EXPECT_EQ(steps, is_pure ? 1 : 3);
    const auto engine = loaded(file);
    ExecutionContext context(engine);
    const Tensor x = tensor({2, 4});
    EXPECT_EQ(run_one(context, x), mapped(x, [](float value) { return value + value; }));
    EXPECT_EQ(kernel_record().runs, is_pure ? runs : runs + 3);
  }
}

TEST(CustomKernel, OperandsOfAnyStridesAreDenseForTheLibrary) {
  ModelBuilder model;
  model.input("x", {"2", "3", "5", "4"}).output("y");
  auto& before = model.node("Transpose", {"x"}, {"t"});
  set(before, "perm", std::vector<int64_t>{0, 2, 3, 1});
  auto& node = custom_node(model, "Scale", {"t"}, {"s"});
  set(node, "alpha", 3.0F);
  auto& after = model.node("Transpose", {"s"}, {"y"});
  set(after, "perm", std::vector<int64_t>{0, 3, 1, 2});
  const auto engine = engine_of(model);
  ExecutionContext context(engine);
  const Tensor x = tensor({2, 3, 5, 4});
  EXPECT_EQ(run_one(context, x), mapped(x, [](float value) { return 3 * value; }));
  // An input of the caller's strides.
  const auto alone = engine_of(one_node("Mixes"));
  ExecutionContext other(alone);
  std::vector<float> columns = numbers(12);
  other.set_input(
      "x",
      TensorView{DataType::kF32, {3, 4}, {1, 3}, reinterpret_cast<std::byte*>(columns.data())});
  other.run();
  const std::vector<float> y = elements(other.output("y"));
  for (size_t row = 0; row < 3; ++row)
    for (size_t column = 0; column < 4; ++column)
      EXPECT_EQ(y[row * 4 + column], columns[column * 3 + row]);
}

// Strides of 0 give it 2^62 elements: 2^64 bytes of f32, which a size_t counts as 0.
TEST(CustomKernel, AnOperandThatNoMemoryHoldsIsNotCopied) {
  const auto operators = test_operators();
  Custom op{.domain = "test", .type = "Mixes"};
  op.definition = find_operator(operators, "test", "Mixes", 1);
  const Op layer = op;
  const Operand operand{.type = {DataType::kF32, Shape{1, 1}}};
  const SizeTable sizes;
  const auto device = cpu_backend().open("cpu");
  const KernelResult kernel =
      find_kernel(cpu_backend(), "cpu.custom.reference")
          ->make({layer, {}, 1, {&operand, 1}, {&operand, 1}, sizes, *device, {}});
  ASSERT_TRUE(kernel) << kernel.reason();
  const TensorView view{DataType::kF32, {int64_t{1} << 31, int64_t{1} << 31}, {0, 0}, nullptr};
  EXPECT_THAT(error_of([&] {
                (*kernel)->prepare({&view, 1}, {&view, 1}, 1);
              }),
              AllOf(HasSubstr("out_of_memory"), HasSubstr("[2147483648,2147483648]"),
                    HasSubstr("copied for the library")));
}

TEST(CustomKernel, ALibraryThatRefusesAtLoadIsNamed) {
  const EngineFile file = build(imported(one_node("Moody")));
  const auto error_in = [&](int mood) {
    kernel_record().mood = mood;
    const std::string error = error_of([&] { loaded(file); });
    kernel_record().mood = 0;
    return error;
  };
  EXPECT_EQ(error_in(0), "");
  const auto names_all =
      AllOf(HasSubstr("step \"node1\""), HasSubstr("test.Moody"), HasSubstr("\"test_kernels\""),
            HasSubstr("build the engine again"), Not(HasSubstr("damaged")));
  EXPECT_THAT(error_in(1), AllOf(names_all, HasSubstr("unsupported"), HasSubstr("not any more")));
  EXPECT_THAT(error_in(2), AllOf(HasSubstr("test.Moody"), HasSubstr("f64"),
                                 HasSubstr("build the engine again"), Not(HasSubstr("damaged"))));
}

TEST(CustomKernel, TwoLibrariesForOneOperatorAreToldOf) {
  const auto operators_in = [](const char* name, int32_t since, int32_t version) {
    anneal_kernel kernel = kernel_named("A");
    kernel.since = since;
    kernel.version = version;
    anneal_kernels table = {};
    table.size = sizeof(table);
    table.name = name;
    table.kernels = &kernel;
    table.count = 1;
    return operators_of(&table, "l.so");
  };
  CustomOperators all = operators_in("first", 1, 1);
  for (const auto& more : {operators_in("newer", 2, 1), operators_in("second", 1, 2)})
    all.insert(all.end(), more.begin(), more.end());
  EXPECT_THAT(operators_given_twice(all, Versions::kAny),
              ElementsAre(AllOf(HasSubstr("ai.onnx.A"), HasSubstr("\"first\" (version 1) is used"),
                                HasSubstr("not \"second\" (version 2)"))));
  EXPECT_THAT(operators_given_twice(all, Versions::kSame), ElementsAre());
  all.push_back(operators_in("third", 2, 1)[0]);
  EXPECT_THAT(operators_given_twice(all, Versions::kSame),
              ElementsAre(AllOf(HasSubstr("\"newer\""), HasSubstr("not \"third\""))));
}

TEST(CustomKernel, SeveralOutputsAndAbsentInputs) {
  for (const bool has_second : {false, true}) {
    ModelBuilder model;
    model.input("x", {"3", "4"}).output("y").output("z");
    model.floats("more", {}, {7});
    custom_node(model, "Pair", {"x", has_second ? "more" : ""}, {"y", "z"});
    const auto engine = engine_of(model);
    ExecutionContext context(engine);
    const Tensor x = tensor({3, 4});
    EXPECT_EQ(run_one(context, x), mapped(x, [](float value) { return value; }));
    const float more = has_second ? 7 : 100;
    EXPECT_EQ(elements(context.output("z")), mapped(x, [&](float value) { return value + more; }));
  }
}

TEST(CustomKernel, TheTeamOfTheEngineRunsTheParts) {
  ModelBuilder model = one_node("Threads", "N");
  const auto engine = engine_of(model);
  ExecutionContext context(engine, {.threads = 2});
  const Tensor x = tensor({257, 4});
  const std::vector<float> sums = run_one(context, x);
  for (size_t row = 0; row < sums.size(); ++row) {
    float sum = 0;
    for (size_t column = 0; column < 4; ++column) sum += x.as<float>()[row * 4 + column];
    EXPECT_EQ(sums[row], sum);
  }
  EXPECT_GE(kernel_record().parts, std::min(2, largest_team()));
}

TEST(CustomKernel, ContextsRunSideBySide) {
  const auto engine = engine_of(scale_model("N"));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int64_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      ExecutionContext context(engine, {.threads = 1});
      const Tensor x = tensor({i + 1, 4});
      for (int run = 0; run < 20; ++run) right += run_one(context, x) == mapped(x, scaled);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8 * 20);
}

TEST(CustomKernel, ABodyOfControlFlowMayHaveOne) {
  ModelBuilder model;
  model.input("x", {"3", "4"}).input("which", {}, anneal_onnx::TensorProto::BOOL).output("y");
  auto& branch = model.node("If", {"which"}, {"y"}, "if");
  for (const char* name : {"then_branch", "else_branch"}) {
    auto* attribute = branch.add_attribute();
    attribute->set_name(name);
    attribute->set_type(anneal_onnx::AttributeProto::GRAPH);
    const bool is_then = std::string(name) == "then_branch";
    auto& inner = ModelBuilder::fill(*attribute->mutable_g()->add_node(), is_then ? "Scale" : "Neg",
                                     {"x"}, {name});
    if (is_then) inner.set_domain("test");
    if (is_then) set(inner, "alpha", 5.0F);
    attribute->mutable_g()->add_output()->set_name(name);
  }
  EXPECT_THAT(error_of([&] { import_bytes(model.bytes(), ""); }), HasSubstr("--library"));
  const auto engine = engine_of(model);
  ExecutionContext context(engine);
  const Tensor x = tensor({3, 4});
  for (const bool which : {true, false}) {
    const Tensor condition = Tensor::of<bool>(DataType::kBool, {}, std::span(&which, 1));
    context.set_input("which", condition.view());
    EXPECT_EQ(run_one(context, x),
              mapped(x, [&](float value) { return which ? 5 * value : -value; }));
  }
}

// Each says what the callback did, and in which node.
TEST(CustomKernel, CallbacksThatAreWrongAreNamed) {
  const auto error_on = [](const std::string& op, const std::string& rows) {
    return error_of([&] { engine_of(one_node(op, rows)); });
  };
  const auto both = [](const char* text) { return AllOf(HasSubstr(text), HasSubstr("node1")); };
  EXPECT_THAT(error_on("Negative", "3"), both("-7 is neither a size nor an open size"));
  EXPECT_THAT(error_on("Negative", "N"), both("-7 is neither a size nor an open size"));
  EXPECT_THAT(error_on("Computed", "N"), both("is neither a size nor an open size"));
  EXPECT_EQ(error_on("Computed", "3"), "");
  EXPECT_THAT(error_on("Open", "3"), both("leaves a size open"));
  EXPECT_THAT(error_on("Fails", "3"), both("infer() of test.Fails says: infer does not like it"));
  EXPECT_THAT(error_on("UnknownCode", "3"), both("(code 99): an error without a text"));
  EXPECT_THAT(error_on("Nothing", "3"), both("0 is no element type"));
  EXPECT_THAT(error_on("Rank", "3"), both("a rank of 9"));
  EXPECT_THAT(error_on("CreateFails", "3"),
              HasSubstr("create() of test.CreateFails says: no table"));
  ModelBuilder refused = one_node("Scale");
  set(*refused.graph().mutable_node(0), "refuse", int64_t{1});
  EXPECT_THAT(error_of([&] { engine_of(refused); }),
              AllOf(HasSubstr("unsupported"), HasSubstr("not this node"), HasSubstr("node1")));
}

TEST(CustomKernel, SizesOfARunMustAgree) {
  for (const char* op : {"Liar", "OtherRank"}) {
    const auto engine = engine_of(one_node(op, "N"));
    EXPECT_THAT(error_of([&] {
                  ExecutionContext context(engine, {.prewarm_profiles = false});
                  run_one(context, tensor({3, 4}));
                }),
                AllOf(HasSubstr("invalid_argument"), HasSubstr("node1"), HasSubstr("would be")))
        << op;
  }
}

TEST(CustomKernel, AWorkspaceBeyondAnyMemoryIsRefused) {
  const auto engine = engine_of(one_node("Greedy", "N"));
  EXPECT_THAT(error_of([&] {
                ExecutionContext context(engine, {.prewarm_profiles = false});
                run_one(context, tensor({3, 4}));
              }),
              AllOf(HasSubstr("out_of_memory"), HasSubstr("test.Greedy")));
}

TEST(CustomKernel, AfterARunThatFailsTheContextGoesOn) {
  const auto engine = engine_of(one_node("RunFails"));
  ExecutionContext context(engine);
  const std::vector<float> one(12, 1), below(12, -1);
  EXPECT_EQ(run_one(context, Tensor::of<float>(DataType::kF32, {3, 4}, one)), one);
  EXPECT_THAT(error_of([&] {
                run_one(context, Tensor::of<float>(DataType::kF32, {3, 4}, below));
              }),
              AllOf(HasSubstr("device"), HasSubstr("run() of test.RunFails says: below 0")));
  EXPECT_EQ(run_one(context, Tensor::of<float>(DataType::kF32, {3, 4}, one)), one);
}

anneal_code create_nothing(const anneal_node*, void**, anneal_error*) { return ANNEAL_OK; }
const char* no_source(void*, const anneal_node*) { return nullptr; }

TEST(CustomKernel, TablesAreChecked) {
  const auto error_with = [&](const std::function<void(anneal_kernel&, anneal_kernels&)>& change) {
    anneal_kernel kernels[2] = {kernel_named("A"), kernel_named("B")};
    anneal_kernels table = {};
    table.size = sizeof(table);
    table.kernels = kernels;
    table.count = 2;
    change(kernels[1], table);
    return error_of([&] { operators_of(&table, "l.so"); });
  };
  EXPECT_EQ(error_with([](auto&, auto&) {}), "");
  EXPECT_THAT(error_with([](auto&, auto& table) { table.size = 0; }), HasSubstr("has no size"));
  EXPECT_THAT(error_with([](auto&, auto& table) { table.count = -1; }), HasSubstr("-1 kernels"));
  EXPECT_THAT(error_with([](auto&, auto& table) { table.kernels = nullptr; }),
              HasSubstr("kernels is null"));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.op = nullptr; }),
              AllOf(HasSubstr("kernel 1"), HasSubstr("op is null")));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.infer = nullptr; }),
              AllOf(HasSubstr("ai.onnx.B"), HasSubstr("infer is null")));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.run = nullptr; }),
              HasSubstr("run is null"));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.create = create_nothing; }),
              HasSubstr("destroy is null"));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.cuda_source = no_source; }),
              HasSubstr("cuda_launch is null"));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.flags = 1 << 20; }),
              HasSubstr("does not know"));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.since = -1; }), HasSubstr("below 0"));
  EXPECT_THAT(error_with([](auto& kernel, auto&) { kernel.op = "A"; }),
              HasSubstr("two kernels for one operator"));
}

TEST(CustomKernel, FilesThatAreNoLibrariesAreNamed) {
  const auto error_with = [](const std::string& path) {
    return error_of([&] { Engine::load("no.engine", {.libraries = {path}}); });
  };
  EXPECT_THAT(error_with("/nowhere/k.so"), AllOf(HasSubstr("io"), HasSubstr("/nowhere/k.so")));
  EXPECT_THAT(error_with(OTHER_LIBRARY),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("anneal_kernel_library")));
  EXPECT_THAT(error_with(NULL_LIBRARY),
              AllOf(HasSubstr("invalid_argument"), HasSubstr("does not support version 1")));
}

}  // namespace
}  // namespace anneal::testing
