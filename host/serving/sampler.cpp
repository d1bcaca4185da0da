#include "host/serving/sampler.h"

#include <fmt/format.h>

#include "host/serving/random.h"
#include "scripting/base/error.h"

namespace sluice {

void check_sampling(const SamplingOptions& options) {
  if (!(options.temperature >= 0 && options.temperature <= 100)) {
    throw InputError(fmt::format("temperature {} is out of range", options.temperature), "0 is greedy; 100 is the largest");
  }
  if (options.top_k < 0) throw InputError(fmt::format("top_k {} is negative", options.top_k), "0 keeps every token");
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw InputError(fmt::format("top_p {} is out of range", options.top_p), "it is a share: more than 0, at most 1");
  }
}

SampleRow choose_sample(const SamplingOptions& options, uint64_t step, int row) {
  return {.row = row,
          .temperature = options.temperature,
          .top_k = options.top_k,
          .top_p = options.top_p,
          .uniform = counter_uniform(options.seed, step)};
}

}  // namespace sluice
