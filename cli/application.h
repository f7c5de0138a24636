// The command line from arguments to exit status: what main() calls.
#pragma once

namespace anneal {

// Never throws; errors are one sentence on stderr that starts "anneal: error:".
int run_application(int argc, const char* const* argv);

}  // namespace anneal
