// `bench --roofline` and `inspect --roofline`.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "anneal/cli/roofline/roofline.h"

namespace anneal {

struct RooflineFlags {
  bool wanted = false;
  bool probe = false;   // measure the ceilings although they are known
  std::string picture;  // empty: none
};
void add_roofline_flag(CLI::App& command, std::string_view heading, RooflineFlags& flags);
// Before the work, except for the path of the picture. Fails with kInvalidArgument.
void check_roofline_flags(const RooflineFlags& flags);

// Of the plan that the context ran last. threads: of the context.
Roofline measured_roofline(const Engine& engine, const ExecutionContext& context,
                           const std::vector<Tensor>& inputs, int threads,
                           const ProfileTable& profile, const RooflineFlags& flags);
// Of all plans of an engine file, without times.
std::vector<Roofline> planned_rooflines(const std::string& path, bool map,
                                        const std::vector<std::string>& libraries,
                                        const std::string& weights, const RooflineFlags& flags);
void write_roofline_picture(const Roofline& roofline, const std::string& title,
                            const RooflineFlags& flags);

}  // namespace anneal
