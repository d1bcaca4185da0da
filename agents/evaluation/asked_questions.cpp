#include "agents/evaluation/asked_questions.h"

#include <utility>

#include "agents/evaluation/task_scores.h"

namespace sluice {
namespace {

AskedQuestion::Said said_by(const std::string& answerer, const Sample& sample, const Generation& generation) {
  AskedQuestion::Said said{.by = answerer, .text = generation.text, .ended = generation.ended};
  const Score scored = score_of_generation(sample, generation);
  if (sample.scoring == Scoring::kLoss) {
    said.loss = scored.loss;
  } else {
    said.credit = scored.credit();
  }
  return said;
}

}  // namespace

void append_questions(std::vector<AskedQuestion>& questions, const SuiteTask& task, const std::vector<JobDocument>& documents,
                      const std::vector<Answerer>& answerers) {
  size_t number = 0;
  for (const JobDocument& document : documents) {
    for (const Job& job : document) {
      const Sample& sample = job.sample;
      AskedQuestion question{.task = task.task,
                             .tokens = task.is_problem_set() ? 0 : task.tokens,
                             .prompt = sample.prompt,
                             .prompt_tokens = sample.tokens,
                             .given = sample.given,
                             .answer = sample.answer};
      for (const Answerer& answerer : answerers) {
        question.said.push_back(said_by(answerer.name, sample, answerer.generations->at(number)));
      }
      questions.push_back(std::move(question));
      ++number;
    }
  }
}

}  // namespace sluice
