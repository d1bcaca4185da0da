#include "kernels/cuda/flow/compile_ahead.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/refusal.h"
#include "kernels/cuda/runtime/kernel_library.h"

namespace sluice::cuda {
namespace {

/// Each once. Kernels for very many rows are left out: few runs need them.
std::vector<std::string> sources_of(std::span<const Plan> plans) {
  std::set<std::string> sources;
  for (const Plan& plan : plans) {
    try {
      if (codegen::refusal_of_attention(plan)) continue;
      const codegen::FlowLayout layout(plan);
      codegen::GeneratedSource source = codegen::generate(layout);
      if (codegen::refusal_of(source)) continue;
      for (std::string* text : {&source.text, &source.cluster_attending_text}) {
        if (!text->empty()) sources.insert(std::move(*text));
      }
    } catch (const std::exception&) {
      continue;
    }
  }
  return {sources.begin(), sources.end()};
}

}  // namespace

void compile_flows_ahead(std::span<const Plan> plans) {
  constexpr size_t kMostThreads = 8;  // a compiler takes some 100 MB
  if (KernelCache::default_folder().empty()) return;
  const std::vector<std::string> sources = sources_of(plans);
  const std::string architecture = device_architecture();
  const KernelCache cache;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++) {
      try {
        cached_cubin(sources[i], architecture, &cache);
      } catch (const std::exception&) {
        continue;
      }
    }
  };
  const size_t threads = std::min<size_t>({kMostThreads, sources.size(), std::max(1U, std::thread::hardware_concurrency())});
  std::vector<std::jthread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

}  // namespace sluice::cuda
