#include "agents/evaluation/caching_runner.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "scripting/base/error.h"

namespace sluice {
namespace {

/// A digest of everything that decides what is prefilled and answered.
class Digest {
 public:
  Digest() { crypto_generichash_init(&state_, nullptr, 0, kBytes); }

  void add(std::string_view text) {
    add_bytes(text.size());
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  template <typename T>
  void add_bytes(T value) {
    crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(&value), sizeof value);
  }
  std::string result() {
    std::array<unsigned char, kBytes> digest{};
    crypto_generichash_final(&state_, digest.data(), digest.size());
    return {digest.begin(), digest.end()};
  }

 private:
  static constexpr size_t kBytes = 32;
  crypto_generichash_state state_{};
};

std::string digest_of(const std::vector<JobDocument>& documents) {
  Digest digest;
  digest.add_bytes(documents.size());
  for (const JobDocument& document : documents) {
    digest.add_bytes(document.size());
    for (const Job& job : document) {
      digest.add(job.sample.prompt);
      for (const auto* tokens : {&job.sample.tokens, &job.sample.given}) {
        digest.add({reinterpret_cast<const char*>(tokens->data()), tokens->size() * sizeof(int32_t)});
      }
      digest.add(job.sample.answer);
      digest.add(job.sample.stop);
      digest.add_bytes(job.sample.max_tokens);
      digest.add_bytes(job.sampling.temperature);
      digest.add_bytes(job.sampling.top_k);
      digest.add_bytes(job.sampling.top_p);
      digest.add_bytes(job.sampling.seed);
    }
  }
  return digest.result();
}

}  // namespace

/// What the cascade holds: the batch stays as long as anybody uses it, kept or not.
class CachingRunner::Handle final : public PrefilledBatch {
 public:
  explicit Handle(std::shared_ptr<Kept> kept) : kept_(std::move(kept)) {}

  size_t bytes() const override { return kept_->batch->bytes(); }
  Kept& kept() const { return *kept_; }

 private:
  std::shared_ptr<Kept> kept_;
};

const CachingRunner::Handle& CachingRunner::handle_of(const PrefilledBatch& batch) {
  const auto* handle = dynamic_cast<const Handle*>(&batch);
  if (handle == nullptr) throw InternalError("a batch of another runner");
  return *handle;
}

std::unique_ptr<PrefilledBatch> CachingRunner::prefill(const std::vector<JobDocument>& documents) {
  const Key key = digest_of(documents);
  std::shared_ptr<Kept>& kept = kept_[key];
  if (kept == nullptr) {
    try {
      kept = std::make_shared<Kept>(Kept{inner_.prefill(documents), {}});
    } catch (...) {
      kept_.erase(key);
      throw;
    }
    bytes_ += kept->batch->bytes();
  } else {
    by_use_.erase(std::find(by_use_.begin(), by_use_.end(), key));
  }
  by_use_.push_front(key);
  auto handle = std::make_unique<Handle>(kept);
  make_room();
  return handle;
}

void CachingRunner::make_room() {
  while (bytes_ > most_bytes_ && !by_use_.empty()) {
    const auto oldest = kept_.find(by_use_.back());
    bytes_ -= oldest->second->batch->bytes();
    kept_.erase(oldest);
    by_use_.pop_back();
  }
}

std::vector<Generation> CachingRunner::decode(const PrefilledBatch& batch, const Plan* plan) {
  Kept& kept = handle_of(batch).kept();
  if (plan != nullptr) return inner_.decode(*kept.batch, plan);
  if (!kept.dense) kept.dense = inner_.decode(*kept.batch, nullptr);
  return *kept.dense;
}

TaskSpeed CachingRunner::measure(const PrefilledBatch& batch, const Plan& plan, const Answers& answers,
                                 const SpeedOptions& options) {
  return inner_.measure(*handle_of(batch).kept().batch, plan, answers, options);
}

}  // namespace sluice
