#include <fmt/format.h>

#include <array>

#include "scripting/base/suggest.h"
#include "scripting/graph/verify.h"
#include "scripting/lua/functions.h"

namespace sluice {

namespace {

constexpr const char* kUsage = "for example sluice.flow{name = \"quest\", page = 16}";

DataType type_from(const Arguments& arguments, const std::string& what, const std::string& name) {
  const std::optional<DataType> type = data_type_from_name(name);
  if (!type) {
    arguments.fail(fmt::format("{} = \"{:.40}\" is not a type", what, name), did_you_mean(name, {"f32", "bf16", "e4m3", "e5m2"}));
  }
  return *type;
}

int read_page(const Arguments& arguments, Options& options) {
  const int page = options.integer("page", 16);
  for (const int allowed : {8, 16, 32, 64, 128}) {
    if (page == allowed) return page;
  }
  arguments.fail(fmt::format("page = {}", page), "a page holds 8, 16, 32, 64 or 128 tokens");
}

std::vector<std::pair<std::string, DataType>> read_field_types(const Arguments& arguments, Options& options) {
  std::vector<std::pair<std::string, DataType>> types;
  const Datum* fields = options.find("fields");
  if (!fields) return types;
  if (fields->kind != Datum::Kind::kTable)
    arguments.fail("fields must be a table of types", "for example fields = {hi = \"f32\"}");
  for (const auto& [key, value] : fields->entries) {
    if (key.kind != Datum::Kind::kText || value.kind != Datum::Kind::kText) {
      arguments.fail("fields must be a table of types", "for example fields = {hi = \"f32\"}");
    }
    types.emplace_back(key.text, type_from(arguments, "fields." + key.text, value.text));
  }
  return types;
}

/// "full", "sparse" or the name of a variant, which nobody knows yet.
std::string layer_name(const Arguments& arguments, const Datum& mode) {
  if (mode.kind == Datum::Kind::kText) return mode.text;
  arguments.fail(fmt::format("layers: got {}", describe(mode, arguments.builder().graph())), "a layer is \"full\" or \"sparse\"");
}

GraphBuilder::LayerNames read_layers(const Arguments& arguments, Options& options) {
  GraphBuilder::LayerNames names;
  const Datum* layers = options.find("layers");
  if (!layers) return names;
  if (layers->kind != Datum::Kind::kTable) {
    arguments.fail("layers must be a table", "for example layers = {[0] = \"full\", rest = \"sparse\"}");
  }
  for (const auto& [key, value] : layers->entries) {
    if (key.kind == Datum::Kind::kText && key.text == "rest") {
      names.rest = layer_name(arguments, value);
      continue;
    }
    const std::optional<int> layer = key.kind == Datum::Kind::kNumber ? whole_number(key.number) : std::nullopt;
    if (!layer) {
      arguments.fail(fmt::format("layers: {} is no layer", describe(key, arguments.builder().graph())),
                     "layers are numbered from 0, from the end with -1, and \"rest\" is all others");
    }
    names.layers[*layer] = layer_name(arguments, value);
  }
  return names;
}

/// Whether prompts are computed densely, whatever flow.pattern says.
bool read_dense_prefill(const Arguments& arguments, Options& options) {
  const std::string prefill = options.text("prefill", "pattern");
  if (prefill == "dense") return true;
  if (prefill == "pattern") return false;
  arguments.fail(fmt::format("prefill = \"{:.40}\"", prefill),
                 "prompts are computed under the \"pattern\", or \"dense\": then only decode steps have it");
}

/// Rows of a prompt whose masses are summed.
int read_mass_rows(const Arguments& arguments, Options& options) {
  const Datum* rows = options.find("prompt_mass");
  if (rows == nullptr) return kToEnd;
  if (rows->kind == Datum::Kind::kText && rows->text == "all") return kToEnd;
  if (rows->kind == Datum::Kind::kText && rows->text == "none") return 0;
  const std::optional<int> count = rows->kind == Datum::Kind::kNumber ? whole_number(rows->number) : std::nullopt;
  if (count && *count >= 1 && *count <= GraphLimits::kMassRows) return *count;
  arguments.fail(fmt::format("prompt_mass: got {}", describe(*rows, arguments.builder().graph())),
                 "it is \"all\" rows of a prompt, \"none\", or how many of the last, from 1 on");
}

/// By which layer flow.recompute chooses, and by how many rows.
std::optional<GraphBuilder::RecomputeOptions> read_recompute(const Arguments& arguments, Options& options) {
  constexpr const char* kForm = "for example recompute = {layer = 1, rows = 64}";
  const Datum* given = options.find("recompute");
  if (given == nullptr) return {};
  if (given->kind != Datum::Kind::kTable)
    arguments.fail(fmt::format("recompute: got {}", describe(*given, arguments.builder().graph())), kForm);
  Options own(arguments, *given, kForm);
  GraphBuilder::RecomputeOptions read;
  read.layer = own.integer("layer", read.layer);
  if (read.layer < 0 || read.layer >= GraphLimits::kLayers)
    arguments.fail(fmt::format("recompute: there is no layer {}", read.layer), "layers are numbered from 0");
  if (own.find("rows") != nullptr) read.rows = own.integer("rows", 1);
  if (read.rows < 1 || (read.rows != kToEnd && read.rows > GraphLimits::kMassRows))
    arguments.fail(fmt::format("recompute: {} rows", read.rows), "how many of the last rows look, from 1 on; without it all");
  own.finish();
  return read;
}

Value flow(const Arguments& arguments, const Function&) {
  GraphBuilder& builder = arguments.builder();
  if (builder.stage()) arguments.fail("belongs at the top of the file, not inside a stage");
  arguments.expect_at_most(1, kUsage);
  Options options(arguments, arguments.at(0), kUsage);
  std::string name = options.text("name", "");
  const int page = read_page(arguments, options);
  const DataType kv = type_from(arguments, "kv", options.text("kv", "bf16"));
  auto types = read_field_types(arguments, options);
  GraphBuilder::LayerNames layers = read_layers(arguments, options);
  const bool dense_prefill = read_dense_prefill(arguments, options);
  const int mass_rows = read_mass_rows(arguments, options);
  const auto recompute = read_recompute(arguments, options);
  options.finish();
  if (name.empty()) arguments.fail("the flow wants a name", kUsage);
  builder.declare(std::move(name), page, kv, std::move(layers), std::move(types));
  if (dense_prefill) builder.prefill_densely();
  builder.sum_masses_over(mass_rows);
  builder.set_recompute_options(recompute);
  return {Value::Kind::kHandle, {Handle::Kind::kFlow, Stage::kCache, 0}, 0};
}

constexpr std::array kFunctions = {Function{"flow", flow, Op::kConstant, Compare::kEq, false}};

}  // namespace

std::span<const Function> flow_functions() { return kFunctions; }

}  // namespace sluice
