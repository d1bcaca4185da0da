#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/repl/evaluation.h"
#include "agents/repl/flow_server.h"
#include "agents/repl/heat_map.h"
#include "agents/traces/capture.h"
#include "host/text/tokenizer.h"
#include "scripting/lua/trace.h"
#include "scripting/repl/completion.h"
#include "scripting/repl/draft.h"

namespace sluice::repl {

struct SessionOptions {
  std::string prompt;             // what the model reads
  std::string model = "mini";     // as :plan calls it
  DataType kv = DataType::kBF16;  // of the captured K and V
  Place place;
  Style style;
  double seconds = 30;                // that one input may take
  std::function<bool()> interrupted;  // whether the user has interrupted since it was last asked
  FlowServer* server = nullptr;       // for :submit; must outlive the session. Null: there is none
};

/// Throws InputError unless 0 <= number < count, which is how many of `what` the model has.
void check_number(int number, int count, const std::string& what);

/// The flow language over one captured decode step. What is typed is added to a flow (scripting/repl/draft.h); an expression is
/// traced as what that flow's index stage would return, and computed by the float64 reference.
class Session {
 public:
  /// What it refers to must outlive the session. Throws InputError.
  Session(Device& device, const Model& model, const Tokenizer& tokenizer, SessionOptions options);

  /// One line on what is looked at.
  std::string status() const;
  /// True if `input` is the beginning of something.
  static bool wants_more(std::string_view input);
  /// Does what `input` asks and returns what is to be printed. Throws InputError and Interrupted; nothing has changed then.
  std::string run(const std::string& input);
  bool has_ended() const { return ended_; }
  /// What completion may offer.
  Vocabulary vocabulary() const;

 private:
  struct Command;
  static const std::vector<Command>& commands();
  static std::vector<std::string> command_names();

  // Lua (session.cpp).
  std::string run_expression(const Entry& entry);
  void require_known(const std::string& name, const SourceLocation& where) const;
  std::string run_statements(const Entry& entry);
  std::string preview(const Draft& draft, const std::string& name) const;
  Draft extended(const Entry& entry) const;
  Inspection look(const Script& script) const;
  FlowGraph traced(const Script& script) const;
  /// The flow so far. Throws InputError if it selects nothing.
  FlowGraph flow(const std::string& wanted_for) const;
  /// The same, of which one captured step shows all. Throws FlowError for one that evicts tokens.
  FlowGraph replayable_flow(const std::string& wanted_for) const;
  /// A line on why the flow so far would be refused, or "".
  std::string what_is_wrong() const;
  Inspection look_at_expression(const std::string& expression) const;
  std::string show(const Inspection& seen, const Draft& draft, bool brief) const;
  /// The flow whose steps have left the states that `seen` loads; none if it is not finished, or loads none.
  std::optional<FlowGraph> flow_of_steps(const Draft& draft, const FlowGraph& seen) const;
  std::string show_selection(const FlowGraph& graph, NodeId selection, const std::vector<int32_t>& selected) const;
  TraceOptions trace_options() const;
  Watch watch(double seconds) const { return {seconds, options_.interrupted}; }
  Watch watch() const { return watch(options_.seconds); }

  // Commands (session_commands.cpp), which take what stands after their name.
  std::string run_command(const std::string& line);
  std::string help(const std::string& argument);
  std::string set_layer(const std::string& argument);
  std::string set_head(const std::string& argument);
  std::string decode_step(const std::string& argument);
  std::string set_prompt(const std::string& argument);
  std::string set_page(const std::string& argument);
  std::string plan(const std::string& argument);
  std::string mass(const std::string& argument);
  std::string time(const std::string& argument);
  std::string shape(const std::string& argument);
  std::string graph(const std::string& argument);
  std::string load(const std::string& argument);
  std::string save(const std::string& argument);
  std::string show_flow(const std::string& argument);
  std::string reset(const std::string& argument);
  std::string quit(const std::string& argument);
  // Of session_submissions.cpp.
  std::string submit(const std::string& argument);
  static std::optional<int64_t> submission_of(std::string_view argument);
  FlowServer& server() const;
  double layer_mass(const FlowGraph& graph, int layer, const Watch& limits) const;
  /// Of so many tokens, which the last step attends to: those of what is selected (kNoNode: all), with a pattern beside or
  /// around.
  std::vector<bool> attended_tokens(const FlowGraph& graph, NodeId selection, const std::vector<int32_t>& selected,
                                    const Place& place, size_t tokens) const;

  Device& device_;
  const Model& model_;
  const Tokenizer& tokenizer_;
  SessionOptions options_;
  std::unique_ptr<Capture> capture_;
  Draft draft_;
  std::optional<int64_t> parent_;  // the submission that the draft comes from
  int inputs_ = 0;
  bool ended_ = false;
};

}  // namespace sluice::repl
