// Cards of a made-up NVML and processes of a made-up /proc, as lines of CSV.
#include "anneal/cli/monitor/monitor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "anneal/cli/monitor/device_holders.h"
#include "anneal/tests/cuda/environment.h"
#include "anneal/tests/error_of.h"

namespace anneal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

cuda::LibraryTable<cuda::Nvml> fake_nvml() {
  const cuda::Setting list("ANNEAL_CUDA_LIB_PATH", FAKE_NVML_FOLDER);
  return cuda::open_nvml();
}

class ProcFolder {
 public:
  ProcFolder() {
    ticks(100, 900);
    write("meminfo", "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    786432 kB\n");
    process(4001, "/usr/bin/python3", "python3", {"/dev/nvidia5", "/dev/nvidia-uvm", "/tmp/x"});
    process(4003, "", "kworker", {"/dev/nvidia4", "/dev/nvidia4", "/dev/nvidiactl"});
    process(4004, "/opt/a, \"b\"", "a", {"/dev/nvidia9"});
    process(4005, "/bin/idle", "idle", {"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/null"});
    process(4006, "/bin/uvm", "uvm", {"/dev/nvidia-uvm"});
    fs::create_directory(path("4007"));  // of another user: no folder of descriptors to read
    fs::create_directories(path("not-a-process/fd"));
  }
  std::string root() const { return folder_.path().string(); }
  void ticks(int busy, int idle) {
    write("stat", fmt::format("cpu  {} 0 0 {} 0 0 0 0\n", busy, idle));
  }

 private:
  fs::path path(const std::string& name) const { return folder_.path() / name; }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  void process(int pid, const std::string& program, const std::string& comm,
               const std::vector<std::string>& files) {
    const std::string at = std::to_string(pid);
    fs::create_directories(path(at) / "fd");
    write(at + "/cmdline", program.empty() ? "" : program + std::string("\0--flag\0", 8));
    write(at + "/comm", comm + "\n");
    for (size_t i = 0; i < files.size(); ++i)
      fs::create_symlink(files[i], path(at) / "fd" / std::to_string(i));
  }

  cuda::TemporaryFolder folder_;
};

std::string sampled(std::string_view fields, MonitorRows rows, CsvForm form = {}) {
  ProcFolder proc;
  Monitor monitor(rows == MonitorRows::kProcesses, fake_nvml(), proc.root());
  EXPECT_EQ(monitor.why_not(), "");
  proc.ticks(150, 950);
  const Query query(fields, rows, form);
  return query.header() + query.lines(monitor.read());
}

TEST(MonitorCsv, CardsAsNvidiaSmiPrintsThem) {
  EXPECT_EQ(sampled("index,name,pci.bus_id,utilization.gpu,memory.total,memory.used,power.draw,"
                    "power.limit,enforced.power.limit,temperature.gpu,fan.speed,pstate",
                    MonitorRows::kCards),
            "index, name, pci.bus_id, utilization.gpu [%], memory.total [MiB], memory.used [MiB], "
            "power.draw [W], power.limit [W], enforced.power.limit [W], temperature.gpu, "
            "fan.speed [%], pstate\n"
            "0, NVIDIA Made-up 1, 0000:0A:00.0, 71 %, 1000 MiB, 400 MiB, [N/A], 400.00 W, [N/A], "
            "41, [N/A], [N/A]\n"
            "1, NVIDIA Made-up 2, 0000:0B:00.0, 71 %, 1000 MiB, 100 MiB, [N/A], 400.00 W, "
            "350.50 W, 41, 35 %, P2\n");
}

TEST(MonitorCsv, ClocksAndDriver) {
  EXPECT_EQ(sampled("uuid, driver_version, clocks.gr, clocks.sm, clocks.current.memory",
                    MonitorRows::kCards, parse_csv_form("csv,nounits")),
            "uuid, driver_version, clocks.current.graphics [MHz], clocks.current.sm [MHz], "
            "clocks.current.memory [MHz]\n"
            "GPU-0, 580.65.06, 1755, 1980, 2619\nGPU-1, 580.65.06, 1755, 1980, 2619\n");
}

TEST(MonitorCsv, TheCpuIsBesideEachCard) {
  EXPECT_EQ(sampled("index,utilization.cpu,memory.cpu.used,memory.cpu.total", MonitorRows::kCards,
                    parse_csv_form("noheader")),
            "0, 50.0 %, 256 MiB, 1024 MiB\n1, 50.0 %, 256 MiB, 1024 MiB\n");
}

TEST(MonitorCsv, TheTimeIsThatOfNvidiaSmi) {
  EXPECT_THAT(sampled("timestamp", MonitorRows::kCards, parse_csv_form("noheader")),
              ::testing::MatchesRegex("(20[0-9][0-9]/[01][0-9]/[0-3][0-9] "
                                      "[0-2][0-9]:[0-5][0-9]:[0-6][0-9][.][0-9][0-9][0-9]\n)+"));
}

// 4001 and 4002 compute, which NVML tells; the others have device files open.
TEST(MonitorCsv, ProcessesThatHoldCards) {
  EXPECT_EQ(sampled("index,gpu_bus_id,pid,process_name,used_memory,held", MonitorRows::kProcesses),
            "index, gpu_bus_id, pid, process_name, used_gpu_memory [MiB], held\n"
            "0, 0000:0A:00.0, 4001, /usr/bin/python3, 300 MiB, compute\n"
            "0, 0000:0A:00.0, 4002, [N/A], [N/A], compute\n"
            "1, 0000:0B:00.0, 4003, [kworker], [N/A], /dev/nvidia4\n"
            "[N/A], [N/A], 4004, \"/opt/a, \"\"b\"\"\", [N/A], /dev/nvidia9\n"
            "[N/A], [N/A], 4006, /bin/uvm, [N/A], /dev/nvidia-uvm\n");
}

TEST(MonitorCsv, WithoutNvmlTheCpuGoesOn) {
  ProcFolder proc;
  Monitor monitor(true, {{}, {}, "libnvidia-ml.so.1: cannot open"}, proc.root());
  EXPECT_EQ(monitor.why_not(), "there is no NVML here (libnvidia-ml.so.1: cannot open)");
  proc.ticks(125, 975);
  const MonitorSample sample = monitor.read();
  EXPECT_EQ(Query("name,utilization.gpu,utilization.cpu", MonitorRows::kCards).lines(sample),
            "[N/A], [N/A], 25.0 %\n");
  EXPECT_EQ(Query("pid,held", MonitorRows::kProcesses, parse_csv_form("noheader")).lines(sample),
            "4001, /dev/nvidia5\n4003, /dev/nvidia4\n4004, /dev/nvidia9\n4006, /dev/nvidia-uvm\n");
}

TEST(MonitorCsv, AnNvmlThatShowsNoCards) {
  auto nvml = fake_nvml();
  ASSERT_TRUE(nvml.table);
  nvml.path = "/nowhere/libnvidia-ml.so.1";
  ProcFolder proc;
  EXPECT_THAT(Monitor(false, nvml, proc.root()).why_not(),
              HasSubstr("no nvmlDeviceGetPciInfo_v3(); install a newer driver"));
  nvml = fake_nvml();
  nvml.table->nvmlDeviceGetCount_v2 = [](unsigned* count) {
    *count = 0;
    return cuda::NVML_SUCCESS;
  };
  EXPECT_EQ(Monitor(false, nvml, proc.root()).why_not(),
            "NVML shows no GPU that this process may use");
  nvml.table->nvmlInit_v2 = [] { return cuda::nvmlReturn_t{3}; };
  EXPECT_EQ(Monitor(false, nvml, proc.root()).why_not(), "NVML does not start: Not Supported");
}

TEST(MonitorCsv, WithoutProcNothingIsKnown) {
  Monitor monitor(true, fake_nvml(), "/nowhere");
  const MonitorSample sample = monitor.read();
  EXPECT_EQ(Query("index,utilization.cpu,memory.cpu.used", MonitorRows::kCards).lines(sample),
            "0, [N/A], [N/A]\n1, [N/A], [N/A]\n");
  EXPECT_EQ(Query("pid,process_name", MonitorRows::kProcesses).lines(sample),
            "4001, [N/A]\n4002, [N/A]\n");
}

TEST(MonitorCsv, UnknownFieldsAndForms) {
  const auto refused = [](std::string_view fields, MonitorRows rows) {
    return error_of([&] { Query(fields, rows); });
  };
  EXPECT_THAT(refused("utilisation.gpu", MonitorRows::kCards),
              AllOf(HasSubstr("there is no field \"utilisation.gpu\"; did you mean "
                              "utilization.gpu?"),
                    EndsWith("memory.cpu.used")));
  EXPECT_THAT(refused("name,", MonitorRows::kCards), HasSubstr("there is no field \"\""));
  EXPECT_THAT(refused("utilization.cpu", MonitorRows::kProcesses),
              HasSubstr("the fields of --processes are timestamp, index"));
  EXPECT_THAT(error_of([] { parse_csv_form("csv,nounit"); }),
              HasSubstr("--format: \"nounit\" is not known; csv, noheader and nounits are"));
}

TEST(DeviceHolders, ThisProcess) {
  EXPECT_THAT(process_name(getpid()), HasSubstr("cli_test"));
  EXPECT_EQ(process_name(getpid(), "/nowhere"), "");
}

}  // namespace
}  // namespace anneal
