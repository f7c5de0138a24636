// The help of a command with flags of all kinds.
#include "anneal/cli/flags/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "anneal/cli/flags/at_least.h"

namespace anneal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Help : public ::testing::Test {
 protected:
  Help() {
    set_help_form(application_);
    CLI::App* const command = application_.add_subcommand("do", "Do it");
    command->add_option("file", text_, "A file")->required()->group(often(help::kFiles));
    command->add_option("--expert", number_, "For experts")->group(rarely(help::kFiles));
    command->add_flag("!--no-map", flag_, "Read")->group(rarely(help::kKernels));
    command->add_option("--other", text_, "Of another heading")->group("Zoo");
    command->add_option("--size", number_, "A size")
        ->capture_default_str()
        ->check(at_least(0))
        ->group(often(help::kFiles));
  }

  std::string text(CLI::AppFormatMode mode) const {
    return application_.get_subcommand("do")->help("anneal", mode);
  }

  CLI::App application_;
  std::string text_;
  int number_ = 7;
  bool flag_ = true;
};

TEST_F(Help, HasFlagsThatAreUsedOftenByHeading) {
  EXPECT_EQ(text(CLI::AppFormatMode::Normal),
            "Do it\n"
            "Usage: anneal do [OPTIONS] file\n"
            "\n"
            "Input and output:\n"
            "  file                        A file\n"
            "  --size N                    A size (default: 7)\n"
            "\n"
            "Zoo:\n"
            "  --other NAME                Of another heading\n"
            "\n"
            "  -h,--help                   Show this help\n"
            "  --help-all                  Show all flags, also those that are used rarely\n"
            "\n");
}

TEST_F(Help, OfAllFlagsHasEach) {
  const std::string all = text(CLI::AppFormatMode::All);
  for (const CLI::Option* option : application_.get_subcommand("do")->get_options())
    for (const std::string& name : option->get_lnames()) EXPECT_THAT(all, HasSubstr("--" + name));
  EXPECT_THAT(all, HasSubstr("Passes and kernels:\n  --no-map                    Read\n"));
  EXPECT_THAT(all, Not(HasSubstr("rarely:")));
}

}  // namespace
}  // namespace anneal
