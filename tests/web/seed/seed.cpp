// web_seed FOLDER [COUNT [finals]]: fills a data folder with submissions for the tests of the page, a few told by hand and COUNT
// variants of one flow, with finals on another model if that is asked for, and prints {"token", "submissions"}. Names and scripts
// that would be dangerous as HTML are among them.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "store/folder/data_folder.h"
#include "store/store.h"

namespace sluice::test {
namespace {

using nlohmann::json;
using store::Metric;
using store::Status;
using store::SubmissionId;

constexpr store::Time kSecond = 1'000'000;
constexpr store::Time kLease = 3600 * kSecond;
constexpr store::Time kBegin = 1'780'000'000 * kSecond;

/// Quest with a budget of its own, so that no two scripts are the same.
std::string quest(int budget, const std::string& comment = "pages by their bounding box") {
  return fmt::format(R"(-- {}
local flow = sluice.flow {{ name = "quest", page = 8 }}

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, {{ k = {}, first = 1, last = 2 }})
end

return flow
)",
                     comment, budget);
}

struct Measured {
  double accuracy = 0;
  double speedup = 0;
};

Metric metric(const std::string& name, double value, double margin, const std::string& unit = {}) {
  Metric result;
  result.name = name;
  result.value = value;
  result.unit = unit;
  if (margin > 0) {
    result.low = value - margin;
    result.high = unit.empty() ? std::min(1.0, value + margin) : value + margin;
  }
  return result;
}

json task_document(const std::string& name, double accuracy) {
  return {{"name", name},          {"tokens", 4096},
          {"samples", 100},        {"accuracy", accuracy},
          {"low", accuracy - .06}, {"high", std::min(1.0, accuracy + .04)},
          {"dense_accuracy", .98}, {"dense_low", .93},
          {"dense_high", .995},    {"lost", 4},
          {"gained", 1},           {"p_value", .37}};
}

store::Artifact text_artifact(const std::string& name, const std::string& media_type, const std::string& bytes) {
  return {.name = name, .media_type = media_type, .bytes = bytes, .size = 0};
}

/// What a hundred questions about twenty documents gave.
json credits_document(double accuracy) {
  json flow = json::array();
  json dense = json::array();
  for (int document = 0; document < 20; ++document) {
    flow.push_back(json::array());
    dense.push_back({1, 1, 1, 1, 1});
    for (int i = 0; i < 5; ++i) flow.back().push_back((document * 5 + i) * 37 % 100 < std::lround(100 * accuracy) ? 1 : 0);
  }
  const json task = {{"name", "needle_multikey"}, {"stage", "screen"},          {"tokens", 4096},
                     {"accuracy", accuracy},      {"credits", std::move(flow)}, {"dense_credits", std::move(dense)}};
  return {{"schema", "sluice.credits/1"}, {"tasks", {task}}};
}

json graph_document() {
  const auto node = [](int id, const char* op, const char* stage, json inputs, const std::string& operation, const char* shape) {
    return json{{"id", id},
                {"op", op},
                {"stage", stage},
                {"type", "f32"},
                {"shape", shape},
                {"inputs", std::move(inputs)},
                {"text", fmt::format("%{} = {:<20} {}", id, operation, shape)}};
  };
  const json none = json::array();
  return {
      {"nodes",
       {node(0, "key", "cache", none, "key", "[token 8, dim 64]"), node(1, "max", "cache", {0}, "max %0 over token", "[dim 64]"),
        node(2, "query", "index", none, "query", "[head 4, dim 64]"),
        node(3, "field", "index", none, "field hi", "[page B, dim 64]"),
        node(4, "mul", "index", {2, 3}, "mul %2 %3", "[page B, dim 64]"), node(5, "topk", "index", {4}, "topk %4 k=16", "")}},
      {"fields", {{{"name", "hi"}, {"type", "bf16"}, {"shape", "[dim 64]"}, {"node", 1}}}}};
}

store::StageResult stage(const std::string& name, double seconds, const json& details = json::object()) {
  store::StageResult result;
  result.stage = name;
  result.seconds = seconds;
  result.details = details.dump();
  return result;
}

/// What a worker would have found of a flow that was measured.
store::Verdict measured(Status status, const Measured& of) {
  store::Verdict verdict;
  verdict.status = status;
  const json tasks = {task_document("needle_multikey", of.accuracy), task_document("tracking", of.accuracy - .1)};
  verdict.stages = {stage("verify", .02), stage("numerical", .4, {{"cases", 24}}), stage("screen", 12.5, {{"tasks", tasks}})};
  if (status == Status::kBelowThreshold) {
    verdict.message = "41% of dense accuracy, 60% is wanted";
    verdict.stages.back().status = store::StageStatus::kFailed;
    verdict.stages.back().message = verdict.message;
  }
  verdict.metrics = {metric("score", of.accuracy, .03),  metric("accuracy", of.accuracy, .04),
                     metric("dense_accuracy", .97, .02), metric("speedup", of.speedup, .05, "x dense"),
                     metric("pages_read", .125, 0),      metric("mass", .54, 0)};
  for (const char* name : {"accuracy", "dense_accuracy"}) {
    Metric of_task = metric(name, name == std::string("accuracy") ? of.accuracy : .98, .05);
    of_task.task = "needle_multikey";
    of_task.length = 4096;
    verdict.metrics.push_back(of_task);
  }
  const json mass = {{"mass", {.9, .72, .66, .5, .61, .44, .58, .7}}, {"ratio", of.speedup}, {"pages_read", .125}};
  verdict.stages.push_back(stage("speed", 9, mass));
  verdict.artifacts = {text_artifact("report.json", "application/json", R"({"schema": "sluice.eval/1"})"),
                       text_artifact("graph.json", "application/json", graph_document().dump()),
                       text_artifact("credits.json", "application/json", credits_document(of.accuracy).dump()),
                       text_artifact("plan.txt", "text/plain", "plan\n  refresh: %0 %1\n  1 pages: %3 -> %3 (4 B a page)\n")};
  return verdict;
}

store::Verdict stopped(Status status, const std::string& name, const std::string& message, const std::string& hint = {}) {
  store::Verdict verdict;
  verdict.status = status;
  verdict.message = message;
  verdict.hint = hint;
  verdict.stages = {stage(name, .1)};
  verdict.stages.back().status = store::StageStatus::kFailed;
  verdict.stages.back().message = message;
  return verdict;
}

class Seeder {
 public:
  explicit Seeder(const std::string& folder)
      : data_(folder), store_(data_.open_store({.clock = [time = time_] { return *time; }})) {
    token_ = store_.create_agent("ada", store::Role::kAdmin, 1000000).token;
    store_.create_agent("grace", store::Role::kAgent, 1000000);
    store_.create_agent("evolver-17", store::Role::kAgent, 1000000);
  }

  SubmissionId submit(const std::string& agent, const std::string& name, const std::string& script,
                      std::vector<SubmissionId> parents = {}, const std::string& notes = {}) {
    *time_ += 60 * kSecond;
    store::Draft draft;
    draft.name = name;
    draft.script = script;
    draft.notes = notes;
    draft.parents = std::move(parents);
    draft.settings = json{{"model", "mini"}, {"device", "cpu"}, {"suite", name.size() % 2 == 0 ? "quick" : "full"}}.dump();
    ++count_;
    return store_.submit(agent, draft).id;
  }

  /// Judges the only submission that waits.
  void judge(const store::Verdict& verdict) {
    const auto lease = store_.claim("seed", kLease);
    *time_ += 30 * kSecond;
    store_.complete(lease.value(), verdict);
  }

  /// An attempt that comes to nothing, as when a worker crashes.
  void crash(const std::string& reason) {
    const auto lease = store_.claim("seed", kLease);
    *time_ += 5 * kSecond;
    store_.fail(lease.value(), reason);
  }

  /// Judges the confirmation of one that passed, while nothing else waits.
  void confirm(SubmissionId id, const store::Verdict& verdict) {
    store_.ask_confirmation("ada", id);
    judge(verdict);
  }

  /// Has what passed judged on another model: by its name what is found there.
  void judge_finals(const std::map<std::string, store::Verdict>& verdicts) {
    const store::Equipment mini{.model = "mini", .model_digest = {}, .device = "cpu"};
    store_.ask_finals({mini, json{{"model", "smollm2"}, {"device", "cpu"}, {"suite", "real"}}.dump(), "score"});
    while (const auto lease = store_.claim("seed", kLease)) {
      *time_ += 30 * kSecond;
      const auto found = verdicts.find(store_.get(lease->submission)->name);
      store_.complete(
          *lease, found == verdicts.end() ? measured(Status::kBelowThreshold, {.accuracy = .2, .speedup = 2}) : found->second);
    }
  }

  void cancel(SubmissionId id) { store_.cancel(id); }

  json summary() const { return {{"token", token_}, {"submissions", count_}}; }

 private:
  std::shared_ptr<store::Time> time_ = std::make_shared<store::Time>(kBegin);
  store::DataFolder data_;
  store::Store store_;
  std::string token_;
  int count_ = 0;
};

/// Numbers 1 to 10, which the tests know by heart.
void add_known(Seeder& seeder) {
  const SubmissionId first = seeder.submit("ada", "quest", quest(16), {}, "The published method.");
  seeder.judge(measured(Status::kPassed, {.accuracy = .95, .speedup = 1.4}));
  const SubmissionId hostile =
      seeder.submit("grace", "<img src=x onerror=alert(1)>", quest(12, "</script><script>alert(2)</script>"), {first},
                    "<b onmouseover=alert(3)>notes</b> {a|b}");
  seeder.judge(measured(Status::kPassed, {.accuracy = .93, .speedup = 1.9}));
  seeder.submit("grace", "no budget", quest(0), {hostile});
  seeder.judge(stopped(Status::kRejectedStatic, "verify", "input 11:10: topk: the budget is <i>empty</i>",
                       "give k or ratio, for example {ratio = 1/8}"));
  const SubmissionId weak = seeder.submit("evolver-17", "tiny budget", quest(2), {first});
  seeder.judge(measured(Status::kBelowThreshold, {.accuracy = .41, .speedup = 2.8}));
  seeder.submit("evolver-17", "both parents", quest(14), {hostile, weak});
  seeder.judge(measured(Status::kPassed, {.accuracy = .97, .speedup = 1.2}));
  std::string long_name;
  while (long_name.size() < 190) long_name += "averylongnamewithoutspaces";
  seeder.submit("ada", long_name.substr(0, 190), quest(6), {first});
  seeder.judge(measured(Status::kPassed, {.accuracy = .8, .speedup = 2.6}));
  seeder.submit("ada", "wrong numbers", quest(20));
  seeder.judge(stopped(Status::kIncorrectNumerical, "numerical", "output differs from the reference by 0.3"));
  seeder.submit("grace", "too slow", quest(21));
  seeder.judge(stopped(Status::kTimeout, "screen", "the evaluation took more than 60 s and was ended in screen"));
  seeder.submit("evolver-17", "crashing", quest(22));
  for (int i = 0; i < 3; ++i) seeder.crash("the worker was killed by signal 11");
  seeder.cancel(seeder.submit("ada", "cancelled one", quest(23)));
  seeder.confirm(hostile, measured(Status::kPassed, {.accuracy = .88, .speedup = 1.85}));
}

/// Of those that passed, in an order that the first model does not see, and one that does not pass.
void add_finals(Seeder& seeder) {
  seeder.judge_finals({{"both parents", measured(Status::kPassed, {.accuracy = .52, .speedup = 1.1})},
                       {"quest", measured(Status::kPassed, {.accuracy = .74, .speedup = 1.3})},
                       {"<img src=x onerror=alert(1)>", measured(Status::kPassed, {.accuracy = .81, .speedup = 1.7})}});
}

void seed(const std::string& folder, int count, bool has_finals) {
  Seeder seeder(folder);
  add_known(seeder);
  for (int i = 0; i < count; ++i) {
    seeder.submit(i % 3 == 0 ? "grace" : "ada", fmt::format("variant {}", i), quest(100 + i));
    // Never on the front: what is known by heart stands above.
    seeder.judge(measured(Status::kPassed, {.accuracy = .5 + .2 * std::sin(i * .37), .speedup = .8 + .3 * std::cos(i * .61)}));
  }
  if (has_finals) add_finals(seeder);
  fmt::print("{}\n", seeder.summary().dump());
}

}  // namespace
}  // namespace sluice::test

int main(int count, char** arguments) {
  try {
    const std::vector<std::string> words(arguments + 1, arguments + count);
    if (words.empty()) throw std::runtime_error("usage: web_seed FOLDER [COUNT [finals]]");
    sluice::test::seed(words[0], words.size() > 1 ? std::stoi(words[1]) : 0, words.size() > 2 && words[2] == "finals");
  } catch (const std::exception& error) {
    fmt::print(stderr, "web_seed: {}\n", error.what());
    return 1;
  }
  return 0;
}
