// Nodes GatedDeltaNet, and the plain operators that give the same.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "anneal/tests/importer/same_results.h"

namespace anneal {

// Of 2 heads of queries and keys, 4 of the state; a head of keys has 3 numbers, one of values 2.
struct DeltaNet {
  const char *rule = "gated_delta", *gate = "none";
  bool is_by_key = false;       // a decay for each number of a key
  bool bias_is_by_key = false;  // of the gate
  bool is_unit = false, opens_beta = false;
  int64_t length = 1;
  const char* layout = "batches";  // or "tokens", "packed"
  float scale = 0;
};

inline bool decays(const DeltaNet& net) { return std::string_view(net.rule).starts_with("gated"); }
inline bool corrects(const DeltaNet& net) { return std::string_view(net.rule).ends_with("delta"); }

inline std::vector<FloatInput> inputs_of(const DeltaNet& net) {
  const int64_t length = net.length;
  return {{"q", {2, length, 6}}, {"k", {2, length, 6}},
          {"v", {2, length, 8}}, {"g", {2, length, net.is_by_key ? 12 : 4}},
          {"b", {2, length, 4}}, {"s", {2, 4, 2, 3}},
          {"a_log", {4}},        {"dt_bias", {net.bias_is_by_key ? 12 : 4}}};
}

inline void gated_delta_net(ModelBuilder& m, const DeltaNet& net, bool is_state) {
  const std::string_view layout = net.layout;
  const bool is_flat = layout != "batches", is_raw = std::string_view(net.gate) != "none";
  const auto shaped = [&](const std::string& name, std::vector<int64_t> rest) {
    std::vector<int64_t> shape = {2, net.length};
    if (is_flat) shape = {2 * net.length};
    shape.insert(shape.end(), rest.begin(), rest.end());
    m.integers(name + "/shape", shape);
    m.node("Reshape", {name, name + "/shape"}, {name + "/shaped"});
    return name + "/shaped";
  };
  std::vector<std::string> names;
  if (layout == "packed") {
    const std::vector<std::string> parts = {shaped("q", {6}), shaped("k", {6}), shaped("v", {8})};
    set(m.node("Concat", parts, {"packed"}), "axis", int64_t{-1});
    names = {"packed", "", "", ""};
  } else {
    names = {shaped("q", {2, 3}), shaped("k", {2, 3}), shaped("v", {4, 2}), ""};
  }
  names.push_back(!decays(net) ? "" : net.is_by_key ? shaped("g", {4, 3}) : shaped("g", {4}));
  names.push_back(corrects(net) ? shaped("b", {4}) : "");
  names.insert(names.end(), {"s", is_raw ? "a_log" : "", is_raw ? "dt_bias" : ""});
  auto& node =
      microsoft(m, "GatedDeltaNet", names, {is_state ? "out" : "all", is_state ? "y" : ""});
  set(node, "update_rule", net.rule);
  set(node, "gate_activation", net.gate);
  set(node, "beta_activation", net.opens_beta ? "sigmoid" : "none");
  set(node, "qk_l2_norm", int64_t{net.is_unit});
  set(node, "gate_lower_bound", -2.0F);
  set(node, "scale", net.scale);
  if (is_state) return;
  m.integers("joined", {2, net.length, 8});
  m.node("Reshape", {"all", "joined"}, {"y"});
}

// The same by LinearAttention, whose state has the numbers of a key first.
inline void linear_attention(ModelBuilder& m, const DeltaNet& net, bool is_state) {
  m.integers("heads", {2, net.length, 2, 3}).integers("joined", {2, net.length, 6});
  m.integers("by_head", {2, net.length, 4, net.is_by_key ? 3 : 1});
  m.integers("of_gate", {4, net.bias_is_by_key ? 3 : 1}).integers("rate", {4, 1});
  m.integers("decay_shape", {2, net.length, net.is_by_key ? 12 : 4}).floats("bound", {}, {-2});
  std::vector<std::string> names = {"q", "k", "v", "past", "", ""};
  if (net.is_unit)
    for (const size_t i : {0, 1}) {
      const std::string x = names[i];
      m.node("Reshape", {x, "heads"}, {x + "/heads"});
      m.node("LpNormalization", {x + "/heads"}, {x + "/normal"});
      m.node("Reshape", {x + "/normal", "joined"}, {names[i] = x + "/unit"});
    }
  set(m.node("Transpose", {"s"}, {"past"}), "perm", std::vector<int64_t>{0, 1, 3, 2});
  const std::string_view gate = net.gate;
  if (decays(net)) names[4] = "g";
  if (gate != "none") {
    m.node("Reshape", {"g", "by_head"}, {"g/heads"});
    m.node("Reshape", {"dt_bias", "of_gate"}, {"bias"});
    m.node("Reshape", {"a_log", "rate"}, {"a"});
    m.node("Add", {"g/heads", "bias"}, {"sum"});
    m.node("Exp", {"a"}, {"factor"});
    if (gate == "softplus") {
      m.node("Softplus", {"sum"}, {"soft"});
      m.node("Mul", {"factor", "soft"}, {"positive"});
      m.node("Neg", {"positive"}, {"decay"});
    } else {
      m.node("Mul", {"factor", "sum"}, {"product"});
      m.node("Sigmoid", {"product"}, {"part"});
      m.node("Mul", {"part", "bound"}, {"decay"});
    }
    m.node("Reshape", {"decay", "decay_shape"}, {names[4] = "log_decay"});
  }
  if (corrects(net)) names[5] = "b";
  if (corrects(net) && net.opens_beta) m.node("Sigmoid", {"b"}, {names[5] = "beta"});
  auto& node = m.node("LinearAttention", names, {is_state ? "out" : "y", is_state ? "last" : ""});
  set(node, "q_num_heads", int64_t{2});
  set(node, "kv_num_heads", int64_t{4});
  set(node, "update_rule", net.rule);
  set(node, "scale", net.scale);
  if (is_state) set(m.node("Transpose", {"last"}, {"y"}), "perm", std::vector<int64_t>{0, 1, 3, 2});
}

inline std::vector<DeltaNet> delta_nets() {
  return {DeltaNet{.rule = "linear"},
          DeltaNet{.rule = "gated"},
          DeltaNet{.rule = "delta"},
          DeltaNet{.is_by_key = true, .is_unit = true, .opens_beta = true},
          DeltaNet{.gate = "softplus", .is_unit = true, .opens_beta = true, .scale = 0.7F},
          DeltaNet{.gate = "softplus", .is_by_key = true, .bias_is_by_key = true, .is_unit = true},
          DeltaNet{.gate = "sigmoid", .is_by_key = true, .is_unit = true},
          DeltaNet{.rule = "gated", .gate = "kda"},
          DeltaNet{.gate = "softplus", .is_by_key = true, .is_unit = true},
          DeltaNet{.gate = "softplus", .is_unit = true, .layout = "tokens"},
          DeltaNet{.gate = "softplus", .is_unit = true, .layout = "packed"}};
}

}  // namespace anneal
