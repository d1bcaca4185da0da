#include "agents/orchestrator/worker_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "scripting/base/error.h"
#include "scripting/base/json_object.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int64_t kMostFactor = 1000;

/// Scripts may hold any bytes; what is no UTF-8 is refused by the tracer, not by the pipe.
std::string line_of(const json& document) { return document.dump(-1, ' ', true, json::error_handler_t::replace); }

json document_of(const WorkerReady& ready) {
  return {{"type", "ready"}, {"device", ready.device}, {"description", ready.description}, {"model", ready.model}};
}
json document_of(const WorkerProgress& progress) {
  return {{"type", "progress"}, {"stage", progress.stage}, {"task", progress.task}, {"share", progress.share}};
}
json document_of(const WorkerReport& report) { return {{"type", "report"}, {"report", report.report}}; }
json document_of(const WorkerFailure& failure) {
  return {{"type", "failure"}, {"message", failure.message}, {"hint", failure.hint}, {"lack", failure.is_lack}};
}

}  // namespace

Suite WorkerJob::load() const {
  if (suite_text.empty() && !is_built_in(suite))
    throw InputError(fmt::format("there is no suite \"{}\"", suite), "suites are verify, quick, standard, full and real");
  Suite loaded = suite_text.empty() ? load_suite(suite) : parse_suite(suite_text, suite);
  if (factor > 1) multiply_samples(loaded, factor);
  return loaded;
}

std::string to_line(const WorkerJob& job) {
  json document = {{"name", job.name},       {"script", job.script},
                   {"suite", job.suite},     {"suite_text", job.suite_text},
                   {"seed", job.seed.hex()}, {"model_digest", job.model_digest},
                   {"factor", job.factor},   {"is_seed_kept", job.is_seed_kept}};
  if (job.kinds) document["kinds"] = job.kinds->hex();
  return line_of(document);
}

std::string to_line(const WorkerMessage& message) {
  return std::visit([](const auto& each) { return line_of(document_of(each)); }, message);
}

WorkerJob parse_job(std::string_view line) {
  const json document = parse_json(line, "job");
  const JsonObject job(document, "job");
  const std::string* kinds = job.find_text("kinds");
  return {.name = job.text("name"),
          .script = job.text("script"),
          .suite = job.text("suite"),
          .suite_text = job.text("suite_text"),
          .seed = Seed::parse(job.text("seed")),
          .model_digest = job.text("model_digest"),
          .factor = static_cast<int>(job.integer("factor", 1, kMostFactor)),
          .kinds = kinds != nullptr ? std::optional(Seed::parse(*kinds)) : std::nullopt,
          .is_seed_kept = job.boolean("is_seed_kept", true)};
}

WorkerMessage parse_message(std::string_view line) {
  const json document = parse_json(line, "message of a worker");
  const JsonObject message(document, "message of a worker");
  const std::string& type = message.text("type");
  if (type == "ready") return WorkerReady{message.text("device"), message.text("description"), message.text("model")};
  if (type == "progress") return WorkerProgress{message.text("stage"), message.text("task"), message.number("share", 0, 1)};
  if (type == "report") return WorkerReport{message.text("report")};
  if (type == "failure") {
    return WorkerFailure{message.text("message"), message.text("hint"), message.boolean("lack", false)};
  }
  message.refuse("type", "ready, progress, report or failure is wanted");
}

}  // namespace sluice
