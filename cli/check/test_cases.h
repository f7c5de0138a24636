// Search for test cases on disk. A case is
//   a folder with model.onnx and test_data_set_*/{input,output}_K.pb (also *.onnx if it is alone),
//   or X.onnx with X_output_K.pb, and perhaps X_input_K.pb, beside it.
#pragma once
#include <string>
#include <vector>

namespace anneal {

// Files by K: of the model's inputs and outputs, in their order. No inputs: the case is fed ramps.
struct DataSet {
  std::string name;
  std::vector<std::string> inputs, outputs;
};

struct TestCase {
  std::string name;  // path below the root; the root's own name if it is the case
  std::string model;
  std::vector<DataSet> sets;
};

// All cases at any depth below a folder, or the one of an .onnx file, by name. Links to folders are
// not followed below the root. Fails with kIo if path is not there.
std::vector<TestCase> find_test_cases(const std::string& path);

}  // namespace anneal
