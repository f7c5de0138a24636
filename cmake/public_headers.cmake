# The headers that are installed: what users may include. tests/check_size.py reads this file and
# counts their lines.
set(ANNEAL_ENGINE_PUBLIC_HEADERS
  ${PROJECT_BINARY_DIR}/include/anneal/anneal.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/application/hooks.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/dtype.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/error.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/dims.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/tensor.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/tensor_view.h
  ${PROJECT_BINARY_DIR}/include/anneal/core/version.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/run/c_api.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/run/library/c_kernels.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/run/debug.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/run/engine.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/run/stream.h
)

set(ANNEAL_BUILDER_PUBLIC_HEADERS
  ${PROJECT_BINARY_DIR}/include/anneal/engine/builder/build_options.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/builder/build_report.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/data/data_format.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/data/dataset.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/onnx/c_builder.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/onnx/onnx_builder.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/onnx/onnx_model.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/tune/frontier/frontier.h
  ${PROJECT_BINARY_DIR}/include/anneal/engine/tune/metric/metric.h
  ${PROJECT_BINARY_DIR}/include/anneal/optimizer/calibration_table.h
  ${PROJECT_BINARY_DIR}/include/anneal/optimizer/precision.h
)
