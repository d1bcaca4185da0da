#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "host/transformer/model.h"
#include "kernels/device.h"
#include "kernels/reference/oracle.h"

namespace sluice {

/// One request that a model has read, with what every decode step asked attention with. All attention is dense, so a flow's
/// step is seen as the flow would meet it first.
class Capture {
 public:
  /// Called between passes; may throw to end the work.
  using Pace = std::function<void()>;
  static constexpr int kMostSteps = 1024;

  /// Prefills all of `prompt` but its last token, which is decode step 0. K and V are kept as `kv`, those of `layers` or, if
  /// there are none, of all. `device` and `model` must outlive the capture. Throws InputError for a prompt that is empty or
  /// exceeds the model's positions.
  Capture(Device& device, const Model& model, const std::vector<int32_t>& prompt, DataType kv, const Pace& pace,
          std::vector<int> layers = {});

  /// Decodes the token that the model has generated, the likeliest; returns it. Throws InputError when there is no room left.
  int32_t step();
  /// The same with a token of the caller's.
  void feed(int32_t token);

  /// In the cache, the token of the current step included.
  int tokens() const { return tokens_; }
  /// Decode steps so far, at least 1.
  int steps() const { return static_cast<int>(queries_.size()); }
  /// What a layer that is kept and KV head see at `step`, counted from 0. It refers to this object, until the next step.
  oracle::Row row(int layer, int kv_head, int step) const;
  oracle::Row row(int layer, int kv_head) const { return row(layer, kv_head, steps() - 1); }

 private:
  void run(const std::vector<int32_t>& tokens, bool decoding);
  void keep_kv(int first);
  size_t place(int layer, int kv_head) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(model_.config().kv_heads) + static_cast<size_t>(kv_head);
  }

  Device& device_;
  const Model& model_;
  std::vector<int> layers_;  // that are kept
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Model::Workspace> workspace_;
  int tokens_ = 0;
  int32_t next_ = 0;                         // the token after the last
  std::vector<std::vector<float>> keys_;     // by layer and KV head: [tokens, dim], of layers that are kept
  std::vector<std::vector<float>> values_;   // the same
  std::vector<std::vector<float>> queries_;  // by step: [layers, query_heads, dim]
};

}  // namespace sluice
