#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "host/serving/engine.h"
#include "host/serving/random.h"
#include "host/weights/default_model.h"
#include "tests/cuda/gpu.h"
#include "tests/support/source_path.h"

namespace sluice::testing {

/// The mini model on the GPU, flows for it, and requests.
class CudaEngine : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!runs()) return;
    device_ = create_device("cuda");
    model_ = load_model(source_path("host/models/mini").string(), *device_);
  }

  Plan plan_of(const std::string& flow) const {
    return compile(read_flow(source_path("scripting/flows/" + flow + ".lua").string()).trace(trace_options(model_->config())))
        .plan;
  }

  /// Prompts of lengths around pages and steps of `round_pages`, that end at different times.
  std::vector<Request> workload() const {
    std::vector<Request> requests;
    for (const int prompt : {250, 17, 1000, 16, 531, 2047}) {
      Request request;
      const auto seed = static_cast<uint64_t>(requests.size());
      for (int i = 0; i < prompt; ++i) {
        request.prompt.push_back(
            static_cast<int32_t>(counter_uniform(seed, static_cast<uint64_t>(i)) * model_->config().vocabulary));
      }
      request.max_tokens = 24 + 9 * static_cast<int>(requests.size());
      request.ignore_eos = true;
      request.want_logits = requests.size() % 2 == 0;
      request.sampling.temperature = requests.size() % 3 == 0 ? 1.0F : 0.0F;
      requests.push_back(std::move(request));
    }
    return requests;
  }

  /// By order of submission; passes of at most `most_rows` tokens. Others are admitted as the first `most_requests` end.
  static std::map<uint64_t, RequestResult> run(Device& device, const Model& model, const Plan* plan,
                                               const std::vector<Request>& requests, int most_rows = 300, int most_requests = 4) {
    EngineOptions options;
    options.pages = 2000;
    options.max_batch = most_requests;
    options.max_pass_tokens = most_rows;
    Engine engine(device, model, plan, options);
    for (const Request& request : requests) engine.submit(request);
    std::map<uint64_t, RequestResult> results;
    for (RequestResult& result : engine.run_all()) results[result.id] = std::move(result);
    return results;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

}  // namespace sluice::testing
