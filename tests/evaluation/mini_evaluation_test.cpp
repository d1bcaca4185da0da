// The whole cascade on the model that ships with Sluice.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <new>
#include <set>

#include "agents/evaluation/cascade.h"
#include "agents/evaluation/documents.h"
#include "agents/evaluation/engine_runner.h"
#include "agents/evaluation/load_source.h"
#include "agents/evaluation/prefilled.h"
#include "agents/evaluation/single_head.h"
#include "agents/evaluation/speed.h"
#include "agents/evaluation/terminal_progress.h"
#include "agents/evaluation/trace_options.h"
#include "host/transformer/model.h"
#include "tests/support/sanitized.h"
#include "tests/support/temporary_directory.h"
#include "tests/tasks/fixtures.h"

namespace sluice::test {
namespace {

constexpr const char* kMini = SLUICE_SOURCE_DIR "/host/models/mini";

class MiniEvaluation : public ::testing::Test {
 protected:
  Report evaluate(Suite suite, const std::vector<std::string>& flows, const std::string& seed) {
    TextReader texts;
    prepare_suite(suite, context_, texts);
    std::vector<Contestant> contestants;
    for (const std::string& flow : flows) contestants.push_back({flow, read_flow(flow)});
    EngineRunner runner(*device_, *model_, *tokenizer_);
    TerminalProgress progress;
    return run_cascade(suite, contestants, runner, context_, Seed::parse(seed), progress);
  }

  std::unique_ptr<Device> device_ = create_cpu_device();
  std::unique_ptr<Model> model_ = load_model(kMini, *device_);
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(kMini);
  const TaskContext context_{*tokenizer_, &mini_vocabulary(), model_->config().max_positions};
};

Suite retrieval_suite() {
  Suite suite = parse_suite(R"([{"task": "needle_multiquery", "tokens": 1024, "samples": 16, "questions": 2, "threshold": 0.5},
                                {"task": "variable_tracking", "tokens": 1024, "samples": 8, "threshold": 0}])",
                            "retrieval");
  suite.speed_batch = 2;
  suite.speed_pairs = 3;
  return suite;
}

TEST_F(MiniEvaluation, TellsGoodFlowsFromTheControl) {
  const Report report = evaluate(retrieval_suite(), {"full", "quest", "random"}, "mini");
  ASSERT_EQ(report.flows.size(), 3U);
  EXPECT_GE(report.dense[0].accuracy, 0.95);
  const FlowReport& full = report.flows[0];
  EXPECT_EQ(full.status, FlowStatus::kPassed) << full.message;
  EXPECT_EQ(full.tasks[0].lost + full.tasks[0].gained, 0) << "full attention is dense attention";
  const FlowReport& quest = report.flows[1];
  EXPECT_EQ(quest.status, FlowStatus::kPassed) << quest.message;
  EXPECT_GE(quest.tasks[0].accuracy, 0.6);
  const FlowReport& random = report.flows[2];
  EXPECT_EQ(random.status, FlowStatus::kBelowThreshold) << random.message;
  EXPECT_LE(random.tasks[0].accuracy, 0.2);
  EXPECT_LT(random.tasks[0].p_value, 0.01);
}

TEST_F(MiniEvaluation, ReportsSpeedPagesAndMass) {
  // A busy machine may time a flow that it reports as an error of measurement.
  const auto has_speed = [](const FlowReport& flow) { return flow.speed.has_value(); };
  Report report;
  for (int attempt = 0; attempt < 3 && (attempt == 0 || !std::all_of(report.flows.begin(), report.flows.end(), has_speed));
       ++attempt) {
    report = evaluate(retrieval_suite(), {"full", "quest"}, "mini");
  }
  for (const FlowReport& flow : report.flows) {
    ASSERT_TRUE(flow.speed.has_value()) << flow.message;
    EXPECT_GT(flow.speed->speedup.ratio, 0);
    EXPECT_LE(flow.speed->speedup.low, flow.speed->speedup.ratio);
    EXPECT_GE(flow.speed->speedup.high, flow.speed->speedup.ratio);
    ASSERT_EQ(flow.speed->mass.size(), 8U);
    EXPECT_EQ(flow.speed->conditions.wanted_cores, device_->info().threads);
    EXPECT_EQ(flow.speed->conditions.load.has_value(), LinuxLoad().read().has_value());
  }
  EXPECT_EQ(report.flows[0].speed->pages_read, 1);
  for (const double mass : report.flows[0].speed->mass) EXPECT_NEAR(mass, 1, 1e-5);
  EXPECT_LT(report.flows[1].speed->pages_read, 0.5);
  for (const double mass : report.flows[1].speed->mass) {
    EXPECT_GT(mass, 0);
    EXPECT_LE(mass, 1 + 1e-5);
  }
}

TEST_F(MiniEvaluation, SameSeedGivesTheSameScores) {
  Suite suite = parse_suite(R"([{"task": "salad", "tokens": 512, "samples": 16, "threshold": 0}])", "salad");
  if (kLooksForRaces) suite.stages[0].tasks[0].samples = 4;
  const auto shares_of = [&](const std::string& seed) {
    std::vector<double> shares;
    for (const FlowReport& flow : evaluate(suite, {"block_topk", "h2o"}, seed).flows) shares.push_back(flow.tasks.at(0).accuracy);
    return shares;
  };
  const std::vector<double> first = shares_of("again");
  EXPECT_EQ(first, shares_of("again"));
  EXPECT_NE(first, shares_of("other")) << "other questions, other answers";
}

TEST_F(MiniEvaluation, GenerationsOfAProblemAreSampledApart) {
  const std::string path = ::testing::TempDir() + "/problems.jsonl";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("{\"problem\": \"each acorn album almond antler :\", \"answer\": \"1\"}\n", file);
  std::fclose(file);
  Suite suite = parse_suite("[{\"task\": \"jsonl:" + path + "\", \"generations\": 4, \"k\": 2, \"max_tokens\": 8}]", "problems");
  TextReader reader;
  prepare_suite(suite, context_, reader);
  DocumentSource source(suite.stages[0].tasks[0], context_, Seed::parse("problems"));
  EngineRunner runner(*device_, *model_, *tokenizer_);
  std::set<std::string> texts;
  for (const Generation& generation : runner.decode(*runner.prefill({source.next()}), nullptr)) texts.insert(generation.text);
  EXPECT_GT(texts.size(), 1U);
  const Report report = evaluate(suite, {}, "problems");
  ASSERT_EQ(report.dense.size(), 1U);
  EXPECT_EQ(report.dense[0].samples, 4);
  EXPECT_EQ(report.dense[0].generations, 4);
  EXPECT_EQ(report.dense[0].accuracy, 0) << "the mini model boxes nothing";
}

Job job_of(const std::string& prompt, int max_tokens) {
  Job job;
  job.sample.prompt = prompt;
  job.sample.max_tokens = max_tokens;
  return job;
}

// What does not fit the memory of a batch waits in the engine, and gets the same answers.
TEST_F(MiniEvaluation, MorePromptsThanABatchAreAllAnswered) {
  EngineRunner runner(*device_, *model_, *tokenizer_);
  const std::vector<std::string> keys = {"acorn", "river", "stone", "apple"};
  JobDocument many;
  for (int i = 0; i < 40; ++i) many.push_back(job_of("<bos> key " + keys[i % 4] + " = 01 ; ask " + keys[i % 4] + " =", 4));
  const std::vector<Generation> together = runner.decode(*runner.prefill({many}), nullptr);
  ASSERT_EQ(together.size(), many.size());
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<Generation> alone = runner.decode(*runner.prefill({{many[i]}}), nullptr);
    for (size_t j = i; j < many.size(); j += 4) EXPECT_EQ(together[j].text, alone[0].text);
  }
}

// As `mass` counts them: a flow that is sparse in one layer of eight saves next to nothing, however few pages it reads there.
TEST_F(MiniEvaluation, PagesOfFullLayersAreRead) {
  EngineRunner runner(*device_, *model_, *tokenizer_);
  const auto batch = runner.prefill({{job_of("<bos> key acorn = 01 02 ; ask acorn =", 12)}});
  const std::vector<Generation> dense = {{"", true, {7, 8}}};
  const FlowScript script = {"one.lua", R"(
      local flow = sluice.flow { name = "one", page = 8, layers = { [3] = "sparse", rest = "full" } }
      function flow.index(q, c) return sluice.window { last = 1 } end
      return flow)"};
  const TaskSpeed speed = runner.measure(*batch, runner.prepare(script).plan, {dense, nullptr}, {1, 2, 2});
  EXPECT_DOUBLE_EQ(speed.pages_read, (7 + 0.5) / 8) << "one of two pages in one layer";
  EXPECT_DOUBLE_EQ(speed.limit, 1 / speed.pages_read);
}

// As many as dense attention takes would let a flow be fast for so long, and right in what comes later and is scored, too.
TEST_F(MiniEvaluation, AnAnswerOfUnknownLengthIsTimedAsFarAsItWasScored) {
  EngineRunner runner(*device_, *model_, *tokenizer_);
  const JobDocument document = {job_of("<bos> key acorn = 01 02 ; ask acorn =", 12)};
  const auto batch = runner.prefill({document});
  const std::vector<Generation> dense = {{"", true, {7, 8}}};
  const std::vector<Generation> flow = {{"", true, {7, 8, 9, 10, 11}}};
  const Candidate candidate = runner.prepare(read_flow("quest"));
  const auto tokens = [&](const Answers& answers) {
    const TaskSpeed speed = runner.measure(*batch, candidate.plan, answers, {1, 3, 3});
    return speed.generated / static_cast<double>(speed.seconds.slow.size());
  };
  EXPECT_EQ(tokens({dense, &flow}), 5);
  EXPECT_EQ(tokens({dense, nullptr}), 2) << "a flow that was not asked";
}

TEST_F(MiniEvaluation, TheMemoryOfABatchHasABound) {
  const ModelConfig& config = model_->config();
  PrefilledPrompt prompt;
  prompt.tokens.resize(100);
  prompt.max_tokens = 8000;
  const EngineOptions few = engine_options({prompt, prompt}, config, nullptr);
  const EngineOptions many = engine_options(std::vector<PrefilledPrompt>(1000, prompt), config, nullptr);
  const size_t page_bytes = size_t{2} * config.layers * config.kv_heads * config.head_dim * 2 * many.page;
  EXPECT_EQ(few.max_batch, 2);
  EXPECT_GE(few.pages * few.page, 2 * 8100) << "both at once";
  EXPECT_LE(many.max_batch, 64);
  EXPECT_LE(many.pages * page_bytes, BatchRoom().pool_bytes);
  const EngineOptions least = engine_options({prompt, prompt}, config, nullptr, {.pool_bytes = 1});
  EXPECT_GE(least.pages * least.page, 8100) << "the longest prompt, whatever it takes";
  EXPECT_LT(least.pages * least.page, 2 * 8100);
  EXPECT_EQ(prompts_together(config, 1 << 30), 1);
}

TEST_F(MiniEvaluation, PromptsOfADocumentShareAllThatTheyHaveInCommon) {
  const std::string start = "<bos> key acorn = 01 ; key river = 02 ; ask";
  const size_t common = tokenizer_->encode(start).size();
  const auto shared = [&](const std::vector<std::string>& prompts) {
    JobDocument document;
    for (const std::string& prompt : prompts) document.push_back(job_of(prompt, 1));
    KnownBeginnings known;
    const auto batch = prefill_documents({document}, *device_, *model_, *tokenizer_, known);
    for (const PrefilledPrompt& prompt : batch->prompts) EXPECT_EQ(prompt.snapshot, batch->prompts[0].snapshot);
    return batch->prompts[0].snapshot ? batch->prompts[0].snapshot->tokens.size() : 0;
  };
  EXPECT_EQ(shared({start + " acorn =", start + " river =", start + " acorn ;"}), common);
  EXPECT_EQ(shared({start, start + " river ="}), common - 1) << "the last token of a prompt is a decode step";
  EXPECT_EQ(shared({start, start}), common - 1);
  EXPECT_EQ(shared({"<bos> key", "acorn river"}), 0U);
}

/// A window as `text` has it; its tokens are chance.
JobDocument text_document(int window, int salt) {
  TextTokens text;
  for (int i = 0; i < 4096; ++i) text.tokens.push_back(4 + (i * i + salt * i) % 900);
  Rng rng(Seed::parse("text"), "window");
  return {{text_sample(TextTask::kText, text, window, 0, rng), {}}};
}

TEST_F(MiniEvaluation, LongerWindowsGoOnWhereShorterOnesEnd) {
  const auto prefill = [&](const std::vector<JobDocument>& documents, KnownBeginnings& known) {
    return prefill_documents(documents, *device_, *model_, *tokenizer_, known);
  };
  const auto numbers_of = [&](const KvSnapshot& snapshot) {
    std::vector<std::byte> numbers(snapshot.bytes());
    device_->read(numbers.data(), snapshot.memory->data(), numbers.size());
    return numbers;
  };
  KnownBeginnings known;
  prefill({text_document(512, 1), text_document(512, 2)}, known);
  known.forget_last();  // as by other tasks between
  const auto begun = known.find(text_document(1024, 2)[0].sample.tokens);
  ASSERT_NE(begun, nullptr);
  EXPECT_EQ(begun->tokens.size(), 512U - kScoredOfText - 1);
  EXPECT_EQ(known.find(text_document(1024, 3)[0].sample.tokens), nullptr) << "another text";
  EXPECT_EQ(known.find(text_document(4096, 2)[0].sample.tokens), nullptr) << "hardly worth it";
  const auto batch = prefill({text_document(1024, 2)}, known);
  KnownBeginnings none;
  const auto anew = prefill({text_document(1024, 2)}, none);
  const KvSnapshot& a = *batch->prompts[0].snapshot;
  const KvSnapshot& b = *anew->prompts[0].snapshot;
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(numbers_of(a), numbers_of(b)) << "bit for bit";
}

TEST_F(MiniEvaluation, ADeviceCanBeUsedAfterAnErrorWithinAPass) {
  const Plan plan = compile(read_flow("quest").trace(trace_options(model_->config()))).plan;
  const Geometry& geometry = plan.graph.geometry;
  const std::vector<float> token(geometry.head_dim, 1);
  const std::vector<float> query(static_cast<size_t>(geometry.group) * geometry.head_dim, 1);
  SingleHead broken(*device_, plan, 8, 1);
  EXPECT_THROW(broken.decode(token, token, token), InternalError) << "a query of one head";
  SingleHead whole(*device_, plan, 8, 1);
  EXPECT_NO_THROW(whole.decode(token, token, query));
}

/// A model whose passes fail.
class FailingModel : public Model {
 public:
  explicit FailingModel(const Model& whole) : whole_(whole) {}
  const ModelConfig& config() const override { return whole_.config(); }
  size_t weight_bytes() const override { return whole_.weight_bytes(); }
  size_t step_weight_bytes() const override { return whole_.step_weight_bytes(); }
  std::unique_ptr<Workspace> create_workspace(Device& device, int rows, int logit_rows) const override {
    return whole_.create_workspace(device, rows, logit_rows);
  }
  Matrix forward(Device&, Workspace&, const ForwardPass&) const override { throw std::bad_alloc(); }
  Matrix run_layers(Device&, Workspace&, const LayerPass&) const override { throw std::bad_alloc(); }

 private:
  const Model& whole_;
};

TEST_F(MiniEvaluation, AnEngineThatFailsLeavesTheDeviceToOthers) {
  const FailingModel failing(*model_);
  EngineRunner broken(*device_, failing, *tokenizer_);
  EngineRunner whole(*device_, *model_, *tokenizer_);
  const std::vector<JobDocument> documents = {
      {job_of("<bos> key acorn = 01 ; ask acorn =", 4), job_of("<bos> key acorn = 01 ; ask river =", 4)}};
  EXPECT_THROW(broken.prefill(documents), std::bad_alloc);
  EXPECT_EQ(whole.decode(*whole.prefill(documents), nullptr).size(), 2U);
}

// Dense while a question is answered, and sparse in later steps, at the lengths of the suite.
TEST_F(MiniEvaluation, TimesWhatItScores) {
  const sluice::testing::TemporaryDirectory directory;
  const std::string path = directory.file("gamed.lua");
  std::ofstream(path) << R"(
    local flow = sluice.flow { name = "gamed", page = 8 }
    function flow.index(q, c)
      local n = sluice.load("n", { axes = {}, init = 0 })
      sluice.save("n", n + 1)
      local pages = sluice.position():max("page")
      local timed = sluice.where_ge(pages, 60, 1, 0) * sluice.where_lt(pages, 600, 1, 0) * sluice.where_ge(n, 6, 1, 0)
      return sluice.threshold(sluice.fill(0.5, { "page" }) - timed, { above = 0, first = 1, last = 2 })
    end
    return flow)";
  // Answers of five words.
  const Suite suite =
      parse_suite(R"([{"task": "needle_multivalue", "tokens": 1024, "samples": 16, "questions": 2}])", "short answers");
  const Report report = evaluate(suite, {path}, "gamed");
  const FlowReport& flow = report.flows.at(0);
  ASSERT_TRUE(flow.speed.has_value()) << flow.message;
  EXPECT_EQ(flow.speed->pages_read, 1);
  EXPECT_LT(flow.speed->limit, 1.01);
  EXPECT_EQ(flow.tasks[0].lost, 0);
}

}  // namespace
}  // namespace sluice::test
