// `anneal devices`: the devices and libraries of this machine, and the targets of a build.
#include <fmt/format.h>

#include "anneal/cli/commands/commands.h"
#include "anneal/cli/flags/help.h"
#include "anneal/cli/output/exit_status.h"
#include "anneal/cli/output/json_file.h"
#include "anneal/cli/output/output_path.h"
#include "anneal/cli/output/print.h"
#include "anneal/cli/output/printable.h"
#include "anneal/core/fail.h"
#include "anneal/kernels/cpu/backend.h"
#include "anneal/kernels/cuda/api/libraries.h"
#include "anneal/kernels/cuda/api/monitor.h"
#include "anneal/kernels/cuda/backend.h"
#include "anneal/kernels/cuda/cost/device_spec.h"
#include "anneal/kernels/cuda/cudnn/cudnn_device.h"
#include "anneal/kernels/cuda/runtime/device.h"

namespace anneal {
namespace {

struct DeviceRow {
  std::string name, what;
  bool is_here = true;
};

DeviceRow device(const Backend& backend, const std::string& name) {
  try {
    return {name, backend.open(name)->description()};
  } catch (const Error& error) {
    return {name, error.what(), false};
  }
}

// With the card's present state, if NVML is installed.
DeviceRow card(const std::vector<cuda::CardState>& cards, size_t ordinal) {
  DeviceRow found = device(cuda_backend(), fmt::format("cuda:{}", ordinal));
  if (found.is_here && ordinal < cards.size())
    found.what += fmt::format("; at {}: {}", cards[ordinal].bus_id, cuda::text_of(cards[ordinal]));
  return found;
}

std::vector<DeviceRow> devices(const std::vector<cuda::CardState>& cards) {
  std::vector<DeviceRow> found = {device(cpu_backend(), "cpu"), card(cards, 0)};
  for (size_t ordinal = 1; found.back().is_here; ++ordinal) found.push_back(card(cards, ordinal));
  if (found.size() > 2) found.pop_back();  // the one past the last
  found.push_back(device(cuda_backend(), "emulated"));
  return found;
}

template <class Table, class Version>
DeviceRow library(std::string name, const cuda::LibraryTable<Table>& opened, Version version) {
  if (!opened.table) return {std::move(name), opened.why_not, false};
  return {std::move(name), fmt::format("{}, {}", version(*opened.table), opened.path)};
}

std::string version_text(int packed, int major_unit, int minor_unit) {
  return fmt::format("{}.{}", packed / major_unit, packed % major_unit / minor_unit);
}

std::vector<DeviceRow> libraries(const cuda::Cards& cards) {
  std::vector<DeviceRow> found;
  found.push_back(library("driver", cuda::driver_library(), [](const cuda::Driver& driver) {
    int version = 0;
    driver.cuDriverGetVersion(&version);
    return "for CUDA " + version_text(version, 1000, 10);
  }));
  found.push_back(library("NVRTC", cuda::nvrtc_library(), [](const cuda::Nvrtc& nvrtc) {
    int major = 0, minor = 0;
    nvrtc.nvrtcVersion(&major, &minor);
    return fmt::format("{}.{}", major, minor);
  }));
  found.push_back(library("cuBLASLt", cuda::cublas_lt_library(), [](const cuda::CublasLt& lt) {
    const auto version = static_cast<int>(lt.cublasLtGetVersion());
    return fmt::format("{}.{}", version_text(version, 10000, 100), version % 100);
  }));
  found.push_back(library("cuDNN", cuda::cudnn_library(), [](const cuda::Cudnn& cudnn) {
    const auto version = static_cast<int>(cudnn.cudnnGetVersion());
    return fmt::format("{}.{}", version_text(version, 10000, 100), version % 100);
  }));
  found.push_back(cards.why_not.empty()
                      ? DeviceRow{"NVML", fmt::format("driver {}", cards.driver_version)}
                      : DeviceRow{"NVML", cards.why_not, false});
  return found;
}

Json json_of(const std::vector<DeviceRow>& found) {
  Json json = Json::object();
  for (const DeviceRow& each : found)
    json[each.name] = {{"here", each.is_here}, {"what", each.what}};
  return json;
}

std::string text_of(std::string_view title, const std::vector<DeviceRow>& found) {
  Rows rows;
  for (const DeviceRow& each : found)
    rows.push_back({"  " + each.name, (each.is_here ? "" : "none: ") + printable(each.what)});
  return fmt::format("{}\n{}", title, table_text(rows, {false, false}));
}

// What cuDNN reads of a card, for ANNEAL_CUDNN_PROPERTIES on another machine.
int save_properties(const std::string& path, const std::string& name) {
  check_output_file(path);
  const auto device = cuda_backend().open(name);
  const auto context = cuda::gpu_of(*device).context();
  if (context == nullptr || !cuda::gpu_of(*device).takes_libraries())
    fail(ErrorCode::kDevice, fmt::format("{} is no card whose properties can be read", name));
  const auto& cudnn = cuda::cudnn_library();
  if (!cudnn.table)
    fail(ErrorCode::kDevice,
         fmt::format("the properties of a card are read by cuDNN ({})", cudnn.why_not));
  write_json(path, Json::parse(cuda::read_properties(*cudnn.table, *context)));
  fmt::print("{}: properties of {}\n", path, printable(device->description()));
  return kSuccess;
}

int show_devices(const std::string& json_path) {
  check_output_file(json_path);
  const auto& driver = cuda::driver_library().table;
  const cuda::Cards cards =
      cuda::read_cards(driver ? cuda::bus_ids(*driver) : std::vector<std::string>{});
  const std::vector<DeviceRow> here = devices(cards.cards), opened = libraries(cards);
  std::vector<DeviceRow> targets;
  for (const cuda::DeviceSpec& spec : cuda::device_specs())
    targets.push_back(
        {fmt::format("sm_{}", spec.architecture), fmt::format("as on the {}", spec.name)});
  if (!json_path.empty())
    write_json(json_path, {{"devices", json_of(here)},
                           {"libraries", json_of(opened)},
                           {"targets", json_of(targets)}});
  fmt::print(
      "{}\n{}\n{}", text_of("devices (anneal run --device)", here),
      text_of("libraries of NVIDIA, opened when needed", opened),
      text_of("GPUs to build for (anneal build --target), on any machine with NVRTC", targets));
  return kSuccess;
}

}  // namespace

void add_devices_command(CLI::App& application, Action& action) {
  CLI::App* command =
      application.add_subcommand("devices", "Show the devices and libraries of this machine");
  auto json = std::make_shared<std::string>();
  command->add_option("--json", *json, "Also write JSON")
      ->type_name("FILE")
      ->group(often(help::kFiles));
  auto properties = std::make_shared<std::string>();
  auto device = std::make_shared<std::string>("cuda");
  CLI::Option* const saved =
      command
          ->add_option("--save-properties", *properties,
                       "Write the card's properties, for cuDNN's plans in builds elsewhere")
          ->type_name("FILE")
          ->group(often(help::kFiles));
  command->add_option("--device", *device, "The card of --save-properties")
      ->type_name("NAME")
      ->capture_default_str()
      ->needs(saved)
      ->group(often(help::kTarget));
  command->callback([&action, json, properties, device] {
    action = [json, properties, device] {
      return properties->empty() ? show_devices(*json) : save_properties(*properties, *device);
    };
  });
}

}  // namespace anneal
