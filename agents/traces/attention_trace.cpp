#include "agents/traces/attention_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "agents/traces/digest.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"
#include "scripting/base/output_file.h"
#include "scripting/base/program_data.h"
#include "scripting/graph/verify.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSchema = "sluice.trace/1";
constexpr const char* kIndex = "trace.json";
constexpr const char* kHint = "sluice trace record writes such a directory";
constexpr size_t kLargestIndex = size_t{4} << 20;
constexpr float kLargestBf16 = 0x1.FEp127F;

std::string file_name(size_t window, int layer, int version) {
  return fmt::format("window-{}.layer-{}{}.safetensors", window, layer, version == 0 ? "" : fmt::format(".{}", version));
}

std::string digest_of_file(const std::string& path) { return hex_digest(MappedFile(path).bytes()); }

void require_finite(const std::vector<float>& numbers, const std::string& file, const char* name) {
  const auto is_finite = [](float number) { return std::abs(number) <= kLargestBf16; };
  if (std::all_of(numbers.begin(), numbers.end(), is_finite)) return;
  throw InputError(fmt::format("{}: {} holds NaN, infinities or what is beyond bfloat16", file, name));
}

size_t size_of_file(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw InputError(fmt::format("{}: cannot be read: {}", path, error.message()), kHint);
  return size;
}

/// The file of a layer, which stands beside the index.
std::string file_of(const JsonObject& entry, const fs::path& directory) {
  const std::string& name = entry.text("file");
  if (name.empty() || name.find('\0') != std::string::npos || fs::path(name).filename() != fs::path(name))
    entry.refuse("file", "the name of a file beside it is wanted");
  return (directory / name).string();
}

TracedLayer read_layer(const JsonObject& entry, const std::string& file, int model_layers) {
  TracedLayer layer;
  layer.layer = static_cast<int>(entry.integer("layer", 0, model_layers - 1));
  if (digest_of_file(file) != entry.text("digest")) {
    throw InputError(fmt::format("{}: it was cut off or changed: its digest is another than {} says", file, kIndex), kHint);
  }
  layer.tensors = read_layer_tensors(file);
  require_finite(layer.tensors.keys, file, "k");
  require_finite(layer.tensors.values, file, "v");
  require_finite(layer.tensors.queries, file, "q");
  return layer;
}

/// What windows and layers must have in common with the first.
void require_same_shape(const AttentionTrace& trace, const TraceWindow& window, const TracedLayer& layer,
                        const std::string& name) {
  const LayerTensors& first = trace.windows.empty() ? window.layers[0].tensors : trace.windows[0].layers[0].tensors;
  const LayerTensors& tensors = layer.tensors;
  if (tensors.query_heads != first.query_heads || tensors.kv_heads != first.kv_heads || tensors.dim != first.dim ||
      tensors.steps != first.steps || tensors.tokens != first.tokens) {
    throw InputError(fmt::format("{}: layer {}: heads, their size or the number of tokens or steps are not those of the first "
                                 "layer",
                                 name, layer.layer),
                     "all layers of a trace are of one model, and all windows as long");
  }
  const auto is_same = [&](const TracedLayer& other) { return other.layer == layer.layer; };
  if (std::count_if(window.layers.begin(), window.layers.end(), is_same) > 1) {
    throw InputError(fmt::format("{}: layer {} stands twice in a window", name, layer.layer));
  }
}

/// Files that the trace in a directory names, as far as that can be read.
std::vector<std::string> files_of_trace(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  if (!fs::is_regular_file(directory / kIndex, error)) return names;
  try {
    const std::string name = (directory / kIndex).string();
    const json document = parse_json(read_text_file(name, kLargestIndex), name);
    const JsonObject root(document, name);
    if (root.text("schema") != kSchema) return names;
    for (const json& window : root.array("windows")) {
      for (const json& layer : JsonObject(window, name).array("layers")) {
        names.push_back(fs::path(file_of(JsonObject(layer, name), directory)).filename().string());
      }
    }
    names.emplace_back(kIndex);
  } catch (const InputError&) {
    names.clear();  // something else is called so
  }
  return names;
}

/// Throws InputError if the directory holds other files than `known`.
void refuse_others(const fs::path& directory, const std::vector<std::string>& known) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::count(known.begin(), known.end(), name) > 0) continue;
    throw InputError(fmt::format("{}: holds other files than those of a trace: {}", directory.string(), name),
                     "name a new directory");
  }
  if (error) throw InputError(fmt::format("{}: cannot be read: {}", directory.string(), error.message()));
}

void remove_files(const std::vector<std::string>& paths) {
  std::error_code ignored;
  for (const std::string& path : paths) fs::remove(path, ignored);
}

void require_writable(const fs::path& directory) {
  const std::string probe = (directory / ".trace.probe").string();
  std::error_code ignored;
  const bool is_open = std::ofstream(probe).is_open();
  fs::remove(probe, ignored);
  if (!is_open) throw InputError(fmt::format("{}: nothing can be written there", directory.string()), "name another directory");
}

/// The first that gives no file of the trace the name of an earlier one.
int free_version(const AttentionTrace& trace, const std::vector<std::string>& earlier) {
  const auto is_free = [&](int version) {
    for (size_t window = 0; window < trace.windows.size(); ++window) {
      for (const TracedLayer& layer : trace.windows[window].layers) {
        if (std::count(earlier.begin(), earlier.end(), file_name(window, layer.layer, version)) > 0) return false;
      }
    }
    return true;
  };
  int version = 0;
  while (!is_free(version)) ++version;
  return version;
}

}  // namespace

void check_trace_size(const LayerTensors& shape, size_t layers, const std::string& name) {
  const auto refuse = [&](const std::string& what) {
    throw InputError(fmt::format("{}: {}", name, what), "fewer windows, layers, steps or tokens");
  };
  if (shape.tokens > TraceLimits::kTokens || shape.steps > TraceLimits::kSteps) {
    refuse(fmt::format("a window of {} tokens and {} steps; at most {} and {}", shape.tokens, shape.steps, TraceLimits::kTokens,
                       TraceLimits::kSteps));
  }
  if (shape.dim > GraphLimits::kHeadDim || shape.group() > GraphLimits::kGroup || shape.kv_heads > TraceLimits::kKvHeads) {
    refuse(fmt::format("{} query heads and {} KV heads of {}; at most {} KV heads, {} times as many query heads, of {}",
                       shape.query_heads, shape.kv_heads, shape.dim, TraceLimits::kKvHeads, GraphLimits::kGroup,
                       GraphLimits::kHeadDim));
  }
  constexpr int kLeastCounted = 64;
  const auto all = static_cast<double>(layers);
  const double keys = 2.0 * shape.tokens * shape.kv_heads;
  const double queries = 1.0 * shape.steps * shape.query_heads;
  const double bytes = 2 * all * shape.dim * (keys + queries);
  if (bytes > static_cast<double>(TraceLimits::kBytes)) {
    refuse(fmt::format("its layers take {:.0f} MiB, more than {}", bytes / (1 << 20), TraceLimits::kBytes >> 20));
  }
  const double products = all * std::max(shape.dim, kLeastCounted) * shape.tokens * queries;
  const double masses = all * shape.steps * shape.kv_heads * shape.tokens;
  if (products > TraceLimits::kProducts || masses > TraceLimits::kMasses) {
    refuse(fmt::format("dense attention in its steps takes {:.2g} products and {:.2g} bytes, and may take {:.2g} and {:.2g}",
                       products, masses, TraceLimits::kProducts, TraceLimits::kMasses));
  }
}

AttentionTrace load_trace(const std::string& directory) {
  const std::string name = (fs::path(directory) / kIndex).string();
  std::error_code error;
  if (!fs::exists(name, error)) throw InputError(fmt::format("{}: there is no trace: it lacks {}", directory, kIndex), kHint);
  const std::string index = read_text_file(name, kLargestIndex);
  const json document = parse_json(index, name);
  const JsonObject root(document, name);
  if (root.text("schema") != kSchema) root.refuse("schema", fmt::format("{} is wanted", kSchema), kHint);
  AttentionTrace trace;
  trace.model = root.text("model");
  if (trace.model.empty() || trace.model.size() > TraceLimits::kName) {
    root.refuse("model", fmt::format("a name of 1 to {} bytes is wanted", TraceLimits::kName));
  }
  trace.model_digest = root.text("model_digest");
  trace.digest = hex_digest(std::as_bytes(std::span(index)));
  trace.model_layers = static_cast<int>(root.integer("model_layers", 1, GraphLimits::kLayers));
  size_t bytes = 0;
  size_t layers_so_far = 0;
  const json& windows = root.array("windows");
  if (windows.empty() || windows.size() > TraceLimits::kWindows) {
    throw InputError(
        fmt::format("{}: \"windows\" has {} entries; 1 to {} are wanted", name, windows.size(), TraceLimits::kWindows));
  }
  for (const json& value : windows) {
    const JsonObject entry(value, fmt::format("{}, window {}", name, trace.windows.size()));
    TraceWindow window;
    window.text = entry.text("text");
    window.text_digest = entry.text("text_digest");
    window.first_token = entry.integer("first_token", 0, int64_t{1} << 40);
    const json& layers = entry.array("layers");
    if (layers.empty()) entry.refuse("layers", "at least one is wanted");
    for (const json& layer : layers) {
      const JsonObject of_layer(layer, entry.where() + ", layer");
      const std::string file = file_of(of_layer, directory);
      bytes += std::min(size_of_file(file), TraceLimits::kBytes + 1);
      if (bytes > TraceLimits::kBytes) {
        throw InputError(fmt::format("{}: the trace takes more than {} MiB", directory, TraceLimits::kBytes >> 20));
      }
      window.layers.push_back(read_layer(of_layer, file, trace.model_layers));
      require_same_shape(trace, window, window.layers.back(), name);
      check_trace_size(window.layers.back().tensors, ++layers_so_far, name);
    }
    trace.windows.push_back(std::move(window));
  }
  return trace;
}

void prepare_trace_directory(const std::string& directory) {
  if (directory.empty() || directory == "-") throw InputError("a trace is a directory", "name one: --out traces/mine");
  std::error_code error;
  fs::create_directories(directory, error);
  if (!fs::is_directory(directory, error)) throw InputError(fmt::format("{}: cannot be made a directory", directory));
  refuse_others(directory, files_of_trace(directory));
  require_writable(directory);
}

void save_trace(const AttentionTrace& trace, const std::string& directory) {
  prepare_trace_directory(directory);
  const fs::path folder(directory);
  const std::vector<std::string> earlier = files_of_trace(folder);
  const int version = free_version(trace, earlier);
  ordered_json document = {{"schema", kSchema},
                           {"model", trace.model},
                           {"model_digest", trace.model_digest},
                           {"model_layers", trace.model_layers},
                           {"windows", ordered_json::array()}};
  std::vector<std::string> written;
  try {
    for (size_t i = 0; i < trace.windows.size(); ++i) {
      const TraceWindow& window = trace.windows[i];
      ordered_json entry = {{"text", window.text},
                            {"text_digest", window.text_digest},
                            {"first_token", window.first_token},
                            {"layers", ordered_json::array()}};
      for (const TracedLayer& layer : window.layers) {
        const std::string file = file_name(i, layer.layer, version);
        written.push_back((folder / file).string());
        write_layer_tensors(written.back(), layer.tensors);
        entry["layers"].push_back({{"layer", layer.layer}, {"file", file}, {"digest", digest_of_file(written.back())}});
      }
      document["windows"].push_back(std::move(entry));
    }
    OutputFile((folder / kIndex).string(), {}).write(document.dump(1) + "\n");
  } catch (...) {
    remove_files(written);  // the earlier trace stays
    throw;
  }
  // The index names the new files from here on.
  for (const std::string& name : earlier) {
    if (name != kIndex) remove_files({(folder / name).string()});
  }
}

std::string shipped_trace() { return find_program_data({"host/models/smollm2_trace", "share/sluice/traces/smollm2"}); }

}  // namespace sluice
