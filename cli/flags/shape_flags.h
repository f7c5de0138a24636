// Values of flags for inputs: NAME:1x3x224x224,... and NAME=FILE|random[:SEED]. All parsers fail
// with kInvalidArgument and quote their argument.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anneal/core/dims.h"

namespace anneal {

Dims parse_dims(std::string_view text);  // "1x3x224x224"; "" is a scalar

// "x:1x3,y:0:7": shapes by input name, which may itself hold a ':'. A lone "1x3" has the name "".
std::map<std::string, Dims> parse_shapes(std::string_view text);
// The entry of an input; one without a name speaks of the only input there is.
std::optional<Dims> shape_for(const std::map<std::string, Dims>& shapes, std::string_view input,
                              size_t input_count);
// Fails if a name is not one of the inputs. flag: for the error.
void check_names(const std::map<std::string, Dims>& shapes, std::span<const std::string> inputs,
                 std::string_view flag);

// The value of --input. Without a name it speaks of the only input, or, if random, of every input
// that no other --input names and that has no default value.
struct InputFlag {
  std::string name;
  std::string file;              // empty: random
  std::optional<uint64_t> seed;  // of random
};
// only: the input that a value without a name is for; "": there is none such.
InputFlag parse_input(std::string_view text, std::span<const std::string> inputs,
                      std::string_view only);

}  // namespace anneal
