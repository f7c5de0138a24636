// A batch that a build opens in place of the model's number.
#pragma once
#include "anneal/importer/importer.h"

namespace anneal {

// Proves that each row of the outputs follows from the same row of the inputs alone, whatever the
// number of rows, and then gives the batch the bounds that were asked for. A model without an
// opened batch is not changed. Fails with kUnsupported, naming what mixes rows, if there is no
// proof.
void settle_batch(ImportResult& imported);

}  // namespace anneal
