#include "anneal/core/version.h"

namespace anneal {

std::string_view version() { return ANNEAL_VERSION; }

}  // namespace anneal
