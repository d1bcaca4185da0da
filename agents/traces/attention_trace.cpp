#include "agents/traces/attention_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "agents/traces/digest.h"
#include "scripting/base/error.h"
#include "scripting/base/json_object.h"
#include "scripting/base/mapped_file.h"
#include "scripting/base/output_file.h"
#include "scripting/base/program_data.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kSchema = "sluice.trace/1";
constexpr const char* kIndex = "trace.json";
constexpr const char* kHint = "sluice trace record writes such a directory";
constexpr int kMostLayers = 1 << 16;
constexpr size_t kMostWindows = 4096;

std::string file_name(size_t window, int layer) { return fmt::format("window-{}.layer-{}.safetensors", window, layer); }

std::string digest_of_file(const std::string& path) { return hex_digest(MappedFile(path).bytes()); }

void require_finite(const std::vector<float>& numbers, const std::string& file, const char* name) {
  const auto is_finite = [](float number) { return std::isfinite(number); };
  if (std::all_of(numbers.begin(), numbers.end(), is_finite)) return;
  throw InputError(fmt::format("{}: {} holds NaN or infinities", file, name));
}

TracedLayer read_layer(const JsonObject& entry, const fs::path& directory, int model_layers, size_t& bytes) {
  TracedLayer layer;
  layer.layer = static_cast<int>(entry.integer("layer", 0, model_layers - 1));
  const std::string& name = entry.text("file");
  if (name.empty() || fs::path(name).filename() != fs::path(name)) entry.refuse("file", "the name of a file beside it is wanted");
  const std::string file = (directory / name).string();
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) throw InputError(fmt::format("{}: cannot be read: {}", file, error.message()), kHint);
  bytes += std::min<size_t>(size, kLargestTrace + 1);
  if (bytes > kLargestTrace) {
    throw InputError(fmt::format("{}: the trace takes more than {} MiB", directory.string(), kLargestTrace >> 20));
  }
  if (digest_of_file(file) != entry.text("digest")) {
    throw InputError(fmt::format("{}: it was cut off or changed: its digest is another than {} says", file, kIndex), kHint);
  }
  layer.tensors = read_layer_tensors(file);
  require_finite(layer.tensors.keys, file, "k");
  require_finite(layer.tensors.values, file, "v");
  require_finite(layer.tensors.queries, file, "q");
  return layer;
}

/// What windows and layers must have in common.
void require_same_shape(const AttentionTrace& trace, const std::string& name) {
  for (const TraceWindow& window : trace.windows) {
    for (const TracedLayer& layer : window.layers) {
      const LayerTensors& tensors = layer.tensors;
      if (tensors.query_heads == trace.query_heads() && tensors.kv_heads == trace.kv_heads() && tensors.dim == trace.head_dim() &&
          tensors.steps == trace.windows[0].layers[0].tensors.steps) {
        continue;
      }
      throw InputError(fmt::format("{}: layer {}: heads, their size or the number of steps are not those of the first layer",
                                   name, layer.layer),
                       "all layers of a trace are of one model and have as many steps");
    }
  }
}

/// A directory that is empty, or holds an earlier trace, which is then gone.
void prepare_directory(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!fs::is_directory(directory, error)) throw InputError(fmt::format("{}: cannot be made a directory", directory.string()));
  std::vector<fs::path> earlier;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != kIndex && !(name.starts_with("window-") && name.ends_with(".safetensors"))) {
      throw InputError(fmt::format("{}: holds other files than those of a trace: {}", directory.string(), name),
                       "name a new directory");
    }
    earlier.push_back(entry.path());
  }
  for (const fs::path& path : earlier) fs::remove(path, error);
}

}  // namespace

AttentionTrace load_trace(const std::string& directory) {
  const std::string name = (fs::path(directory) / kIndex).string();
  std::error_code error;
  if (!fs::exists(name, error)) throw InputError(fmt::format("{}: there is no trace: it lacks {}", directory, kIndex), kHint);
  constexpr size_t kLargestIndex = size_t{4} << 20;
  const json document = parse_json(read_text_file(name, kLargestIndex), name);
  const JsonObject root(document, name);
  if (root.text("schema") != kSchema) root.refuse("schema", fmt::format("{} is wanted", kSchema), kHint);
  AttentionTrace trace;
  trace.model = root.text("model");
  trace.model_digest = root.text("model_digest");
  trace.model_layers = static_cast<int>(root.integer("model_layers", 1, kMostLayers));
  size_t bytes = 0;
  const json& windows = root.array("windows");
  if (windows.empty() || windows.size() > kMostWindows) root.refuse("windows", fmt::format("1 to {} are wanted", kMostWindows));
  for (const json& value : windows) {
    const JsonObject entry(value, fmt::format("{}, window {}", name, trace.windows.size()));
    TraceWindow window;
    window.text = entry.text("text");
    window.text_digest = entry.text("text_digest");
    window.first_token = entry.integer("first_token", 0, int64_t{1} << 40);
    const json& layers = entry.array("layers");
    if (layers.empty()) entry.refuse("layers", "at least one is wanted");
    for (const json& layer : layers) {
      window.layers.push_back(read_layer(JsonObject(layer, entry.where() + ", layer"), directory, trace.model_layers, bytes));
    }
    trace.windows.push_back(std::move(window));
  }
  require_same_shape(trace, name);
  return trace;
}

void save_trace(const AttentionTrace& trace, const std::string& directory) {
  const fs::path folder(directory);
  prepare_directory(folder);
  ordered_json document = {{"schema", kSchema},
                           {"model", trace.model},
                           {"model_digest", trace.model_digest},
                           {"model_layers", trace.model_layers},
                           {"windows", ordered_json::array()}};
  for (size_t i = 0; i < trace.windows.size(); ++i) {
    const TraceWindow& window = trace.windows[i];
    ordered_json entry = {{"text", window.text},
                          {"text_digest", window.text_digest},
                          {"first_token", window.first_token},
                          {"layers", ordered_json::array()}};
    for (const TracedLayer& layer : window.layers) {
      const std::string file = file_name(i, layer.layer);
      const std::string path = (folder / file).string();
      write_layer_tensors(path, layer.tensors);
      entry["layers"].push_back({{"layer", layer.layer}, {"file", file}, {"digest", digest_of_file(path)}});
    }
    document["windows"].push_back(std::move(entry));
  }
  OutputFile((folder / kIndex).string(), {}).write(document.dump(1) + "\n");
}

std::string shipped_trace() { return find_program_data({"host/models/smollm2_trace", "share/sluice/traces/smollm2"}); }

}  // namespace sluice
