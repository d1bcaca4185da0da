#include "agents/evaluation/prefilled.h"

#include <algorithm>

#include "scripting/graph/error.h"

namespace sluice {
namespace {

constexpr int kPage = 16;  // of the dense engine
constexpr int kPassTokens = 512;

size_t common_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b, size_t limit) {
  size_t length = 0;
  const size_t end = std::min({a.size(), b.size(), limit});
  while (length < end && a[length] == b[length]) ++length;
  return length;
}

PrefilledPrompt tokenise(const Job& job, const Tokenizer& tokenizer) {
  PrefilledPrompt prompt;
  prompt.tokens = tokenizer.encode(job.sample.prompt);
  if (prompt.tokens.empty()) throw InputError("a prompt without tokens");
  prompt.sampling = job.sampling;
  prompt.max_tokens = job.sample.max_tokens;
  prompt.stop = job.sample.stop;
  if (job.sample.must_end && job.sample.scoring == Scoring::kExact) prompt.expected = tokenizer.encode(job.sample.answer);
  return prompt;
}

/// K and V of the first `shared` tokens of `tokens`.
std::shared_ptr<const KvSnapshot> prefill_one(const std::vector<int32_t>& tokens, size_t shared, Device& device,
                                              const Model& model) {
  Request request;
  // A snapshot leaves out the last token of the prompt, so one more is asked for.
  request.prompt.assign(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(shared) + 1);
  request.max_tokens = 1;
  request.ignore_eos = true;
  request.want_snapshot = true;
  PrefilledPrompt alone;
  alone.tokens = request.prompt;
  alone.max_tokens = 1;
  Engine engine(device, model, nullptr, engine_options({alone}, kPage));
  engine.submit(std::move(request));
  auto results = engine.run_all();
  if (results.size() != 1 || !results.front().snapshot) throw InternalError("the engine gave no snapshot");
  return results.front().snapshot;
}

}  // namespace

EngineOptions engine_options(const std::vector<PrefilledPrompt>& prompts, int page) {
  EngineOptions options;
  options.page = page;
  options.max_batch = static_cast<int>(prompts.size());
  options.max_pass_tokens = std::max(kPassTokens, options.max_batch);
  options.prefix_cache = false;  // each prompt brings its K and V along
  options.pages = 1;
  for (const PrefilledPrompt& prompt : prompts) {
    options.pages += static_cast<int>((prompt.tokens.size() + prompt.max_tokens + page - 1) / page) + 1;
  }
  return options;
}

std::unique_ptr<EngineBatch> prefill_documents(const std::vector<JobDocument>& documents, Device& device, const Model& model,
                                               const Tokenizer& tokenizer) {
  auto batch = std::make_unique<EngineBatch>();
  for (const JobDocument& document : documents) {
    const size_t first = batch->prompts.size();
    for (const Job& job : document) batch->prompts.push_back(tokenise(job, tokenizer));
    if (first == 0) batch->first_document = batch->prompts.size();
    // The last token of a prompt is a decode step of whoever answers it.
    size_t shared = SIZE_MAX;
    for (size_t i = first; i < batch->prompts.size(); ++i) {
      const auto& tokens = batch->prompts[i].tokens;
      shared = std::min(shared, common_prefix(tokens, batch->prompts[first].tokens, tokens.size() - 1));
    }
    if (shared == 0) continue;
    const auto snapshot = prefill_one(batch->prompts[first].tokens, shared, device, model);
    for (size_t i = first; i < batch->prompts.size(); ++i) batch->prompts[i].snapshot = snapshot;
  }
  return batch;
}

}  // namespace sluice
