// Which cuDNN engines take a convolution with an epilogue on this GPU, as JSON on stdout. Started
// by probe.py:
//   probe_cudnn deviceprop | engines FILE|handle GRAPH...
// FILE holds device properties, for plans made without a handle. A graph is the epilogue of one
// fp16 convolution: b bias, r residual, R relu, G gelu, T tanh gelu, S swish ("bR"). Descriptors
// live until the process ends.
#include <cudnn.h>

#include <fstream>

#include "anneal/bench/gpu/probe_device.h"

// clang-format off
#define DNN(X) \
  X(cudnnCreate) X(cudnnGetVersion) X(cudnnGetLastErrorString) X(cudnnGetErrorString) \
  X(cudnnBackendCreateDescriptor) X(cudnnBackendDestroyDescriptor) \
  X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute) X(cudnnBackendFinalize) \
  X(cudnnBackendExecute)
// clang-format on
TABLE(Cudnn, DNN)
using Desc = cudnnBackendDescriptor_t;

struct CudnnProbe : Device {
  Cudnn dnn;
  std::vector<void*> all;  // one buffer for each tensor of a graph; every half is 0.0625

  using Device::check;
  void check(cudnnStatus_t s, const char* what) {
    if (!s) return;
    char text[400] = "";
    dnn.cudnnGetLastErrorString(text, sizeof text);
    throw std::runtime_error(std::string(what) + ": " + dnn.cudnnGetErrorString(s) + " " + text);
  }
  Desc make(cudnnBackendDescriptorType_t type) {
    Desc d;
    check(dnn.cudnnBackendCreateDescriptor(type, &d), "create");
    return d;
  }
  template <class T>
  void set(Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::vector<T> v) {
    check(dnn.cudnnBackendSetAttribute(d, name, type, static_cast<int64_t>(v.size()), v.data()),
          "set");
  }
  void set(Desc d, cudnnBackendAttributeName_t name, Desc v) {
    set<Desc>(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, {v});
  }
  Desc done(Desc d, const char* what) { return check(dnn.cudnnBackendFinalize(d), what), d; }
  int64_t get_int(Desc d, cudnnBackendAttributeName_t name) {
    int64_t v = -1, n = 0;
    dnn.cudnnBackendGetAttribute(d, name, CUDNN_TYPE_INT64, 1, &n, &v);
    return v;
  }
  Desc tensor(int64_t uid, std::vector<int64_t> nchw, cudnnDataType_t type,
              bool is_virtual = false) {
    Desc d = make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t c = nchw[1], w = nchw[3], h = nchw[2];
    set<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, nchw);
    set<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, {c * h * w, 1, c * w, c});
    set<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {uid});
    set<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16});
    set<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {type});
    bool flag[] = {is_virtual};
    check(
        dnn.cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, flag),
        "virtual");
    return done(d, "tensor");
  }
  Desc conv_graph(const std::string& epilogue,
                  cudnnHandle_t handle) {  // fp16 NHWC 8x64x56x56, 64 filters of 3x3
    const std::vector<int64_t> image{8, 64, 56, 56}, filters{64, 64, 3, 3},
        per_channel{1, 64, 1, 1};
    Desc conv = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR),
         op = make(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    set<cudnnDataType_t>(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                         {CUDNN_DATA_FLOAT});
    set<cudnnConvolutionMode_t>(conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
                                {CUDNN_CROSS_CORRELATION});
    set<int64_t>(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, {2});
    for (auto name : {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                      CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS})
      set<int64_t>(conv, name, CUDNN_TYPE_INT64, {1, 1});
    Desc last = tensor(100, image, CUDNN_DATA_FLOAT, true);
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, done(conv, "convolution"));
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, tensor(1, image, CUDNN_DATA_HALF));
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, tensor(2, filters, CUDNN_DATA_HALF));
    set(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, last);
    set<float>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, {1});
    set<float>(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, {0});
    std::vector<Desc> ops{done(op, "conv operation")};
    for (size_t i = 0; i < epilogue.size(); ++i) {
      const char c = epilogue[i];
      bool end = i + 1 == epilogue.size();
      auto mode = c == 'R'   ? CUDNN_POINTWISE_RELU_FWD
                  : c == 'G' ? CUDNN_POINTWISE_GELU_FWD
                  : c == 'T' ? CUDNN_POINTWISE_GELU_APPROX_TANH_FWD
                  : c == 'S' ? CUDNN_POINTWISE_SWISH_FWD
                             : CUDNN_POINTWISE_ADD;
      Desc pw = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
           node = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
      set<cudnnPointwiseMode_t>(pw, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, {mode});
      set<cudnnDataType_t>(pw, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                           {CUDNN_DATA_FLOAT});
      set(node, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, done(pw, "pointwise"));
      set(node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, last);
      if (c == 'b')
        set(node, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(3, per_channel, CUDNN_DATA_HALF));
      if (c == 'r')
        set(node, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensor(4, image, CUDNN_DATA_HALF));
      last = end ? tensor(5, image, CUDNN_DATA_HALF)
                 : tensor(101 + static_cast<int64_t>(i), image, CUDNN_DATA_FLOAT, true);
      set(node, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, last);
      ops.push_back(done(node, "pointwise operation"));
    }
    Desc graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set<Desc>(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ops);
    if (handle)
      set<cudnnHandle_t>(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {handle});
    return done(graph, "operation graph");
  }
  Desc device_prop(const std::string& json) {  // "" asks the device
    Desc d = make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    if (json.empty())
      set<int32_t>(d, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32, {0});
    else
      set<char>(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                {json.begin(), json.end()});
    return done(d, "device properties");
  }
  std::string run_plan(Desc config, cudnnHandle_t handle, Desc prop,
                       bool residual) {  // build it, and run it where there is a handle
    std::ostringstream out;
    try {
      Desc plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      if (handle)
        set<cudnnHandle_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {handle});
      if (prop) set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, prop);
      set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      double start = now_ms();
      done(plan, "plan");
      int64_t workspace = get_int(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
      out << "\"plan\":\"ok\",\"plan_ms\":" << number(now_ms() - start)
          << ",\"workspace\":" << workspace;
      if (handle) {
        const size_t kBytes = size_t{8} * 64 * 56 * 56 * 2;
        for (CUdeviceptr p; all.size() < 5; all.push_back(reinterpret_cast<void*>(p)))
          p = allocate(kBytes), cu.cuMemsetD32Async(p, 0x2c002c00, kBytes / 4, nullptr);
        std::vector<int64_t> uids{1, 2, 3, 5};
        std::vector<void*> data{all[0], all[1], all[2], all[4]};
        if (residual) uids.push_back(4), data.push_back(all[3]);
        CUdeviceptr scratch = allocate(static_cast<size_t>(workspace) + 16);
        Desc pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
        set<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
        set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data);
        set<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                   {reinterpret_cast<void*>(scratch)});
        done(pack, "variant pack");
        check(dnn.cudnnBackendExecute(handle, plan, pack), "execute");
        out << ",\"us\":" << number(time_us([&] { dnn.cudnnBackendExecute(handle, plan, pack); }));
        cu.cuMemFree(scratch);
      }
    } catch (const std::exception& e) {
      out << (out.tellp() ? "," : "") << "\"error\":" << quote(e.what());
    }
    return out.str();
  }
  std::string engines(const std::string& epilogue, cudnnHandle_t handle, Desc prop) {
    std::vector<std::string> chosen, by_index, refused;
    Desc graph = conv_graph(epilogue, handle);
    const bool residual = epilogue.find('r') != std::string::npos;
    for (int64_t id = 0; id < 80; ++id) try {
        Desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR),
             config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph);
        set<int64_t>(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {id});
        if (prop) set(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, prop);
        set(config, CUDNN_ATTR_ENGINECFG_ENGINE, done(engine, "engine"));
        by_index.push_back("{\"engine\":" + std::to_string(id) + "," +
                           run_plan(done(config, "config"), handle, prop, residual) + "}");
      } catch (const std::exception& e) {
        if (id == 1 || id == 4 || id == 7)
          refused.push_back("\"" + std::to_string(id) + "\":" + quote(e.what()));
      }
    try {
      Desc heur = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      set(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
      set<cudnnBackendHeurMode_t>(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                                  {CUDNN_HEUR_MODE_A});
      if (prop) set(heur, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, prop);
      std::vector<Desc> found(12);
      for (Desc& d : found) d = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
      int64_t n = 0;
      done(heur, "heuristics");
      check(dnn.cudnnBackendGetAttribute(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 12, &n, found.data()),
            "results");
      for (int64_t i = 0; i < n && i < 12; ++i) {
        Desc engine = make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
        int64_t one = 0;
        check(dnn.cudnnBackendGetAttribute(found[i], CUDNN_ATTR_ENGINECFG_ENGINE,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine),
              "engine");
        chosen.push_back(
            "{\"engine\":" + std::to_string(get_int(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)) + "," +
            run_plan(found[i], handle, prop, residual) + "}");
      }
    } catch (const std::exception& e) {
      chosen.push_back(quote(e.what()));
    }
    return quote(epilogue) + ":{\"heuristic_a\":" + join(chosen, "[]") +
           ",\"by_index\":" + join(by_index, "[]") + ",\"refused\":" + join(refused, "{}") + "}";
  }
  std::string device_json() {
    start();
    std::vector<char> text(1 << 16);
    int64_t n = 0;
    check(dnn.cudnnBackendGetAttribute(device_prop(""), CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                       CUDNN_TYPE_CHAR, int64_t(text.size()) - 1, &n, text.data()),
          "get JSON");
    return "{\"cudnn_version\":" + std::to_string(dnn.cudnnGetVersion()) +
           ",\"length\":" + std::to_string(n) + ",\"json\":" + text.data() + "}";
  }
};

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode != "deviceprop" && argc < 4)
    throw std::runtime_error("arguments: see the top of the source");
  open_listed();
  CudnnProbe probe;
  probe.dnn.load("libcudnn.so.9");
  if (mode == "deviceprop") {
    printf("%s\n", probe.device_json().c_str());
    return 0;
  }
  cudnnHandle_t handle = nullptr;
  Desc prop = nullptr;
  if (std::string(argv[2]) == "handle") {
    probe.start();
    probe.check(probe.dnn.cudnnCreate(&handle), "cudnnCreate");
  } else {
    std::ifstream file(argv[2]);
    prop = probe.device_prop({std::istreambuf_iterator<char>(file), {}});
  }
  std::vector<std::string> rows;
  for (int i = 3; i < argc; ++i) rows.push_back(probe.engines(argv[i], handle, prop));
  printf("%s\n", join(rows, "{}").c_str());
} catch (const std::exception& e) {
  printf("{\"error\":%s}\n", quote(e.what()).c_str());
}
