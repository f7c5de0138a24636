// Comma-separated values as RFC 4180 has them: quoted fields, "" for a quote, CRLF or LF.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace anneal {

struct Csv {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // each as long as the header

  std::optional<size_t> column(std::string_view name) const;
};

// Empty lines are passed over. Fails with kInvalidArgument naming the line.
Csv parse_csv(std::string_view text);

}  // namespace anneal
