#include "count.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSectorBytes = 32, kBankCycleBytes = 128;

// A folder for two files, removed at the end.
struct Scratch {
  fs::path folder;
  Scratch() : folder((fs::temp_directory_path() / "matmul_travel.XXXXXX").string()) {
    std::string name = folder.string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a folder in /tmp");
    folder = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
};

// Its standard output is dropped.
void call(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1 /* O_WRONLY */, 0);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (failed != 0 || waitpid(child, &status, 0) != child || status != 0)
    throw std::runtime_error("`" + words[0] + " bench` fails: --anneal gives the command's path");
}

}  // namespace

Count count_bytes(const Product& product, Operands& operands, const std::string& folder,
                  const std::string& command) {
  const ProductEngine engine = make_engine(product, folder);
  anneal::ExecutionContext context(engine.engine);
  context.set_input("a", operands.a());
  context.set_input("b", operands.b());
  context.set_output("c", operands.c());
  operands.clear();
  context.run();
  operands.check();

  const Scratch scratch;
  const std::string file = scratch.folder / "product.engine", json = scratch.folder / "counts.json";
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(engine.file->data()),
             static_cast<std::streamsize>(engine.file->size()));
  call({command, "bench", file, "--target", "emulated:counting", "--profile", "--iterations", "1",
        "--warmup", "0", "--library", folder + "/products.so", "--json", json});
  Count count;
  count.size = product.size;
  count.kernel = to_string(product.kernel);
  count.step_kernel = engine.step_kernel;
  count.copied = static_cast<int64_t>(3 * operands.bytes());
  const auto counted = nlohmann::json::parse(std::ifstream(json));
  for (const auto& step : counted.at("profile")) {
    if (!step.contains("functions")) continue;
    for (const auto& function : step.at("functions"))
      for (const auto& site : function.at("sites")) {
        const std::string kind = site.at("kind");
        if (site.contains("sectors"))
          (kind.ends_with("store") ? count.global_store : count.global_load) +=
              kSectorBytes * site.at("sectors").get<int64_t>();
        if (site.contains("wavefronts"))
          count.shared += kBankCycleBytes * site.at("wavefronts").get<int64_t>();
      }
  }
  return count;
}
