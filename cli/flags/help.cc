#include "anneal/cli/flags/help.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

namespace anneal {
namespace {

constexpr std::string_view kHeadings[] = {
    help::kFiles,   help::kTarget,  help::kShapes,   help::kPrecision, help::kCalibration,
    help::kBudget,  help::kSearch,  help::kData,     help::kMeasuring, help::kRun,
    help::kCompare, help::kKernels, help::kDiagnosis};
constexpr std::string_view kRarely = ", used rarely";
constexpr std::string_view kDefaultGroup = "Options";  // CLI11's: holds --help alone

class HelpForm : public CLI::Formatter {
 public:
  HelpForm() {
    column_width(kColumn);
    for (const char* number : {"INT", "UINT"}) label(number, "N");
    label("FLOAT", "NUMBER");
    label("TEXT", "NAME");
  }

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    const bool all = mode == CLI::AppFormatMode::All;
    std::ostringstream out;
    out << make_description(app) << make_usage(app, name);
    size_t hidden = 0;
    for (const std::string_view heading : kHeadings) {
      const std::vector<const CLI::Option*> often_used = options_of(*app, often(heading)),
                                            rarely_used = options_of(*app, rarely(heading));
      if (!all) hidden += rarely_used.size();
      if (often_used.empty() && (rarely_used.empty() || !all)) continue;
      out << "\n" << heading << ":\n";
      for (const CLI::Option* option : often_used) out << option_text(option);
      for (const CLI::Option* option : rarely_used)
        if (all) out << option_text(option);
    }
    for (const std::string& group : app->get_groups())
      if (!group.empty() && group != kDefaultGroup && !is_known(group))
        out << make_group(group, false, options_of(*app, group));
    out << "\n";
    for (const CLI::Option* option : options_of(*app, std::string(kDefaultGroup)))
      if (all || hidden > 0 || option != app->get_help_all_ptr()) out << option_text(option);
    out << make_subcommands(app, CLI::AppFormatMode::Normal) << "\n" << make_footer(app);
    return out.str();
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    // CLI11 writes a flag that clears its variable as --no-x{false}.
    if (const size_t brace = name.find('{'); brace != std::string::npos) name.resize(brace);
    return name;
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_positional()) return "";
    return " " + get_label(option->get_type_name());
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string value = option->get_default_str();
    const std::string text = option->get_description();
    return value.empty() ? text : text + " (default: " + value + ")";
  }

 private:
  static constexpr size_t kColumn = 30;

  static bool is_known(const std::string& group) {
    return std::ranges::any_of(kHeadings, [&](std::string_view heading) {
      return group == often(heading) || group == rarely(heading);
    });
  }

  static std::vector<const CLI::Option*> options_of(const CLI::App& app, const std::string& group) {
    return app.get_options([&](const CLI::Option* option) { return option->get_group() == group; });
  }

  std::string option_text(const CLI::Option* option) const {
    return make_option(option, option->get_positional());
  }
};

}  // namespace

std::string often(std::string_view heading) { return std::string(heading); }
std::string rarely(std::string_view heading) { return std::string(heading) += kRarely; }

void set_help_form(CLI::App& application) {
  application.formatter(std::make_shared<HelpForm>());
  application.set_help_flag("-h,--help", "Show this help");
  application.set_help_all_flag("--help-all", "Show all flags, also those that are used rarely");
}

}  // namespace anneal
