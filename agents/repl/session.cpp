#include "agents/repl/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "agents/evaluation/flow_script.h"
#include "agents/evaluation/trace_options.h"
#include "agents/traces/layer_replay.h"
#include "scripting/base/error.h"
#include "scripting/base/printable_text.h"
#include "scripting/base/suggest.h"
#include "scripting/graph/selections.h"
#include "scripting/graph/text.h"
#include "scripting/lua/functions.h"
#include "scripting/repl/chunk.h"
#include "scripting/repl/statements.h"

namespace sluice::repl {

namespace {

constexpr double kPreviewSeconds = 2;      // for the line about an assignment
constexpr const char* kFile = "the flow";  // in errors at lines that nobody typed

bool is_command(std::string_view input) {
  const size_t begin = input.find_first_not_of(" \t\r\n");
  // "::" begins a label of Lua's.
  return begin != std::string_view::npos && input[begin] == ':' && input.substr(begin, 2) != "::";
}

/// The same error at the line that was typed.
[[noreturn]] void throw_at_origin(const FlowError& error, const Script& script) {
  const auto line = static_cast<size_t>(error.where().line);
  const bool known = line >= 1 && line <= script.origins.size() && script.origins[line - 1].line > 0;
  std::string hint = error.hint();
  if (hint.empty() && error.message().find("global 'q'") != std::string::npos) {
    hint = "a function gets q and c as its arguments, as in a flow";
  }
  throw FlowError(known ? script.origins[line - 1] : SourceLocation{kFile, 0}, error.message(), hint);
}

/// "input 3:1: " for the error that Lua's parser gives.
[[noreturn]] void throw_wrong(const Entry& entry, const Chunk& chunk) {
  throw FlowError({entry.where.file, entry.where.line + std::max(chunk.line, 1) - 1}, chunk.message);
}

}  // namespace

void check_number(int number, int count, const std::string& what) {
  if (number >= 0 && number < count) return;
  throw InputError(fmt::format("there is no {} {}", what, number),
                   fmt::format("the model has {}, from 0 to {}", count, count - 1));
}

Session::Session(Device& device, const Model& model, const Tokenizer& tokenizer, SessionOptions options)
    : device_(device), model_(model), tokenizer_(tokenizer), options_(std::move(options)) {
  const ModelConfig& config = model_.config();
  check_number(options_.place.layer, config.layers, "layer");
  check_number(options_.place.head, config.kv_heads, "KV head");
  capture_ = std::make_unique<Capture>(device_, model_, tokenizer_.encode(options_.prompt), options_.kv, [this] {
    if (options_.interrupted && options_.interrupted()) throw Interrupted();
  });
}

std::string Session::status() const {
  const ModelConfig& config = model_.config();
  return fmt::format("{}, {} tokens, decode step {}; layer {} of {}, KV head {} of {}: q [head {}, dim {}]\n", options_.model,
                     capture_->tokens(), capture_->steps() - 1, options_.place.layer, config.layers, options_.place.head,
                     config.kv_heads, config.group(), config.head_dim);
}

bool Session::wants_more(std::string_view input) { return !is_command(input) && classify(input).kind == ChunkKind::kIncomplete; }

std::string Session::run(const std::string& input) {
  if (is_command(input)) return run_command(input);
  const Chunk chunk = classify(input);
  if (chunk.kind == ChunkKind::kEmpty) return {};
  const Entry entry{input, {fmt::format("input {}", ++inputs_), 1}};
  switch (chunk.kind) {
    case ChunkKind::kExpression:
      return run_expression(entry);
    case ChunkKind::kIncomplete:
      throw FlowError({entry.where.file, 0}, "the input ends in the middle of a statement");
    case ChunkKind::kWrong:
      throw_wrong(entry, chunk);
    default:
      return run_statements(entry);
  }
}

std::string Session::run_expression(const Entry& entry) {
  const Inspection seen = look(draft_.script_returning(entry));
  if (seen.kind == Inspection::Kind::kNothing) require_known(bare_name(entry.text), entry.where);
  // A call that gives nothing does something: c.credit:save(x).
  if (seen.kind == Inspection::Kind::kNothing && entry.text.find('(') != std::string::npos) return run_statements(entry);
  return show(seen, draft_, false);
}

/// Throws FlowError for a name that nothing has; Lua would take it for one that has no value.
void Session::require_known(const std::string& name, const SourceLocation& where) const {
  std::vector<std::string> names = draft_.names();
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return;
  names.emplace_back("sluice");
  const std::string meant = find_function(name) ? "sluice." + name : closest(name, names);
  throw FlowError(where, fmt::format("nothing has the name \"{:.40}\"", name),
                  meant.empty() ? std::string() : fmt::format("did you mean \"{}\"?", meant));
}

std::string Session::run_statements(const Entry& entry) {
  Draft candidate = extended(entry);
  const Inspection seen = look(candidate.script());
  std::string text = preview(candidate, assigned_name(entry.text));
  const bool selects = candidate.selection() && candidate.selection()->where.file == entry.where.file;
  if (selects && seen.kind != Inspection::Kind::kSelection && seen.kind != Inspection::Kind::kPattern) {
    throw FlowError({entry.where.file, 0}, "what is returned is no selection of pages",
                    "for example return sluice.topk(s, {k = 8}); without return it is shown");
  }
  // What cannot stand together is refused where it is typed.
  if (candidate.selection() && seen.kind == Inspection::Kind::kPattern && (!seen.graph.patterns.empty() || candidate.evicts()))
    static_cast<void>(traced(candidate.script()));
  if (selects) text += show(seen, candidate, false);
  draft_ = std::move(candidate);
  return text;
}

/// A line on what was assigned. What is too large to compute can be kept all the same.
std::string Session::preview(const Draft& draft, const std::string& name) const {
  if (name.empty()) return {};
  const Inspection seen = look(draft.script_returning({name, {}}));
  if (seen.kind == Inspection::Kind::kNothing || seen.kind == Inspection::Kind::kOther) return {};
  try {
    return fmt::format("{} = {}", name, show(seen, draft, true));
  } catch (const InputError& error) {
    return fmt::format("{} = not computed: {}\n", name, printable(error.what()));
  }
}

/// The draft with the statements of `entry`. A whole flow that cannot be taken apart into a draft is refused.
Draft Session::extended(const Entry& entry) const {
  Draft candidate = draft_;
  if (!candidate.add(entry) || !is_whole(entry.text)) return candidate;
  const FlowGraph whole = FlowScript{entry.where.file, entry.text}.trace(trace_options());
  if (to_text(whole) != to_text(traced(candidate.script()))) {
    throw FlowError({entry.where.file, 0}, "the flow cannot be taken apart into lines", kFlowForm);
  }
  return candidate;
}

TraceOptions Session::trace_options() const { return sluice::trace_options(model_.config()); }

Inspection Session::look(const Script& script) const {
  try {
    return inspect(script.text, kFile, trace_options(), script.asked);
  } catch (const FlowError& error) {
    throw_at_origin(error, script);
  }
}

FlowGraph Session::traced(const Script& script) const {
  try {
    return FlowScript{kFile, script.text}.trace(trace_options());
  } catch (const FlowError& error) {
    throw_at_origin(error, script);
  }
}

FlowGraph Session::flow(const std::string& wanted_for) const {
  if (draft_.is_whole() || !look(draft_.script()).graph.patterns.empty()) return traced(draft_.script());
  throw InputError(fmt::format("{} wants a flow that selects pages, has a pattern, or says who leaves", wanted_for),
                   "end it with, for example, return sluice.topk(s, {k = 8}), or :load one");
}

FlowGraph Session::replayable_flow(const std::string& wanted_for) const {
  FlowGraph graph = flow(wanted_for);
  try {
    require_all_tokens(graph);
  } catch (const FlowError& error) {
    throw_at_origin(error, draft_.script());
  }
  return graph;
}

Inspection Session::look_at_expression(const std::string& expression) const {
  const Chunk chunk = classify(expression);
  const Entry entry{expression, {"input", 1}};
  if (chunk.kind == ChunkKind::kWrong) throw_wrong(entry, chunk);
  if (chunk.kind != ChunkKind::kExpression) throw InputError("an expression is wanted", "for example :shape q:dot(c.k)");
  return look(draft_.script_returning(entry));
}

std::optional<FlowGraph> Session::flow_of_steps(const Draft& draft, const FlowGraph& seen) const {
  if ((!draft.selection() && !draft.evicts()) || (seen.states.empty() && !seen.reads_mass())) return std::nullopt;
  try {
    return traced(draft.script());
  } catch (const FlowError&) {
    return std::nullopt;  // lines are still missing
  }
}

std::string Session::show(const Inspection& seen, const Draft& draft, bool brief) const {
  switch (seen.kind) {
    case Inspection::Kind::kNothing:
      return "nothing\n";
    case Inspection::Kind::kNumber:
      return number_text(seen.number) + "\n";
    case Inspection::Kind::kText:
      return fmt::format("\"{}\"\n", printable(seen.text));
    case Inspection::Kind::kPattern:
    case Inspection::Kind::kOther:
      return printable(seen.text) + "\n";
    default:
      break;
  }
  const std::optional<FlowGraph> flow = flow_of_steps(draft, seen.graph);
  const oracle::NodeValue value = evaluate(seen.graph, seen.node, flow ? &*flow : nullptr, *capture_, options_.place,
                                           watch(brief ? kPreviewSeconds : options_.seconds));
  if (seen.kind == Inspection::Kind::kSelection) return show_selection(seen.graph, seen.node, value.pages);
  const ShownTensor tensor = shown(seen.graph, seen.node, value.tensor, capture_->tokens());
  if (brief) return summary(tensor);
  const bool forgets = flow && flow->eviction && (seen.graph.reads_mass() || !seen.graph.states.empty());
  return describe(tensor, options_.style) + (forgets ? "as if no token had left\n" : "");
}

std::string Session::show_selection(const FlowGraph& graph, NodeId selection, const std::vector<int32_t>& selected) const {
  const bool of_tokens = is_of_tokens(graph, selection);
  const oracle::Row row = capture_->row(options_.place.layer, options_.place.head);
  const std::vector<double> mass = page_mass(row, of_tokens ? 1 : graph.geometry.page);
  const auto all = static_cast<int>(mass.size());
  std::string share = fmt::format("{:.1f}%", 100 * mass_of(selected, mass));
  const bool has_beside = graph.selection() == selection && graph.beside() != nullptr;
  const bool is_around =
      !graph.patterns.empty() && graph.patterns.place_of(options_.place.layer, model_.config().layers) != LayerPatterns::kNone;
  if (has_beside || is_around) {
    const std::vector<double> of_token = page_mass(row, 1);
    const std::vector<bool> seen = attended_tokens(graph, selection, selected, options_.place, of_token.size());
    double sum = 0;
    for (size_t token = 0; token < seen.size(); ++token) sum += seen[token] ? of_token[token] : 0;
    share = fmt::format("with the pattern{} {} of {} tokens, {:.1f}%",
                        !is_around   ? " beside them"
                        : has_beside ? "s beside and around them"
                                     : " around them",
                        std::count(seen.begin(), seen.end(), true), seen.size(), 100 * sum);
  }
  return fmt::format("{} of {} {}, {} of the dense attention mass\n{}", selected.size(), all, of_tokens ? "tokens" : "pages",
                     share, page_strip(selected, all, options_.style));
}

std::vector<bool> Session::attended_tokens(const FlowGraph& graph, NodeId selection, const std::vector<int32_t>& selected,
                                           const Place& place, size_t tokens) const {
  std::vector<bool> seen(tokens, selection == kNoNode);
  const auto unit = selection != kNoNode && is_of_tokens(graph, selection) ? size_t{1} : static_cast<size_t>(graph.geometry.page);
  for (const int32_t page : selected) {
    const size_t first = static_cast<size_t>(page) * unit;
    std::fill_n(seen.begin() + static_cast<std::ptrdiff_t>(first), std::min(unit, tokens - first), true);
  }
  const Pattern* const beside = graph.selection() == selection ? graph.beside() : nullptr;
  const int around = graph.patterns.empty() ? LayerPatterns::kNone : graph.patterns.place_of(place.layer, model_.config().layers);
  const auto last = static_cast<int64_t>(tokens) - 1;
  for (size_t token = 0; token < tokens; ++token) {
    const auto at = static_cast<int64_t>(token);
    if (beside != nullptr && beside->sees(last, at)) seen[token] = true;
    if (around != LayerPatterns::kNone &&
        !graph.patterns.patterns[static_cast<size_t>(around)].of_head(place.head).sees(last, at))
      seen[token] = false;
  }
  return seen;
}

Vocabulary Session::vocabulary() const { return {command_names(), draft_.names(), draft_.members()}; }

}  // namespace sluice::repl
