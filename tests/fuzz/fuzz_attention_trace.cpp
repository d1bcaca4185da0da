// The input is a trace of recorded attention: up to the first zero byte trace.json, then the one file of a layer. In trace.json
// the word DIGEST stands for the digest of that file, so that what lies behind the digest is reached, too.

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>

#include "agents/evaluation/trace_judge.h"
#include "agents/traces/attention_trace.h"
#include "agents/traces/digest.h"
#include "kernels/device.h"
#include "scripting/base/error.h"

namespace {

/// One directory of the process, with one trace.
const std::filesystem::path& directory() {
  static const std::filesystem::path path = [] {
    std::filesystem::path made = std::filesystem::temp_directory_path() / ("fuzz_trace." + std::to_string(getpid()));
    std::filesystem::create_directories(made);
    return made;
  }();
  return path;
}

void write(const char* name, const std::string& bytes) { std::ofstream(directory() / name, std::ios::binary) << bytes; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  std::string index = input.substr(0, end);
  const std::string layer = end < size ? input.substr(end + 1) : "";
  const std::string word = "DIGEST";
  if (const size_t at = index.find(word); at != std::string::npos) {
    index.replace(at, word.size(), sluice::hex_digest(std::as_bytes(std::span(layer))));
  }
  write("trace.json", index);
  write("layer", layer);
  try {
    sluice::AttentionTrace trace = sluice::load_trace(directory().string());
    for (const sluice::TraceWindow& window : trace.windows) {
      for (const sluice::TracedLayer& layer : window.layers) {
        if (layer.layer >= trace.model_layers || layer.tensors.steps > layer.tensors.tokens) __builtin_trap();
        if (layer.tensors.query_heads % layer.tensors.kv_heads != 0) __builtin_trap();
      }
    }
    static const auto device = sluice::create_cpu_device({.threads = 1});
    const sluice::TraceJudge judge(*device, std::move(trace), 1);
  } catch (const sluice::InputError&) {
    // The only way in which bad input may end.
  }
  return 0;
}
