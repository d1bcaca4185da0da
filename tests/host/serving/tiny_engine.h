#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "host/serving/engine.h"
#include "scripting/lua/trace.h"
#include "tests/host/serving/drawn_request.h"
#include "tests/host/transformer/tiny_model.h"

namespace sluice::testing {

inline constexpr const char* kQuest = R"(
  local flow = sluice.flow { name = "quest", page = 8, kv = "f32" }
  function flow.cache(c)
    c.hi = c.k:max("token")
    c.lo = c.k:min("token")
  end
  function flow.index(q, c)
    local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
    return sluice.topk(s, { k = 2, first = 1, last = 1 })
  end
  return flow)";

// Keeps state, so replaying after a preemption must rebuild it.
inline constexpr const char* kStateful = R"(
  local flow = sluice.flow { name = "stateful", page = 8, kv = "f32" }
  function flow.cache(c)
    c.mid = c.k:mean("token")
    c.credit = sluice.cfill(0)
  end
  function flow.index(q, c)
    local credit = c.credit * 0.5 + q:mean("head"):dot(c.mid)
    c.credit:save(credit)
    return sluice.topk(credit, { k = 2, first = 1, last = 1 })
  end
  return flow)";

/// A tiny model on two threads of the CPU, flows for it, and requests.
class TinyEngineTest : public ::testing::Test {
 protected:
  explicit TinyEngineTest(int layers = TinyModel().layers) {
    tiny_.layers = layers;
    tiny_.draw();
    tiny_.write(directory_.path());
    device_ = create_cpu_device({2});
    model_ = load_model(directory_.path(), *device_);
  }

  Plan plan_of(const std::string& source) const {
    TraceOptions options;
    options.head_dim = tiny_.head_dim;
    options.group = tiny_.query_heads / tiny_.kv_heads;
    return compile(trace(source, "flow.lua", options)).plan;
  }

  static EngineOptions options(int pages = 256) {
    EngineOptions options;
    options.kv = DataType::kF32;
    options.page = 8;
    options.pages = pages;
    options.max_batch = 8;
    options.max_pass_tokens = 64;
    options.run_ahead = true;
    return options;
  }

  Request request(int prompt, int max_tokens, int salt = 0) const {
    return testing::drawn_request(tiny_.vocabulary, prompt, max_tokens, salt);
  }

  TemporaryDirectory directory_;
  TinyModel tiny_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

}  // namespace sluice::testing
